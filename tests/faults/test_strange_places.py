"""Places for a store that nobody meant: each is used as it is, or refused in a sentence that says what to do. No traceback, no half a store."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests import program, toml
from tests.faults.loopfs import why_not
from tests.ingest.log import heph_event
from tests.query.asking import ask
from tests.system.collector import until

MORE = toml.section("store", commit_interval="50 ms") + toml.section("heartbeat", interval="1 h")


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.heph"
    path.write_bytes(b"".join(heph_event(1, number) for number in range(10)))
    return path


def command(*arguments, **options):
    """Run a command. Return its exit code and its output, which has no traceback."""
    done = program.run(
        [*program.COMMAND, *arguments], capture_output=True, text=True, check=False, **options
    )
    said = done.stdout + done.stderr
    assert "Traceback" not in said, said
    return done.returncode, said


def imported(store, trace, **options):
    return command("import", "--store", store, "--format", "heph", trace, **options)


def send(collector, stream, numbers):
    with socket.create_connection(collector.address("tcp")) as peer:
        peer.sendall(b"".join(heph_event(stream, number) for number in numbers))


def stored(store):
    return ask(store, "SELECT count(*) FROM spans")[0][0]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("new\nline", "must not contain '\\n'"),
        ("tab\t", "must not contain '\\t'"),
        ("escape\x1b", "must not contain '\\x1b'"),
        ("what?", "must not contain '?'"),
        (b"\xff\xfe", "must be UTF-8"),
    ],
)
def test_a_name_that_the_library_would_misread_is_refused_before_anything_is_made(
    tmp_path, trace, name, words
):
    store = os.fsencode(tmp_path) + b"/" + os.fsencode(name)
    before = sorted(tmp_path.iterdir())
    code, said = imported(store, trace)
    assert (code, words in said) == (2, True), said
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "name", ["two words 'and\" $HOME ~{x}", "a:b", "s3:", "day=1", "#1", "\u202e"]
)
def test_other_names_are_names_as_any(tmp_path, trace, name):
    assert imported(tmp_path / name, trace)[0] == 0
    assert stored(tmp_path / name) == 10
    assert command("verify", tmp_path / name)[0] == 0


def test_a_name_may_be_long_and_one_that_is_too_long_is_said(tmp_path, trace):
    deep = tmp_path.joinpath(*["d" * 200] * 18)
    assert imported(deep, trace)[0] == 0
    assert stored(deep) == 10
    for too_long in (tmp_path / ("x" * 300), tmp_path.joinpath(*["d" * 200] * 21)):
        code, said = imported(too_long, trace)
        assert (code, "File name too long" in said) == (1, True), said


def test_a_link_is_as_good_as_its_directory_and_one_to_nothing_is_said(tmp_path, trace):
    real, link, nothing = tmp_path / "real", tmp_path / "link", tmp_path / "nothing"
    real.mkdir()
    link.symlink_to(real)
    assert imported(link, trace)[0] == 0
    assert stored(real) == stored(link) == 10
    nothing.symlink_to(tmp_path / "gone")
    code, said = imported(nothing, trace)
    assert code == 1
    assert f"{nothing} is a link to {tmp_path}/gone, which is not there" in said
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("part", ["", "spool", "events"])
def test_a_file_where_a_directory_belongs_is_named(tmp_path, trace, part):
    store = tmp_path / "store"
    (store / part).parent.mkdir(exist_ok=True)
    (store / part).write_text("of somebody")
    code, said = imported(store, trace)
    assert (code, f"{store / part} is not a directory; move it away" in said) == (1, True), said
    assert (store / part).read_text() == "of somebody"


DIRECTORIES = {"quarantine", "rollups", "damaged", "collectors"}


@pytest.mark.parametrize(
    "name",
    [
        "ports.tmp", "unfinished", "upkeep.json", "upkeep.tmp", "collector.json",
        "spool/starting", "spool/starting.new", "spool/identity", "spool/next.segment", "events/_journal",
        *sorted(DIRECTORIES),
    ],
)  # fmt: skip
def test_what_stands_in_the_place_of_one_of_its_own_names_stops_no_collector(collectors, name):
    """A directory where a file belongs, and a file where a directory belongs."""
    collector = collectors(more=MORE).start()
    send(collector, 1, range(10))
    collector.settle()
    collector.kill()
    place = collector.store / name
    if name in DIRECTORIES:
        shutil.rmtree(place, ignore_errors=True)
        place.write_text("")
    else:
        place.unlink(missing_ok=True)
        place.mkdir()
    collector.start()
    send(collector, 2, range(10))
    until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == 20, "the events")
    collector.settle()
    assert collector.running
    collector.stop()
    assert collector.process.returncode == 0
    assert stored(collector.store) == 20


def test_a_read_only_file_system_is_read_and_named_by_all_that_write(mounted, tmp_path, trace):
    place = mounted("size=64m")
    store = place / "store"
    assert imported(store, trace)[0] == 0
    subprocess.run(["mount", "-o", "remount,ro", place], check=True)
    words = f"Read-only file system: {place}"
    for made in (store, place / "other"):
        for arguments in (("serve",), ("import", "--format", "heph", str(trace))):
            code, said = command(*arguments, "--store", made)
            assert (code, words in said) == (1, True), said
    code, said = command("run", "--store", store, "--", "sh", "-c", "echo it ran", cwd=tmp_path)
    assert (code, words in said, "it ran" in said) == (0, True, True)
    assert stored(store) == 10
    assert command("verify", store)[0] == 0
    assert command("streams", "--store", store)[0] == 0


def test_a_file_system_that_fails_and_becomes_read_only_acknowledges_nothing(loopfs, collectors):
    """As ext4 does after an error. Acknowledged events are there after a repair."""
    device = subprocess.run(
        ["findmnt", "--noheadings", "--output", "SOURCE", loopfs.path],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    trigger = Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error"
    if not trigger.exists():
        pytest.skip(f"no {trigger}")
    subprocess.run(["mount", "-o", "remount,errors=remount-ro", loopfs.path], check=True)
    collector = collectors(more=MORE)
    collector.store = loopfs.path / "store"
    collector.start()
    send(collector, 1, range(10))
    collector.settle()
    trigger.write_text("a test")
    with socket.create_connection(collector.address("tcp")) as peer:
        peer.sendall(b"".join(heph_event(2, number) for number in range(10)))
        until(
            lambda: not collector.running or b"degraded" in collector.get("/healthz")[1].encode(),
            "the collector to notice",
        )
    collector.stop()
    assert "Read-only file system" in collector.log() or "Input/output error" in collector.log()
    assert "Traceback" not in collector.log()
    loopfs.unmount()
    loopfs.mount()
    collector.start().stop()
    assert collector.process.returncode == 0
    assert stored(collector.store) in {10, 20}


@pytest.mark.parametrize("tmp", ["full", "read-only", "missing"])
def test_a_store_needs_no_temporary_directory(mounted, tmp_path, trace, tmp):
    place = mounted("size=64k" if tmp == "full" else "ro") if tmp != "missing" else tmp_path / "no"
    if tmp == "full":
        (place / "ballast").write_bytes(bytes(56 * 1024))
    environ = program.environment() | {"TMPDIR": str(place)}
    store = tmp_path / "store"
    assert imported(store, trace, env=environ)[0] == 0
    for arguments in (
        ("query", "--store", store, "SELECT count(*) FROM spans"), ("stats", "--store", store),
        ("verify", store), ("export", "--store", store, "--to", "chrome", "-o", tmp_path / "out.json"),
        ("upkeep", "--store", store), ("run", "--store", tmp_path / "run", "--", "true"),
    ):  # fmt: skip
        code, said = command(*arguments, env=environ, cwd=tmp_path)
        assert code == 0, said


def test_a_file_system_of_layers_serves_a_store_of_the_lower_one(tmp_path, trace, collectors):
    """A container's: the first write gives a file another inode."""
    if why_not():
        pytest.skip(why_not())
    lower, upper, work, merged = (tmp_path / name for name in ("lower", "upper", "work", "merged"))
    for directory in (lower, upper, work, merged):
        directory.mkdir()
    assert imported(lower / "store", trace)[0] == 0
    layers = f"lowerdir={lower},upperdir={upper},workdir={work}"
    made = subprocess.run(
        ["mount", "-t", "overlay", "-o", layers, "overlay", merged],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip(f"no overlay: {made.stderr.strip()}")
    try:
        collector = collectors(more=MORE, store=merged / "store").start()
        send(collector, 2, range(10))
        until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == 10, "the events")
        collector.settle()
        collector.stop()
        assert collector.process.returncode == 0
        assert stored(merged / "store") == 20
    finally:
        subprocess.run(["umount", "--lazy", merged], check=True)
