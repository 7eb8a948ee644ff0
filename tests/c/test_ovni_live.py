"""The preload library makes a program that traces with ovni visible while it runs.

libovni cannot be had here: `ovni_writer.c` stands in for it, with its names, buffer and files.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter

import pytest

from tests import toml
from tests.c.building import CLIENT, HERE, Program, build
from tests.system.collector import until

SHARED = ("-shared", "-fPIC", "-std=gnu99")


@pytest.fixture(scope="module")
def preload():
    return build(CLIENT / "ovni_live.c", *SHARED, libraries=("-ldl",))


@pytest.fixture(scope="module")
def program():
    """The unmodified program, with the library that stands in for libovni."""
    writer = build(HERE / "ovni_writer.c", *SHARED, "-Wl,-soname,libovni.so.1")
    library = writer.rename(writer.with_name("libovni.so.1"))
    return build(
        HERE / "ovni_program.c", "-std=gnu99",
        libraries=(str(library), f"-Wl,-rpath,{library.parent}"),
    )  # fmt: skip


@pytest.fixture
def start(program, preload, tmp_path):
    """A function that starts the program; it is gone at the end of the test."""
    started = []

    def begin(*, live: str | None = "20"):
        environ = {"OVNI_TRACEDIR": str(tmp_path / "ovni")}
        if live is not None:
            environ |= {"LD_PRELOAD": str(preload), "OVNI_LIVE_MS": live}
        started.append(Program(program, **environ))
        return started[-1]

    yield begin
    for one in started:
        one.close()


def streams(directory) -> list[bytes]:
    return [path.read_bytes() for path in sorted(directory.rglob("stream.obs"))]


def test_both_compilers_have_nothing_to_say():
    for compiler in ("gcc", "clang"):
        build(CLIENT / "ovni_live.c", *SHARED, compiler=compiler, libraries=("-ldl",))
        build(CLIENT / "ovni_live.c", "-shared", "-fPIC", "-std=c99", compiler=compiler)


@pytest.mark.parametrize("live", [None, "0", "", "soon", "-5"])
def test_without_it_or_switched_off_nothing_is_seen(start, tmp_path, live):
    program = start(live=live)
    program.ask("begin")
    program.ask("spans 20 5")
    assert streams(tmp_path) == [b"ovni\1\0\0\0"]


def test_with_it_events_are_seen_while_the_program_runs(start, tmp_path):
    program = start()
    program.ask("begin")
    program.ask("spans 20 5")
    (seen,) = streams(tmp_path)
    assert 10 < seen.count(b"VU[") <= 20
    assert seen.count(b"VU]") >= seen.count(b"VU[") - 1
    program.ask("kinds")
    program.ask("spans 20 5")
    (seen,) = streams(tmp_path)
    assert all(seen.count(kind) == 1 for kind in (b"VYc", b"OM[", b"OM]", b"OM="))
    program.ask("free")
    program.end()
    (seen,) = streams(tmp_path)
    assert seen.count(b"VU[") == seen.count(b"VU]") == 40
    assert b"OHe" in seen


def test_marks_and_jumbos_flush_too(start, tmp_path):
    program = start(live="1")
    program.ask("begin")
    for _ in range(10):
        program.ask("rest 10")
        program.ask("kinds")
    (seen,) = streams(tmp_path)
    assert seen.count(b"OM=") > 5


def test_the_end_of_a_thread_is_written(start, tmp_path):
    """libovni drops what a thread has buffered when it ends; no interval has passed here."""
    program = start(live="60000")
    program.ask("threads 8 1000")
    program.end()
    assert [seen.count(b"VU]") for seen in streams(tmp_path)] == [1000] * 8
    assert all(b"OHe" in seen for seen in streams(tmp_path))


def test_threads_flush_each_for_themselves(start, tmp_path):
    program = start(live="1")
    program.ask("threads 8 200000")
    program.end()
    for seen in streams(tmp_path):
        kinds = kinds_of(seen)
        assert kinds[b"VU["] == kinds[b"VU]"] == 200_000
        assert kinds[b"OF["] > 1, "more than at its end; how many more is a matter of speed"


def kinds_of(stream: bytes) -> Counter[bytes]:
    """How many events of each kind there are: among millions of clocks, one looks like any kind."""
    kinds: Counter[bytes] = Counter()
    at = len(b"ovni\1\0\0\0")
    while at < len(stream):
        payload = stream[at] & 15
        kinds[stream[at + 1 : at + 4]] += 1
        at += 12 + (payload and payload + 1)
    return kinds


def test_a_forked_child_does_not_write_its_parents_events(start, tmp_path):
    program = start(live="20")
    program.ask("begin")
    program.ask("spans 5 0")
    before = streams(tmp_path)  # on a busy machine the parent has written some events
    program.ask("fork 5")
    assert streams(tmp_path) == before
    program.ask("spans 1 0")
    program.ask("free")
    program.end()
    (seen,) = streams(tmp_path)
    assert seen.count(b"VU[") == 6, "the parent goes on"


def test_flushes_of_the_programs_own_count(start, tmp_path):
    program = start(live="60000")
    program.ask("begin")
    program.ask("flush")
    program.ask("spans 3 0")
    assert streams(tmp_path)[0].count(b"VU[") == 0


def test_a_program_without_ovni_runs_as_ever(preload):
    done = subprocess.run(
        ["sh", "-c", "echo $((6 * 7)) | cat"], env=os.environ | {"LD_PRELOAD": str(preload)},
        capture_output=True, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (b"42\n", b"")


def test_calls_without_a_libovni_do_nothing(preload, tmp_path):
    """As in a program whose libovni was optional."""
    source = tmp_path / "absent.c"
    source.write_text(
        "void ovni_flush(void);\nvoid ovni_mark_push(int, long);\n"
        "int main(void) { ovni_mark_push(1, 2); ovni_flush(); return 0; }\n"
    )
    program = build(source, libraries=(str(preload), f"-Wl,-rpath,{preload.parent}"))
    subprocess.run([program], check=True)


def test_a_libovni_of_a_plugin_is_found(program, preload, tmp_path):
    """Loaded late and for itself, it is not among what comes next after a preloaded library."""
    library = program.parent.parent.glob("*/libovni.so.1")
    plugin_source, source = tmp_path / "plugin.c", tmp_path / "host.c"
    plugin_source.write_text(
        "#include <unistd.h>\nvoid ovni_proc_init(int, const char *, int);\nvoid ovni_thread_init(int);\n"
        "void ovni_mark_push(int, long);\nvoid ovni_thread_free(void);\nvoid plugin(void);\n"
        'void plugin(void) { ovni_proc_init(1, "h", getpid()); ovni_thread_init(getpid());\n'
        "ovni_mark_push(1, 2); ovni_thread_free(); }\n"
    )
    plugin = build(plugin_source, "-shared", "-fPIC", "-std=gnu99", libraries=(str(next(library)),))
    source.write_text(
        "#include <dlfcn.h>\nint main(int argc, char **argv) { (void)argc;\n"
        "void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);\n"
        'void (*plugin)(void) = __extension__(void (*)(void))dlsym(library, "plugin"); plugin(); return 0; }\n'
    )
    host = build(source, "-std=gnu99", libraries=("-ldl",))
    path = str(next(program.parent.parent.glob("*/libovni.so.1")).parent)
    environ = {
        "OVNI_TRACEDIR": str(tmp_path / "o"),
        "LD_PRELOAD": str(preload),
        "LD_LIBRARY_PATH": path,
    }
    subprocess.run([host, plugin], env=os.environ | environ, check=True)
    assert streams(tmp_path)[0].count(b"OM[") == 1


def test_a_collector_that_follows_the_files_sees_them_live(start, collector_of, tmp_path):
    """One program with the library, one without, in one trace directory, followed by a real daemon."""
    followed = collector_of(sources=toml.source("runs", "tail", "ovni", paths=[f"{tmp_path}/ovni"]))
    live, dark = start(live="20"), start(live=None)
    for program in (live, dark):
        program.ask("begin")
    for _ in range(20):
        live.ask("spans 1 5")
        dark.ask("spans 1 5")

    def spans(one):
        pid = one.process.pid
        rows = followed.rows(["stream", "kind", "name"])
        wanted = {"stream": f"host.1/{pid}/{pid}", "kind": "span", "name": "submit a task"}
        return [row for row in rows if row == wanted]

    def looked():
        committed = (followed.store / "events" / "_delta_log").exists()
        return committed and len(spans(live)) > 10

    until(looked, "spans of a running program")
    assert live.process.poll() is None
    assert not spans(dark)
