"""A C program and its collector: absent, slow, restarted, gone; and programs that end in every way.

Whatever happens, each number below the goodbye's is an event that came or one that a report names.
"""

from __future__ import annotations

import signal
import socket
import struct
import subprocess

import pytest

from tests.c.building import CLIENT, HERE, Program, build, play
from tests.c.listening import Heard, Stream, Udp, attributes, hear
from tests.system.collector import until

PLAY = HERE / "play.c"


@pytest.fixture(scope="module")
def program():
    return build(PLAY)


@pytest.fixture
def clients(program):
    """A function that starts a program; it is gone at the end of the test."""
    started = []

    def start(**environ):
        started.append(Program(program, **environ))
        return started[-1]

    yield start
    for client in started:
        client.close()


def listen(kind: str, directory, **options):
    if kind == "udp":
        return Udp(**options)
    return Stream(directory / "socket" if kind == "unix" else None, **options)


def heard_by(peer) -> Heard:
    """All that came to a peer, in the order of connections."""
    data = peer.close()
    return hear(data if isinstance(data, bytes) else b"".join(data))


def indices(heard: Heard) -> list[int]:
    return [attributes(event)[0][2] for event in heard.events if event.name == "many"]


UNREAD = "110 tailrace_close ended before the collector had read everything: Connection timed out"
KINDS = pytest.mark.parametrize("kind", ["udp", "tcp", "unix"])
THREAD = pytest.mark.parametrize("options", ["", "no_thread"])


@KINDS
@THREAD
def test_all_that_is_emitted_arrives_and_the_end_is_said(program, tmp_path, kind, options):
    peer = listen(kind, tmp_path)
    assert play(program, f"connect {peer.address} threads=8 {options}", "many 20000") == [
        "connect 0 0"
    ]
    heard = heard_by(peer)
    assert indices(heard) == list(range(20000))
    heard.check_complete()
    assert len(heard.sessions) == 1
    assert heard.metadata[-1] == (
        "tailrace.goodbye", {"streams": {"1": 20000}, "more": False, "discarded": {}},
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_the_goodbye_of_many_streams_has_numbered_parts(program, tmp_path, kind):
    peer = listen(kind, tmp_path)
    streams = range(10**9, 10**9 + 200)
    course = [line for number in streams for line in (f"stream {number}", "event 61")]
    play(program, f"connect {peer.address} threads=300 linger=20000", *course)
    heard = heard_by(peer)
    heard.check_complete()
    assert heard.final == {str(stream): 1 for stream in streams}
    said = heard.said("tailrace.goodbye")
    assert [bye["part"] for bye in said] == [0, 1, 2]
    assert [bye["more"] for bye in said] == [True, True, False]


def test_the_session_says_who_it_is(program):
    peer = Udp()
    play(program, f'connect {peer.address} process=sol"v\\er', "event 61")
    data = peer.close()
    (session,) = hear(data).said("tailrace.session")
    assert data[8:15] == b"\0\5epoch"
    assert peer.datagrams[0] == data[: len(peer.datagrams[0])]
    assert session["process"] == 'sol"v\\er'
    assert session["host"] == socket.gethostname()
    assert session["acknowledge"] is False
    assert len(bytes.fromhex(session["session"])) == 16
    assert session["client"].startswith("tailrace-c ")


def test_datagrams_are_packed_to_what_the_path_takes(program):
    for host, most in (("127.0.0.1", 16384), ("0.0.0.0", 1432)):  # noqa: S104 - no loopback address
        peer = Udp()
        said = play(program, f"connect udp://{host}:{peer.port}", "many 5000", "flush 5000")
        assert said == ["connect 0 0", "flush 0"]
        heard = heard_by(peer)
        sizes = sorted(map(len, peer.datagrams))
        assert most - 100 < sizes[-1] <= most
        heard.check_complete()


def test_a_datagram_session_is_announced_again(clients):
    peer = Udp()
    client = clients()
    client.ask(f"connect {peer.address}")
    until(lambda: b"".join(peer.datagrams).count(b"tailrace.session") > 1, "another announcement")
    client.end()
    heard = heard_by(peer)
    assert len(heard.sessions) == 1


@KINDS
def test_the_last_events_before_a_quiet_time_are_sent(clients, tmp_path, kind):
    """Nobody calls flush, and nothing more is emitted; then the program is killed."""
    peer = listen(kind, tmp_path)
    client = clients()
    client.tell(f"connect {peer.address}", "many 10", "sleep 300", "many 1")
    received = peer.datagrams if kind == "udp" else peer.received
    until(lambda: b"".join(received).count(b"many") == 11, "the events")
    client.tell("kill")
    assert client.process.wait() == -signal.SIGKILL
    client.process.communicate()
    heard = heard_by(peer)
    assert len(heard.events) == 11
    assert not heard.said("tailrace.goodbye")


@KINDS
def test_a_collector_that_comes_later_gets_everything(clients, tmp_path, kind):
    taken = listen(kind, tmp_path)
    address = taken.address
    port = {} if kind == "unix" else {"port": taken.port}
    taken.close()
    (tmp_path / "socket").unlink(missing_ok=True)
    client = clients()
    assert client.ask(f"connect {address}") == "connect 0 0"
    client.tell("many 1000")
    assert client.ask("flush 50") == "flush -1"
    peer = listen(kind, tmp_path, **port)
    assert client.ask("flush 20000") == "flush 0"
    client.end("many 1000")
    heard = heard_by(peer)
    assert indices(heard) == [*range(1000), *range(1000)]
    heard.check_complete()


def test_datagrams_that_find_nobody_any_more_are_not_delivered(clients):
    peer = Udp()
    client = clients()
    assert client.ask(f"connect {peer.address}") == "connect 0 0"
    client.tell("many 10")
    assert client.ask("flush 5000") == "flush 0"
    peer.close()
    client.tell("many 10")
    assert client.ask("flush 5000") == "flush -1"
    client.tell("many 10")
    assert client.ask("flush 100") == "flush -1"


def test_who_is_told_where_to_send_and_never_connects_delivers_nothing(clients):
    peer = Udp()
    assert clients(TAILRACE_ADDRESS=peer.address).ask("flush 10") == "flush -1"
    assert clients(TAILRACE_ADDRESS="").ask("flush 10") == "flush -1"
    wrong = clients(TAILRACE_ADDRESS="nowhere")
    assert wrong.ask("connect -").startswith("connect -1")
    assert wrong.ask("flush 10") == "flush -1"
    connected = clients(TAILRACE_ADDRESS=peer.address)
    assert connected.ask("connect -") == "connect 0 0"
    connected.tell("close")
    assert connected.ask("flush 10") == "flush 0"
    peer.close()


@THREAD
def test_a_goodbye_that_is_lost_with_its_connection_is_said_again(clients, options):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        client = clients()
        client.ask(f"connect tcp://127.0.0.1:{listener.getsockname()[1]} linger=20000 {options}")
        client.tell("many 10", "exit 0")
        connection, _ = listener.accept()
        data = b""
        while b"tailrace.goodbye" not in data:
            data += connection.recv(65536)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        connection, _ = listener.accept()
        again = b""
        with connection:
            connection.settimeout(60)
            while piece := connection.recv(65536):
                again += piece
        assert client.process.wait(60) == 0
    assert hear(again).said("tailrace.goodbye") == hear(data).said("tailrace.goodbye")
    assert hear(again).sessions == hear(data).sessions


@pytest.mark.parametrize("kind", ["tcp", "unix"])
@THREAD
def test_a_close_says_whether_the_collector_has_read_the_end(clients, tmp_path, kind, options):
    """The kernel takes everything at once. A collector that never reads, and one that reads only when the close waits."""
    peer = listen(kind, tmp_path, wait=True)
    client = clients()
    for linger, said in [(1, UNREAD), (20000, "0 ")]:
        client.ask(f"connect {peer.address} linger={linger} {options}")
        client.tell("many 10")
        assert client.ask("flush 20000") == "flush 0"
        client.tell("close")
        if linger > 1:
            peer.may_read.set()
        assert client.ask("wrong") == said
    client.end()
    assert [hear(data).final for data in peer.close()] == [{"1": 10}] * 2


def test_a_close_calls_a_file_written_but_forgets_no_error_of_datagrams(program, tmp_path):
    nobody = Udp()
    address = nobody.address
    nobody.close()
    file = play(program, f"connect file://{tmp_path}/t", "many 10", "close", "wrong")
    assert file[-1] == "0 "
    lost = play(program, f"connect {address}", "many 10", "flush 5000", "close", "wrong")
    assert lost[-1].startswith("111 ")


def test_a_collector_that_never_comes_costs_the_newest(program):
    taken = Stream()
    address = taken.address
    taken.close()
    *_, said = play(
        program, f"connect {address} memory=65536 threads=1 linger=1", "many 5000", "say x"
    )
    assert 3500 < int(said.split()[1]) < 5000


@pytest.mark.parametrize("kind", ["tcp", "unix"])
@THREAD
def test_a_slow_collector_is_never_waited_for(clients, tmp_path, kind, options):
    """It reads only when all is emitted. Numbers that did not fit are named one by one."""
    peer = listen(kind, tmp_path, wait=True, room=4096)
    client = clients()
    client.ask(f"connect {peer.address} memory=262144 threads=2 linger=20000 {options}")
    client.tell("many 200000")
    assert int(client.ask("say x").split()[1]) > 10_000
    peer.may_read.set()
    assert client.ask("flush 20000") == "flush 0"
    client.tell("many 1000")
    client.end()
    heard = heard_by(peer)
    heard.check_complete()
    assert indices(heard)[-1000:] == list(range(1000))
    for event in heard.events:
        assert event.counter % 200_000 == attributes(event)[0][2]


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_discards_at_the_very_end_are_named_too(clients, tmp_path, kind):
    peer = listen(kind, tmp_path, wait=True, room=4096)
    client = clients()
    client.ask(f"connect {peer.address} memory=65536 threads=2 linger=20000")
    client.tell("many 200000")
    assert int(client.ask("say x").split()[1]) > 10_000
    peer.may_read.set()
    client.end()
    heard = heard_by(peer)
    heard.check_complete()


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_restarted_collector_hears_the_same_session_go_on(clients, tmp_path, kind):
    """All was read when the first one hung up, so nothing is missing, although nothing is resent."""
    first = listen(kind, tmp_path)
    client = clients()
    client.ask(f"connect {first.address}")
    client.tell("many 1000")
    assert client.ask("flush 5000") == "flush 0"
    until(lambda: b"".join(first.received).count(b"many") == 1000, "the first thousand")
    port = {} if kind == "unix" else {"port": first.port}
    first.hang_up()
    (tmp_path / "socket").unlink(missing_ok=True)
    client.tell("many 500")
    assert client.ask("say gone") == "gone 0"
    second = listen(kind, tmp_path, **port)
    assert client.ask("flush 20000") == "flush 0"
    client.end("many 500")
    before, after = hear(bytes(first.received[0])), heard_by(second)
    assert before.sessions == after.sessions
    assert [*indices(before), *indices(after)] == [*range(1000), *range(500), *range(500)]
    assert after.final == {"1": 2000}
    assert after.numbers()["1"] == list(range(1000, 2000))


def test_connections_that_break_all_the_time_never_tear_an_event(clients):
    """Each connection is a run of whole packets that may end in half of one; the numbers go on."""
    port = 0
    seen: list[int] = []
    client = None
    for turn in range(5):
        peer = Stream(port=port, wait=turn % 2 == 1, room=4096)
        port = peer.port
        if client is None:
            client = clients()
            client.ask(f"connect {peer.address} memory=1000000 threads=1")
        client.tell("many 20000")
        until(lambda p=peer: len(p.received) > 0, "a connection")
        client.ask("say x")
        peer.may_read.set()
        peer.hang_up()
        for data in peer.received:
            seen += whole_numbers(bytes(data))
    last = Stream(port=port)
    assert client.ask("flush 20000") == "flush 0"
    client.end("many 10")
    heard = heard_by(last)
    seen += heard.numbers()["1"]
    assert sorted(seen) == seen, "the numbers go up"
    assert heard.final["1"] == 100_010


def whole_numbers(data: bytes) -> list[int]:
    """Return the numbers of the whole events of a connection that was cut; and it begins as it should."""
    at, numbers = 0, []
    while len(data) - at >= 8:
        size = int.from_bytes(data[at + 4 : at + 8], "big")
        if at + size > len(data):
            break
        if data[at : at + 4] == b"\xc1\xfc\x1f\xb7":
            numbers.append(int.from_bytes(data[at + 12 : at + 16], "big"))
        at += size
    hear(data[:at])
    assert not data or data[8:15] == b"\0\5epoch"
    return numbers


@KINDS
def test_sixteen_threads_each_keep_their_order(program, tmp_path, kind):
    peer = listen(kind, tmp_path)
    play(program, f"connect {peer.address} threads=16 linger=20000", "threads 16 3000")
    heard = heard_by(peer)
    heard.check_complete()
    by_thread = {}
    for event in heard.events:
        (_, _, thread), (_, _, index) = attributes(event)
        by_thread.setdefault((event.stream, thread), []).append(index)
    # A thread that began when another had ended goes on with its stream.
    assert sorted(thread for _, thread in by_thread) == list(range(16))
    assert all(found == list(range(3000)) for found in by_thread.values())


def test_threads_that_come_and_go_share_few_streams(program, tmp_path):
    peer = Stream()
    play(program, f"connect {peer.address} threads=4", "event 61", "short 300")
    heard = heard_by(peer)
    heard.check_complete()
    assert heard.final == {"1": 1, "2": 300}


def test_more_threads_than_rings_are_counted(program):
    peer = Stream()
    *_, said = play(program, f"connect {peer.address} threads=1", "event 61", "short 3", "say x")
    assert said == "x 3"
    heard = heard_by(peer)
    assert heard.final == {"1": 1}
    assert heard.said("tailrace.goodbye")[0]["discarded"] == {"full": 3}


def test_threads_may_share_a_stream(program):
    peer = Stream()
    play(program, f"connect {peer.address} threads=2", "shared 8 2000 42")
    heard = heard_by(peer)
    heard.check_complete()
    assert heard.numbers() == {"42": list(range(16000))}


def test_a_number_taken_twice_is_shared(program):
    """The program chooses the number that another thread got by itself."""
    peer = Stream()
    play(program, f"connect {peer.address}", "event 61", "stream 1", "event 62", "own", "event 63")
    heard = heard_by(peer)
    heard.check_complete()
    assert sum(heard.final.values()) == 3


def test_a_handler_that_emits_amid_an_event_is_counted(program):
    peer = Stream()
    said = play(program, f"connect {peer.address} threads=1", "interrupted 100000", "say x")
    handled, discarded = int(said[1].split()[1]), int(said[2].split()[1])
    heard = heard_by(peer)
    heard.check_complete()
    counts = heard.said("tailrace.goodbye")[0]["discarded"]
    assert sum(counts.values()) == discarded
    names = [event.name for event in heard.events]
    assert names.count("handler") + names.count("many") + discarded == handled + 100_000
    assert names.count("handler") > 0


def test_signals_before_a_session_s_first_event_has_its_stream(tmp_path):
    """The header sleeps where the thread still has the stream of its last session, so that the timer fires there."""
    place = "static tlr_stream *tlr_take_stream(tlr_local *thread) {\n    int saved = errno;\n"
    pause = "    struct timespec pause = {0, 2000000};\n    while (nanosleep(&pause, &pause)) continue;\n"
    header = (CLIENT / "tailrace.h").read_text()
    assert header.count(place) == 1
    (tmp_path / "tailrace.h").write_text(header.replace(place, place + pause))
    peer = Stream()
    client = Program(build(HERE / "play.c", f"-iquote{tmp_path}"))
    for _ in range(3):
        client.ask(f"connect {peer.address} threads=1 linger=20000")
        client.tell("interrupted 3", "close")
    client.end()
    heard = [hear(data) for data in peer.close()]
    assert len(heard) == 3
    for each in heard:
        assert each.said("tailrace.goodbye")[-1]["discarded"]["nested"] > 0
        each.check_complete()


@THREAD
def test_an_exit_in_a_handler_amid_an_event_does_not_hang(program, options):
    """The exit says the end, amid an event, too."""
    peer = Stream()
    for _ in range(15):
        play(program, f"connect {peer.address} threads=1 {options}", "exiting", code=7)
    sessions = {}
    for heard in map(hear, peer.close()):  # after a call that was sending, on a new connection
        sessions.setdefault(heard.sessions[0], []).append(heard)
    assert len(sessions) == 15
    for parts in sessions.values():
        assert parts[-1].said("tailrace.goodbye")
        stored = {event.counter for part in parts for event in part.events}
        discarded = parts[-1].said("tailrace.goodbye")[-1]["discarded"].values()
        assert sum(discarded) in {0, 1}
        assert stored == set(range(len(stored)))
        assert parts[-1].final in ({"1": len(stored)}, {})


def test_cancelled_threads_leave_nothing_locked(program):
    peer = Stream()
    play(program, f"connect {peer.address} threads=2 linger=20000", "cancelled 50", "many 100")
    heard = heard_by(peer)
    heard.check_complete()
    assert indices(heard) == list(range(100))


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_the_end_is_said_to_a_collector_that_was_away(clients, tmp_path, kind):
    """All events were sent to the first one; the second one hears where they ended."""
    first = listen(kind, tmp_path)
    client = clients()
    client.ask(f"connect {first.address} linger=20000")
    client.tell("many 10")
    assert client.ask("flush 5000") == "flush 0"
    port = {} if kind == "unix" else {"port": first.port}
    first.hang_up()
    (tmp_path / "socket").unlink(missing_ok=True)
    second = listen(kind, tmp_path, **port)
    client.end("close")
    heard = heard_by(second)
    assert heard.final == {"1": 10}
    assert heard.sessions == hear(bytes(first.received[0])).sessions


def test_an_event_longer_than_its_ring_is_named(program):
    peer = Stream()
    long = ("61" * 5000) + ":u:1"
    play(
        program,
        f"connect {peer.address} memory=8192 threads=1",
        "event 61",
        f"event 62 {long}",
        "event 63",
    )
    heard = heard_by(peer)
    heard.check_complete()
    assert heard.ranges == [[1, 1, 1]]
    assert heard.said("tailrace.goodbye")[0]["discarded"] == {"oversize": 1}


def test_an_event_longer_than_a_datagram_is_named(program):
    peer = Udp()
    most = f"event 61 61:s:{'78' * 65458}"
    play(
        program,
        f"connect {peer.address} memory=1000000 threads=1",
        most,
        f"{most} 61:u:1",
        "event 62",
    )
    heard = heard_by(peer)
    heard.check_complete()
    assert max(map(len, peer.datagrams)) == 65507
    assert heard.ranges == [[1, 1, 1]]


@KINDS
def test_a_forked_child_is_a_session_of_its_own(clients, tmp_path, kind):
    peer = listen(kind, tmp_path)
    client = clients()
    client.ask(f"connect {peer.address}")
    client.tell("many 100")
    assert client.ask("fork many 50;substream 3;many 50") == "child 0"
    client.end("many 100")
    sessions = sessions_of(peer, kind)
    assert len(sessions) == 2
    assert sorted(heard.final["1"] for heard in sessions) == [100, 200]
    pids = {heard.said("tailrace.session")[0]["pid"] for heard in sessions}
    assert len(pids) == 2
    for heard in sessions:
        heard.check_complete()


def sessions_of(peer, kind: str) -> list[Heard]:
    """By connection, or for datagrams by the address they came from."""
    data = peer.close()
    if kind != "udp":
        return [hear(one) for one in data]
    return [hear(b"".join(datagrams)) for datagrams in peer.by_sender().values()]


def test_a_child_that_emits_nothing_says_nothing(clients):
    peer = Stream()
    client = clients()
    client.ask(f"connect {peer.address}")
    client.tell("many 10")
    assert client.ask("fork say x") == "x 0"
    client.end()
    (data,) = peer.close()
    hear(data).check_complete()


def test_a_child_writes_to_a_file_of_its_own(program, tmp_path):
    path = tmp_path / "t.heph"
    play(program, f"connect file://{path}", "many 10", "fork many 5", "many 10")
    (other,) = tmp_path.glob("t.heph.*")
    assert hear(path.read_bytes()).final == {"1": 20}
    child = hear(other.read_bytes())
    assert child.final == {"1": 5}
    assert other.name == f"t.heph.{child.said('tailrace.session')[0]['pid']}"


@pytest.mark.parametrize("before", [[], ["close"]])
def test_a_child_states_what_came_after_its_close_in_a_file_of_its_own(program, tmp_path, before):
    path = tmp_path / "t.heph"
    play(program, f"connect file://{path}", "many 10", *before, "fork close;many 3")
    (other,) = tmp_path.glob("t.heph.*")
    assert len(hear(path.read_bytes()).sessions) == 1
    assert hear(path.read_bytes()).final == {"1": 10}
    child = hear(other.read_bytes())
    assert child.said("tailrace.goodbye")[0]["discarded"] == {"closed": 3}
    assert other.name == f"t.heph.{child.said('tailrace.session')[0]['pid']}"


def test_a_file_is_gone_on_with_by_the_next_run(program, tmp_path):
    path = tmp_path / "a b"
    for _ in range(2):
        play(program, f"connect file://{tmp_path}/a%20b", "many 3")
    heard = hear(path.read_bytes())
    assert len(heard.sessions) == 2
    assert heard.numbers() == {"1": [0, 1, 2, 0, 1, 2]}


def test_close_and_connect_again_is_another_session(program, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    said = play(
        program, f"connect file://{one}", f"connect file://{two}", "many 3", "close", "many 3",
        f"connect file://{two}", "many 2", "stream 9", "many 1",
    )  # fmt: skip
    assert said[:2] == ["connect 0 0", "connect -1 114"]
    first, second = hear(one.read_bytes()), hear(two.read_bytes())
    assert first.final == {"1": 3}
    assert second.final == {"1": 2, "9": 1}
    assert first.sessions != second.sessions


@pytest.mark.parametrize(
    "address",
    [
        "udp://", "tcp://host", "tcp://host:", "tcp://:1", "tcp://host:70000", "tcp://host:0", "tcp://h:1x",
        "http://host:80", "unix://relative", "unix:///" + "x" * 200, "file://", "file:///", "nonsense", "udp://h:1/path",
        "file:///a%00b",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused_and_all_stays_off(program, address):
    assert play(program, f"connect {address}", "many 10", "say x") == ["connect -1 22", "x 10"]


def test_a_host_without_an_address_is_refused(program):
    (said,) = play(program, "connect tcp://tailrace.invalid:1")
    assert said == "connect -1 113"


def test_nothing_configured_is_off(program):
    assert play(program, "connect -", "many 10", "flush 10", "close", "say x") == [
        "connect 0 0", "flush -1", "x 0",
    ]  # fmt: skip
    assert play(program, "connect -", "many 3", TAILRACE_ADDRESS="") == ["connect 0 0"]


def test_the_environment_says_where_to(program, tmp_path):
    play(program, "connect -", "many 3", TAILRACE_ADDRESS=f"file://{tmp_path}/t")
    assert hear((tmp_path / "t").read_bytes()).final == {"1": 3}


TWO_FAMILIES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>

typedef int resolver(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    resolver *resolve = (resolver *)dlsym(RTLD_NEXT, "getaddrinfo");
    int failed = resolve("::1", service, hints, found);
    (void)node;
    return failed ? failed : resolve("127.0.0.1", service, hints, &(*found)->ai_next);
}
"""


@pytest.mark.parametrize("kind", ["udp", "tcp"])
@THREAD
def test_the_addresses_of_a_host_are_tried_in_turn(program, tmp_path, kind, options):
    """Every host has ::1, where nobody listens, and then 127.0.0.1, as `localhost` where IPv6 comes first."""
    source = tmp_path / "families.c"
    source.write_text(TWO_FAMILIES)
    families = build(source, "-std=gnu99", "-shared", "-fPIC", "-Wno-pedantic")
    peer = listen(kind, tmp_path)
    address = peer.address.replace("127.0.0.1", "localhost")
    said = play(
        program, f"connect {address} {options}", "many 1000", "flush 10000", "many 10", LD_PRELOAD=str(families)
    )  # fmt: skip
    assert said == ["connect 0 0", "flush 0"]
    heard = heard_by(peer)
    assert heard.final == {"1": 1010}
    assert len(heard.numbers()["1"]) == 1010


def test_a_port_that_nobody_listens_on_is_not_ourselves(clients):
    """Connecting to a free port of the ephemeral range from itself succeeds now and then."""
    taken = Stream()
    port = taken.port
    taken.close()
    client = clients()
    client.ask(f"connect tcp://127.0.0.1:{port}")
    client.tell("many 10")
    assert client.ask("flush 1500") == "flush -1"


HOW = pytest.mark.parametrize("how", ["files", "sockets", "copies"])


@KINDS
@THREAD
@HOW
def test_a_program_that_closes_every_descriptor_keeps_its_own(
    program, tmp_path, kind, options, how
):
    """Its own files and connections have the numbers that were the client's: one connection, one pipe."""
    peer = listen(kind, tmp_path)
    said = play(
        program, f"connect {peer.address} {options}", "many 10", "flush 10000", f"take {how} {tmp_path}",
        "many 3000", "flush 10000", "wrong", "close", "harm", "say end",
    )  # fmt: skip
    assert said[1] == said[2] == "flush 0"
    assert said[3] in {"0 ", "104 the program closed the descriptor of its tracing"}
    assert said[4:] == ["harm 0", "end 0"]
    heard = heard_by(peer)
    assert len(heard.sessions) == 1
    assert heard.numbers() == {"1": list(range(3010))}
    assert heard.final == {"1": 3010}


@THREAD
@HOW
def test_a_file_is_gone_on_with_after_its_descriptor_was_closed(program, tmp_path, options, how):
    path = tmp_path / "t.heph"
    said = play(
        program, f"connect file://{path} {options}", "many 10", "flush 10000", f"take {how} {tmp_path}",
        "many 3000", "flush 10000", "close", "harm",
    )  # fmt: skip
    assert said[1:] == ["flush 0", "flush 0", "harm 0"]
    heard = hear(path.read_bytes())
    assert heard.numbers() == {"1": list(range(3010))}
    assert len(heard.said("tailrace.session")) == 1
    assert heard.final == {"1": 3010}


@HOW
def test_what_nobody_takes_after_the_descriptors_were_closed_is_not_called_sent(
    clients, tmp_path, how
):
    peer = Stream(tmp_path / "socket")
    client = clients()
    client.ask(f"connect {peer.address} linger=1")
    client.tell("many 10")
    assert client.ask("flush 10000") == "flush 0"
    (tmp_path / "socket").unlink()
    client.tell(f"take {how} {tmp_path}", "many 30")
    assert client.ask("flush 100") == "flush -1"
    client.tell("close")
    assert client.ask("harm") == "harm 0"


@HOW
def test_a_child_of_a_program_that_closed_every_descriptor_keeps_its_own(program, tmp_path, how):
    peer = Stream()
    said = play(
        program, f"connect {peer.address}", "many 10", "flush 10000", f"take {how} {tmp_path}",
        "fork many 5;close;harm",
    )  # fmt: skip
    assert said[-2:] == ["harm 0", "child 0"]
    assert sorted(hear(data).final["1"] for data in peer.close() if hear(data).final) == [5, 10]


@pytest.mark.parametrize("kind", ["udp", "tcp", "unix", "file"])
def test_no_descriptor_takes_the_place_of_a_closed_standard_one(program, tmp_path, kind):
    peer = None if kind == "file" else listen(kind, tmp_path)
    address = peer.address if peer else f"file://{tmp_path}/t.heph"
    script = f"connect {address}\nmany 3\nflush 10000\nstandard\n"
    said = subprocess.run(
        ["sh", "-c", f"exec {program} 2>&-"],
        input=script,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert said[-2:] == ["flush 0", "standard 1 1 0"]
    if peer:
        peer.close()
