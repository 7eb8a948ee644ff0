"""Test that C programs that misuse the client behave as without tracing, and that the client reports each lost event."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from tests.c.building import HERE, WRAPPED, Program, build, play
from tests.c.listening import Stream, Udp, hear


def run(program, *words, code=0, **environ):
    ended = subprocess.run(
        [program, *map(str, words)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (code, "")
    return ended.stdout.splitlines()


def listen(kind, directory):
    if kind == "udp":
        return Udp()
    return Stream(directory / "socket" if kind == "unix" else None)


@pytest.mark.parametrize("kind", ["udp", "tcp", "unix", "file"])
def test_what_a_program_writes_to_closed_standard_descriptors_reaches_nothing(tmp_path, kind):
    """A write to a socket without a peer would end the program by SIGPIPE."""
    peer = None if kind == "file" else listen(kind, tmp_path)
    address = peer.address if peer else f"file://{tmp_path}/trace"
    run(build(HERE / "closed.c"), address, 100)
    data = peer.close() if peer else (tmp_path / "trace").read_bytes()
    data = data if isinstance(data, bytes) else b"".join(data)
    assert b"SHOUTED" not in data
    assert len(hear(data).sessions) == 100


def plugin(name, *flags):
    return build(HERE / "plugin.c", "-shared", "-fPIC", f"-DPLUGIN={name}", *flags)


@pytest.fixture(scope="module")
def host():
    return build(HERE / "host.c", "-std=gnu99", libraries=("-ldl",))


@pytest.fixture(scope="module")
def hostile():
    return build(HERE / "hostile.c", WRAPPED["hostile"])


@pytest.mark.parametrize("stop", [[], ["stop"]])
def test_a_thread_that_ends_after_the_library_was_unloaded_ends_well(host, stop):
    peer = Stream()
    run(host, "late", peer.address, plugin("a"), *stop)
    (data,) = peer.close()
    heard = hear(data)
    assert heard.final == {"1": 10}
    heard.check_complete()


def test_loading_and_unloading_again_and_again_leaves_nothing(host):
    """The C library reserves another 64 MiB for its allocator whenever two threads allocate at once, unless it has one arena."""
    peer = Stream()
    (left,) = run(host, "turns", peer.address, plugin("a"), 40, MALLOC_ARENA_MAX="1")
    assert left == "0 0 0"
    assert [hear(data).final for data in peer.close()] == [{"1": 10}] * 40


@pytest.mark.parametrize("flag", ["-Wl,-Bsymbolic-functions", "-Wl,-Bsymbolic"])
def test_two_libraries_that_bind_their_own_functions_are_two_sessions(host, flag):
    """The two libraries may still share the variable that shows whether tracing is off."""
    peer = Stream()
    (said,) = run(host, "two", peer.address, plugin("a", flag), plugin("b", flag))
    assert said == "0 0"
    heard = [hear(data) for data in peer.close()]
    assert sorted(len(each.events) for each in heard) == [10, 20]
    for each in heard:
        each.check_complete()


def stated(heard):
    """Return the number of events that arrived or that the goodbye reports. After a jump out of a call that was sending, the
    client opens a new connection and repeats the last events."""
    (bye,) = heard.said("tailrace.goodbye")
    return len({(e.stream, e.counter) for e in heard.events}) + sum(bye["discarded"].values())


@pytest.mark.parametrize("who", ["jump", "main", "stack"])
def test_jumps_out_of_event_calls_cost_those_events_and_are_counted(hostile, who):
    peer = Stream()
    (begun,) = run(hostile, who, peer.address, 150)
    heard = heard_of(peer)
    assert stated(heard) == int(begun)
    assert heard.said("tailrace.goodbye")[0]["discarded"]["left"] > 0


def test_a_thread_that_jumped_out_and_waits_holds_up_nobody(hostile):
    for _ in range(5):
        peer = Stream()
        (begun,) = run(hostile, "stay", peer.address, 20)
        heard = heard_of(peer)
        if heard.said(
            "tailrace.goodbye"
        ):  # it may have left a call that sends, and the end stays unknown
            # Nobody knows of a call that the thread left before it took its stream's lock.
            assert int(begun) - stated(heard) in {0, 1}


def test_a_thread_that_never_comes_back_stops_no_other_thread(hostile):
    """Whoever waited once for the stream's lock does not wait for it again: these events would take 1,000 seconds."""
    peer = Stream()
    assert run(hostile, "held", peer.address, 1000) == ["1000 1 1"]
    peer.close()


def test_an_event_that_was_left_belongs_to_one_session(hostile):
    peer = Stream()
    run(hostile, "fault", peer.address)
    first, second = (hear(data) for data in peer.close())
    assert first.said("tailrace.goodbye")[-1]["discarded"] == {"left": 1}
    assert (second.final, second.said("tailrace.goodbye")[-1]["discarded"]) == ({"1": 2}, {})
    second.check_complete()


def test_an_event_that_was_left_is_counted_once_however_often_a_connect_fails(hostile):
    peer = Stream()
    assert run(hostile, "lost", peer.address, 3) == ["1"]
    peer.close()


def test_a_thread_that_keeps_the_table_for_a_while_costs_no_event(hostile):
    peer = Stream()
    assert run(hostile, "table", peer.address, 1) == ["0"]
    peer.close()


def test_a_thread_that_never_gives_the_table_back_is_waited_for_once(hostile):
    """Otherwise, these events would take 1,000 seconds."""
    peer = Stream()
    assert run(hostile, "gone", peer.address, 1000) == ["1000"]
    peer.close()


@pytest.mark.parametrize("events", [2000, -2000])
def test_a_file_that_reaches_the_limit_of_its_size_does_not_end_the_program(
    hostile, tmp_path, events
):
    """By default, the kernel's signal (SIGXFSZ) ends the program. A negative number of events: without the sending thread."""
    trace = tmp_path / "trace"
    assert run(hostile, "limit", f"file://{trace}", events) == ["-1 EFBIG 0"]
    assert trace.stat().st_size == 20_000


def test_children_that_other_threads_fork_at_odd_moments_are_sessions_of_their_own(hostile):
    peer = Stream()
    run(hostile, "between", peer.address)
    heard = [hear(data) for data in peer.close()]
    assert [each.final for each in heard] == [{"1": 10}] * 5
    for each in heard:
        each.check_complete()


@pytest.mark.parametrize("what", ["handler", "escape"])
def test_children_that_signal_handlers_fork_amid_event_calls_lose_nothing(hostile, what):
    """Each child also ends a span that began before the session, before its own session begins."""
    peer = Stream()
    (begun,) = run(hostile, what, peer.address, 30)
    children, parents = [], []
    for data in peer.close():
        heard = hear(data)
        is_child = heard.events[0].name == "child"
        (children if is_child else parents).append(heard)
        heard.check_complete(unnumbered=int(is_child))
    assert [each.final for each in children] == [{"1": 11}] * 30
    ends = [each.said("tailrace.goodbye")[-1]["discarded"] for each in children]
    assert ends == [{"unconnected": 1}] * 30
    assert [each.final for each in parents] == [{"1": int(begun)}]


@pytest.mark.parametrize("what", ["exit", "flush"])
def test_an_exit_in_a_signal_handler_amid_a_call_that_waits_ends_the_program(hostile, what):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        run(hostile, what, f"tcp://127.0.0.1:{nobody.getsockname()[1]}", 300, code=3)


@pytest.fixture(scope="module")
def ending():
    return build(HERE / "ending.c", WRAPPED["ending"])


def ends(peer):
    """Return, by session, the goodbyes over all its connections."""
    found = {}
    for heard in map(hear, peer.close()):
        found.setdefault(heard.sessions[0], []).extend(heard.said("tailrace.goodbye"))
    return list(found.values())


@pytest.mark.parametrize(
    ("what", "code", "expected"),
    [
        ("close", 3, [{"closed": 3}]),
        ("exit", 3, [{"closed": 1}]),
        ("amid", 3, [{"nested": 3, "left": 1, "closed": 1}]),
        ("jump", 0, [{"closed": 3}]),
        ("next", 0, [{}, {"unconnected": 1}]),
    ],
)
def test_events_behind_a_goodbye_are_stated_by_another_one(ending, what, code, expected):
    """Otherwise the session would look complete."""
    peer = Stream()
    run(ending, what, peer.address, code=code)
    assert [goodbyes[-1]["discarded"] for goodbyes in ends(peer)] == expected


def test_a_thread_that_emits_beside_the_exit_keeps_the_end_unknown(ending):
    peer = Stream()
    run(ending, "beside", peer.address)
    assert [] in ends(peer)


def test_a_close_that_was_left_by_a_jump_may_be_followed_by_another_session(hostile):
    peer = Stream()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        absent = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
        run(hostile, "leave", absent, 300, peer.address)
    heard = heard_of(peer)
    assert heard.final == {"1": 10}
    heard.check_complete()


def test_a_child_that_is_forked_while_a_session_begins_or_ends_may_begin_its_own(hostile):
    peer = Stream()
    run(hostile, "fork", peer.address, 0)
    parent, child = sorted((hear(data) for data in peer.close()), key=lambda one: len(one.events))
    assert parent.events == []
    assert child.final == {"1": 10}
    child.check_complete()


def test_a_real_time_thread_does_not_keep_the_holder_of_its_stream_from_the_processor(hostile):
    ended = subprocess.run(
        [hostile, "real", "file:///dev/null", "300"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if ended.returncode == 77:
        pytest.skip("no thread may have real-time priority here")
    most, in_all = map(int, ended.stdout.split())
    assert in_all > 0  # it had to wait
    assert most <= 16


def wakes(process):
    """How often the threads of a process have begun to run again, after they had waited by themselves."""
    texts = [path.read_text() for path in Path(f"/proc/{process.pid}/task").glob("*/status")]
    return sum(int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0]) for text in texts)


@pytest.mark.parametrize("kind", ["tcp", "unix", "file"])
def test_a_collector_that_is_away_costs_few_wakes(tmp_path, kind):
    """The sending thread looks for it once a second, not each time that events may be sent."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = {
            "tcp": f"tcp://127.0.0.1:{nobody.getsockname()[1]}",
            "unix": f"unix://{tmp_path}/socket",
            "file": f"file://{tmp_path}/absent/file",
        }[kind]
        program = Program(build(HERE / "play.c"))
        program.ask(f"connect {address} linger=1")
        program.tell("many 10", "sleep 1500", "say waited", "sleep 2000")
        assert program.process.stdout.readline() == "waited 0\n"
        before = wakes(program.process)
        assert program.ask("say waited") == "waited 0"
        assert wakes(program.process) - before < 30  # 5 ms apart, they would be 400
        program.end()


LATE = ["atexit before connect", "destructor of a global", "destructor of a static"]


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_events_outside_of_main_arrive_and_those_before_connect_are_counted(compiler):
    peer = Stream()
    run(build(HERE / "ends.cpp", compiler=compiler), peer.address)
    heard = heard_of(peer)
    names = sorted(event.name for event in heard.events)
    assert names == sorted([*LATE, "function with the attribute destructor", "main"])
    (bye,) = heard.said("tailrace.goodbye")
    assert bye["discarded"] == {"unconnected": 2}


def test_events_after_a_close_are_stated_by_the_exit():
    peer = Stream()
    run(build(HERE / "ends.cpp", compiler="g++"), peer.address, "close")
    first, second = (hear(data) for data in peer.close())
    assert [event.name for event in first.events] == ["main"]
    assert first.said("tailrace.goodbye")[0]["discarded"] == {"unconnected": 2}
    assert second.events == []
    assert second.said("tailrace.goodbye") == [
        {"streams": {}, "more": False, "discarded": {"closed": 4}}
    ]
    assert set(first.sessions).isdisjoint(second.sessions)


def test_events_between_two_sessions_are_stated_by_the_second_one():
    peer = Stream()
    said = play(
        build(HERE / "play.c"), "many 3", f"connect {peer.address}", "many 5", "say on",
        "close", "many 7", "say off", f"connect {peer.address}", "many 11", "fork many 2;close;many 4",
        "close",
    )  # fmt: skip
    assert said[1] == "on 3"
    assert said[2] == "off 10"
    sessions = sorted((hear(data) for data in peer.close()), key=lambda one: len(one.events))
    assert [len(one.events) for one in sessions] == [0, 2, 5, 11]
    discarded = [one.said("tailrace.goodbye")[0]["discarded"] for one in sessions]
    assert discarded == [{"closed": 4}, {}, {"unconnected": 3}, {"unconnected": 7}]


def test_nothing_is_delivered_that_came_after_the_last_session():
    peer = Stream()
    said = play(
        build(HERE / "play.c"), f"connect {peer.address}", "many 1", "close", "flush 1000", "many 1",
        "flush 1000",
    )  # fmt: skip
    assert said[-2:] == ["flush 0", "flush -1"]
    peer.close()


@pytest.mark.parametrize("before", ["", "many 2;"], ids=["at once", "after a session of its own"])
def test_a_child_that_connects_to_its_parents_file_has_a_file_of_its_own(tmp_path, before):
    connect = f"connect file://{tmp_path}/run.heph"
    again = f"fork {before}close;{connect};many 3;close"
    play(build(HERE / "play.c"), connect, "many 5", again, "many 7", "close")
    heard = {path.name: hear(path.read_bytes()) for path in tmp_path.iterdir()}
    assert len(heard.pop("run.heph").events) == 12
    (child,) = heard.values()
    assert len(child.events) == (5 if before else 3)


def test_a_program_that_is_told_nothing_counts_nothing(tmp_path):
    """Without an address, everything stays off, as cheap as it was."""
    said = play(
        build(HERE / "play.c"),
        "many 3",
        "connect -",
        "many 5",
        "say off",
        "close",
        "many 7",
        "say off",
    )
    assert said[1:] == ["off 3", "off 3"]


def heard_of(peer):
    return hear(b"".join(peer.close()))
