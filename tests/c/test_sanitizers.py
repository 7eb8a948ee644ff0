"""The same scripts under the address, undefined-behaviour and thread sanitizers: any finding ends the
program with an error or says something, and either fails the test."""

from __future__ import annotations

import subprocess

import pytest

from tests.c.building import HERE, WRAPPED, Program, build
from tests.c.listening import Stream, Udp, hear
from tests.c.test_bytes import EDGES, command
from tests.forms import in_turn

SANITIZERS = {
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-fsanitize=thread"],
}
ENVIRON = {
    "ASAN_OPTIONS": "detect_leaks=1:halt_on_error=1:abort_on_error=0",
    "TSAN_OPTIONS": "halt_on_error=1:die_after_fork=0",
}
# In a child, the leak sanitizer does not know which threads are its own, and the thread sanitizer
# refuses its first one: there, a child of a program with a sending thread is not looked at.
IN_CHILDREN = ENVIRON | {"ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1"}


@pytest.fixture(scope="module", params=[*SANITIZERS])
def sanitizer(request):
    return request.param


@pytest.fixture(scope="module")
def program(sanitizer):
    return build(HERE / "play.c", *SANITIZERS[sanitizer])


@pytest.mark.parametrize(
    ("kind", "options"), in_turn(["udp", "tcp", "unix", "file"], ["", "no_thread"])
)
def test_threads_forks_and_ends(program, sanitizer, tmp_path, kind, options):
    peer = Udp() if kind == "udp" else Stream(tmp_path / "s" if kind == "unix" else None)
    address = f"file://{tmp_path}/t" if kind == "file" else peer.address
    client = Program(program, **IN_CHILDREN)
    assert client.ask(f"connect {address} threads=24 linger=20000 {options}") == "connect 0 0"
    client.tell("threads 16 500", "shared 8 200 99", "short 20")
    if sanitizer == "address" or options:
        assert client.ask("fork many 100;event 61") == "child 0"
    assert client.ask("flush 20000") == "flush 0"
    client.tell("close")
    client.ask(f"connect {address} threads=24 {options}")
    client.end("threads 4 100")
    if kind == "file":
        hear((tmp_path / "t").read_bytes())
    peer.close()


def test_a_slow_peer_and_threads_that_discard(program, tmp_path):
    peer = Stream(wait=True, room=4096)
    client = Program(program, **ENVIRON)
    client.ask(f"connect {peer.address} memory=262144 threads=16 linger=20000")
    client.tell("threads 16 4000")
    assert int(client.ask("say x").split()[1]) > 1000
    peer.may_read.set()
    client.end("threads 16 100")
    (data,) = peer.close()
    hear(data).check_complete()


def test_every_value_and_length(program, tmp_path):
    given = [[("n", type_, value)] for type_, values in EDGES for value in values]
    given += [[("n", f"{type_}[]", values)] for type_, values in EDGES]
    given += [[("ä" * 40_000, "string", "€" * 30_000)], [("n", "u64[]", list(range(70_000)))]]
    client = Program(program, **ENVIRON)
    client.ask(f"connect file://{tmp_path}/t threads=1")
    client.end(*(command("event", "61", attributes=one) for one in given))
    assert len(hear((tmp_path / "t").read_bytes()).events) == len(given)


def test_signals_amid_events(program):
    peer = Stream()
    client = Program(program, **ENVIRON)
    client.ask(f"connect {peer.address} threads=1 linger=20000")
    client.end("interrupted 20000")
    (data,) = peer.close()
    hear(data).check_complete()


def test_signals_amid_the_last_event(program):
    peer = Stream()
    client = Program(program, **ENVIRON)
    for _ in range(60):
        client.ask(f"connect {peer.address} threads=1 linger=20000")
        client.tell("interrupted 30", "close")
    client.end()
    heard = [hear(data) for data in peer.close()]
    assert len(heard) == 60
    for each in heard:
        each.check_complete()


@pytest.mark.parametrize(
    ("name", "what", "code"),
    [
        ("hostile", "jump", 0),
        ("hostile", "main", 0),
        ("hostile", "exit", 3),
        ("ending", "close", 3),
        ("ending", "exit", 3),
        ("ending", "amid", 3),
        ("ending", "jump", 0),
        ("ending", "next", 0),
        ("ending", "beside", 0),
    ],
)
def test_programs_that_leave_calls(sanitizer, name, what, code):
    program = build(HERE / f"{name}.c", WRAPPED[name], *SANITIZERS[sanitizer])
    peer = Stream()
    ended = subprocess.run(
        [program, what, peer.address, "30"],
        env=ENVIRON,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode in {0, code}  # hostile exit: the close may end before the signal
    assert not ended.stderr
    peer.close()


def test_a_library_that_is_loaded_and_unloaded(sanitizer):
    flags = SANITIZERS[sanitizer]
    host = build(HERE / "host.c", "-std=gnu99", *flags, libraries=("-ldl",))
    plugin = build(HERE / "plugin.c", "-shared", "-fPIC", "-DPLUGIN=a", *flags)
    peer = Stream()
    for words in (["late"], ["late", "stop"]):
        ended = subprocess.run(
            [host, words[0], peer.address, plugin, *words[1:]],
            env=ENVIRON,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, "")
    peer.close()
