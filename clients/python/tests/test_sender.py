"""Test the sender with a recorder and real sockets: which data arrives, and how much time sending takes from the
program."""

from __future__ import annotations

import _thread
import json
import os
import queue
import select
import socket
import threading
import time
from math import inf

import pytest

from clients.python.tests.collectors import (
    Answering,
    TcpCollector,
    UdpCollector,
    option,
    until,
)
from clients.python.tests.reader import Event, events, packets
from tailrace_client import Emitter, _link, _sender, _sockets, compiled

SCHEMES = ["tcp", "tls", "unix", "udp"]


@pytest.fixture
def answering(tmp_path, authority, monkeypatch):
    """Yield a function that creates an answering collector, which is not started yet. The collector is killed at the
    end of the test."""
    made = []
    monkeypatch.setenv("TAILRACE_TLS_AUTHORITY", str(authority.file))

    def make(scheme, **options):
        place = tmp_path / "socket" if scheme == "unix" else None
        if scheme == "tls":
            options.setdefault("context", authority.server())
        if scheme in {"tcp", "tls"} and "place" not in options:
            with socket.create_server(("127.0.0.1", 0)) as free:
                place = free.getsockname()
        if scheme == "udp":
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
                free.bind(("127.0.0.1", 0))
                place = free.getsockname()
        made.append(Answering(scheme, place, **options))
        return made[-1]

    yield make
    for collector in made:
        collector.kill()


@pytest.fixture
def emitters():
    """Yield a function that creates emitters. They are closed at the end of the test, without waiting."""
    made = []

    def make(address, **options):
        made.append(Emitter(address, **options))
        return made[-1]

    yield make
    for emitter in made:
        emitter.close(0)


def whole(session, **streams):
    """Return whether exactly the given streams have stored events, and all of their numbers."""
    expected = {int(name[1:]): set(range(count)) for name, count in streams.items()}
    return {s: n for s, n in session.stored.items() if n} == expected


@pytest.mark.parametrize("scheme", SCHEMES)
def test_flush_is_true_when_the_collector_has_said_that_all_is_durable(answering, emitters, scheme):
    collector = answering(scheme).start()
    emitter = emitters(collector.address, process="solver")
    for number in range(5000):
        emitter.event("x", number=number)
    assert emitter.flush(20)
    session = collector.only
    assert whole(session, s1=5000)
    assert session.announcements[0]["process"] == "solver"
    link = emitter._sender.link
    assert link.queue.kept_bytes == 0
    assert emitter.close(20)
    goodbye = session.goodbyes[-1]
    assert ("cost" in goodbye) == compiled
    assert goodbye.pop("cost", {"events": 5000})["events"] == 5000
    assert goodbye == {"streams": {"1": 5000}, "more": False, "discarded": {}}
    assert session.twice == 0


@pytest.mark.parametrize("scheme", SCHEMES)
def test_flush_is_false_as_long_as_that_is_not_said(answering, emitters, scheme):
    collector = answering(scheme).start()
    emitter = emitters(collector.address)
    emitter.event("x")
    assert emitter.flush(20)
    collector.mute = True
    emitter.event("y")
    assert not emitter.flush(0.3)
    collector.mute = False
    assert emitter.flush(20)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_collector_that_comes_late_gets_everything_once(answering, emitters, scheme):
    collector = answering(scheme)
    emitter = emitters(collector.address)
    for _ in range(3000):
        emitter.event("x")
    assert not emitter.flush(0.2)
    collector.start()
    assert emitter.close(20)
    assert whole(collector.only, s1=3000)
    assert collector.only.goodbyes[-1]["streams"] == {"1": 3000}


@pytest.mark.parametrize("process", ["p", "\u6a21" * 200])
def test_a_datagram_that_is_refused_before_the_next_one_is_sent_keeps_nobody(
    answering, emitters, monkeypatch, process
):
    """On one host, a refusal usually arrives before the next datagram. The next call reports the refusal, and sends
    nothing. Events share a datagram with the announcement of the session, however long the announcement is, and no
    datagram has fewer events because of it."""
    sent = []
    monkeypatch.setattr(_sockets, "LOCAL_DATAGRAM_BYTES", _sockets.DATAGRAM_BYTES)

    class Prompt(socket.socket):
        def send(self, data):
            size = super().send(data)
            sent.append(size)
            assert len(sent) < 5000, "it never ends"
            refusals = select.poll()
            refusals.register(self, 0)
            refusals.poll(0 if collector.thread else 1000)
            return size

    collector = answering("udp")
    monkeypatch.setattr(socket, "socket", Prompt)
    emitter = emitters(collector.address, process=process)
    for _ in range(2000):
        emitter.event("x")
    assert not emitter.flush(0.2)
    assert max(sent) <= _sockets.DATAGRAM_BYTES + 200 + 6 * len(process)
    monkeypatch.undo()
    collector.start()
    assert emitter.close(20)
    assert whole(collector.only, s1=2000)


def test_after_a_refusal_each_datagram_announces_the_session_until_an_answer_comes(
    emitters, monkeypatch
):
    """The number of refused announcements does not matter. If a datagram without an announcement came first,
    the collector would take it for a datagram of the client that had the address before."""
    monkeypatch.setattr(_link, "_RETRY_SECONDS", (0.005, 0.01))
    with UdpCollector() as collector:
        port = collector.socket.getsockname()[1]
    emitter = emitters(f"udp://127.0.0.1:{port}")
    for _ in range(6000):
        emitter.event("x")
    assert not emitter.flush(1)
    with UdpCollector(port) as collector:
        emitter.flush(0.5)
        received = announced_events(collector)
    assert len(received) > _link.ANNOUNCEMENTS
    assert all(received)


def test_where_no_answer_is_wanted_the_first_sockets_announce_the_session(emitters):
    with UdpCollector() as collector:
        emitter = emitters(collector.address, acknowledge=False)
        for _ in range(6000):
            emitter.event("x")
        assert emitter.flush(5)
        received = announced_events(collector)
    assert len(received) > _link.ANNOUNCEMENTS
    assert received == sorted(received, reverse=True)
    assert 1 < sum(received) <= _link.ANNOUNCEMENTS


def announced_events(collector):
    """Return, for each received datagram with events, whether it announces the session."""
    received = [packets(datagram) for datagram in collector.waiting()]
    return [
        any(not isinstance(p, Event) and p.name == "tailrace.session" for p in some)
        for some in received
        if any(isinstance(p, Event) for p in some)
    ]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_collector_that_is_killed_again_and_again_gets_everything(answering, emitters, scheme):
    """At each kill, the collector loses the events that it has not acknowledged."""
    collector = answering(scheme, every=0.05)
    emitter = emitters(collector.address)
    for _ in range(5):
        collector.start()
        for _ in range(40):
            emitter.event("x", text="y" * 50)
            time.sleep(0.002)
        collector.kill()
        for _ in range(10):
            emitter.event("x")
            time.sleep(0.002)
    collector.start()
    assert emitter.close(20)
    assert whole(collector.only, s1=250)
    turns = [said["turn"] for said in collector.only.announcements]
    assert turns == sorted(turns)
    assert turns[-1] > 0


def test_after_a_reconnection_only_what_is_not_durable_is_sent_again(answering, emitters):
    collector = answering("tcp").start()
    emitter = emitters(collector.address)
    for _ in range(1000):
        emitter.event("x")
    assert emitter.flush(20)
    collector.kill()
    collector.start()
    for _ in range(1000):
        emitter.event("x")
    assert emitter.flush(20)
    assert whole(collector.only, s1=2000)
    assert collector.only.twice == 0


def test_lost_sockets_are_sent_again_and_so_is_a_lost_tail(answering, emitters):
    collector = answering("udp", lose=lambda number: number % 3 == 1)
    collector.start()
    emitter = emitters(collector.address)
    for number in range(20):
        for _ in range(100):
            emitter.event("x", number=number, text="y" * 100)
        time.sleep(0.005)
    assert emitter.flush(20)
    assert whole(collector.only, s1=2000)
    assert emitter.close(20)
    assert collector.only.goodbyes


def test_an_answer_that_is_overtaken_by_a_later_one_delivers_nothing(emitters):
    with UdpCollector() as collector:
        emitter = emitters(collector.address)
        for _ in range(100):
            emitter.event("x")
        session, numbers = None, []
        while len(numbers) < 100:
            data, peer = collector.socket.recvfrom(65536)
            for packet in packets(data):
                if isinstance(packet, Event):
                    numbers.append(packet.counter)
                elif packet.name == "tailrace.session":
                    session = json.loads(packet.option)["session"]
        for said in (
            {"streams": {"1": 100}, "holes": [[1, 0, 50]]},
            {"streams": {"1": 0}, "holes": []},
        ):
            ack = {"session": session, "turn": 0, "goodbye": False} | said
            collector.socket.sendto(option("tailrace.ack", ack), peer)
        assert not emitter.flush(0.5)
        again = [e.counter for d in collector.waiting() for e in packets(d) if isinstance(e, Event)]
    assert set(again) >= set(range(50))


def test_a_collector_whose_first_answers_are_lost_is_asked_before_it_is_taken_for_silent(
    answering, emitters
):
    collector = answering("udp", lose=lambda number: number < 3)
    collector.start()
    emitter = emitters(collector.address)
    emitter.event("x")
    until(lambda: emitter._sender.link.queue.kept_bytes)
    link = emitter._sender.link
    link._contact.greeted_at = -1e9  # as if the wait for an answer had begun long ago
    assert emitter.flush(20)
    assert whole(collector.only, s1=1)


@pytest.mark.parametrize("scheme", ["tcp", "tls", "unix"])
def test_a_goodbye_that_is_lost_with_its_connection_is_said_again(answering, emitters, scheme):
    collector = answering(scheme).start()
    emitter = emitters(collector.address)
    emitter.event("x")
    assert emitter.flush(20)
    collector.resets = 1
    assert emitter.close(5)
    assert collector.only.goodbyes == [{"streams": {"1": 1}, "more": False, "discarded": {}}]
    assert collector.resets == 0


def test_what_a_small_buffer_has_forgotten_and_the_network_lost_is_not_delivered(
    answering, emitters
):
    collector = answering("udp", lose=lambda number: number == 5)
    collector.mute = True
    collector.start()
    emitter = emitters(collector.address, buffer_bytes=2**16)
    for burst in range(20):
        for _ in range(50):
            emitter.event("x", text="y" * 100)
        count = 50 * (burst + 1)
        until(lambda count=count: emitter._sender.link.queue.sent.get(1) == count)
    until(lambda: len(collector.only.stored[1]) > 900)
    collector.mute = False
    assert not emitter.flush(20)
    missing = set(range(1000)) - collector.only.stored[1]
    assert missing
    assert emitter.discarded == dict.fromkeys(emitter.discarded, 0) | {"lost": len(missing)}
    assert not emitter.close(20)
    session = collector.only
    ranges = [tuple(r) for report in session.reports for r in report["ranges"]]
    assert missing == {n for _, first, count in ranges for n in range(first, first + count)}
    assert session.goodbyes[-1]["discarded"] == {"lost": len(missing)}
    assert not emitter.close()


def test_sockets_slow_down_while_answers_come_and_nothing_is_lost(answering, emitters):
    collector = answering("udp").start()
    emitter = emitters(collector.address, buffer_bytes=2**20)
    emitter.event("x")
    assert emitter.flush(20)
    link = emitter._sender.link
    most = 0
    for _ in range(200):
        for _ in range(50):
            emitter.event("x", text="y" * 100)
        most = max(most, link.queue.in_flight_bytes)
        time.sleep(0.001)
    assert emitter.flush(20)
    assert most <= 2**20 / 2 + 2**16
    assert not any(emitter.discarded.values())
    assert whole(collector.only, s1=10_001)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    "answer",
    [
        b"garbage, garbage, garbage",
        b"\x75\xd1\x1d\x4d\xff\xff\xff\xff" * 100,
        option("tailrace.ack", {"session": "0" * 32, "turn": 0, "streams": {"1": 100}}),
        option("tailrace.ack", [[]]),
        b"\x75\xd1\x1d\x4d\x00\x00\x00\x10\x00\x0ctail",
        os.urandom(5000),
    ],
    ids=["text", "long", "stranger", "list", "cut", "random"],
)
def test_hostile_answers_free_nothing_and_stop_nothing(
    answering, emitters, scheme, answer, monkeypatch
):
    collector = answering(scheme).start()
    monkeypatch.setattr("clients.python.tests.collectors.option", lambda *_: answer)
    emitter = emitters(collector.address)
    for _ in range(100):
        emitter.event("x")
    until(lambda: collector.sessions and whole(collector.only, s1=100))
    link = emitter._sender.link
    assert link.dialogue.answered == -1
    assert link.queue.kept_bytes > 0
    emitter.event("y")
    assert not emitter.close(0.2)
    until(lambda: whole(collector.only, s1=101))
    assert emitter.discarded["closed"] == 101


def test_an_answer_that_is_ahead_of_what_was_sent_frees_nothing(answering, emitters, monkeypatch):
    collector = answering("tcp").start()
    lies = iter(range(1000, 2**31, 10**6))
    monkeypatch.setattr(
        "clients.python.tests.collectors.Session.answer",
        lambda self, id_, turn: {"session": id_, "turn": turn, "streams": {"1": next(lies)}},
    )
    emitter = emitters(collector.address)
    for _ in range(100):
        emitter.event("x")
    link = emitter._sender.link
    until(lambda: link.dialogue.answered == 0)
    assert not emitter.flush(0.2)
    assert link.queue.kept_bytes > 0


@pytest.fixture
def deaf(tmp_path):
    """Yield a function that creates the socket of a stopped collector: the kernel accepts connections and receives
    data, but no process reads. The function also returns the address."""
    made = []

    def make(scheme):
        family = socket.AF_UNIX if scheme == "unix" else socket.AF_INET
        made.append(
            socket.socket(family, socket.SOCK_DGRAM if scheme == "udp" else socket.SOCK_STREAM)
        )
        made[-1].bind(str(tmp_path / "deaf") if scheme == "unix" else ("127.0.0.1", 0))
        if scheme != "udp":
            made[-1].listen()
        name = made[-1].getsockname()
        return f"unix://{name}" if scheme == "unix" else f"{scheme}://127.0.0.1:{name[1]}"

    yield make
    for each in made:
        each.close()


PLAIN = ["tcp", "unix", "udp"]


@pytest.mark.parametrize("scheme", PLAIN)
def test_what_a_stopped_collector_has_not_answered_for_is_not_delivered(deaf, emitters, scheme):
    emitter = emitters(deaf(scheme))
    for _ in range(100):
        emitter.event("x")
    until(lambda: emitter._sender.link.queue.sent.get(1) == 100)
    assert not emitter.flush(0.8)
    assert "does not answer" in emitter.last_error
    assert not any(emitter.discarded.values())
    assert emitter._sender.link.queue.kept_bytes > 0
    assert not emitter.close(0.2)
    assert "does not answer" in emitter.last_error
    assert emitter.discarded["closed"] == 100


@pytest.mark.parametrize("scheme", PLAIN)
def test_who_does_not_ask_for_answers_has_delivered_what_the_kernel_has(deaf, emitters, scheme):
    emitter = emitters(deaf(scheme), acknowledge=False)
    for _ in range(100):
        emitter.event("x")
    assert emitter.flush(20)
    assert emitter._sender.link.queue.kept_bytes == 0
    assert emitter.close(20)
    assert not any(emitter.discarded.values())
    assert emitter.last_error is None


def test_what_the_kernel_says_nobody_got_is_not_delivered_without_answers_either(emitters):
    with UdpCollector() as collector:
        emitter = emitters(collector.address, acknowledge=False)
        emitter.event("x")
        assert emitter.flush(20)
    emitter.event("y")
    until(lambda: emitter._sender.link.queue.sent.get(1) == 2)
    emitter.event("z")
    until(lambda: emitter.last_error == "Connection refused")
    assert not emitter.flush(0.2)
    assert not emitter.close(0.2)


@pytest.mark.parametrize("scheme", PLAIN)
def test_more_than_the_buffer_holds_for_a_stopped_collector_is_counted(deaf, emitters, scheme):
    emitter = emitters(deaf(scheme), buffer_bytes=2**16)
    for number in range(4000):
        emitter.event("x", text="y" * 100)
        if number % 100 == 0:
            time.sleep(0.001)
    assert not emitter.close(0.5)
    assert sum(emitter.discarded.values()) == 4000


def test_what_a_collector_had_no_time_to_answer_for_is_sent_again(emitters):
    with TcpCollector() as collector:
        emitter = emitters(collector.address)
        emitter.event("one")
        until(lambda: collector.sessions and events(bytes(collector.sessions[0])))
        collector.hang_up()
        until(lambda: collector.ended == 1)
        emitter.event("two")
        until(lambda: len(collector.sessions) > 1 and len(events(bytes(collector.sessions[1]))) > 1)
        assert not emitter.close(0.1)
        until(lambda: collector.ended == 2)
        sessions = [packets(bytes(session)) for session in collector.sessions]
    assert [[p[0] for p in session[:2]] for session in sessions] == [
        ["epoch", "tailrace.session"],
        ["epoch", "tailrace.session"],
    ]
    assert sessions[0][0] == sessions[1][0]
    numbers = [[p.counter for p in session if isinstance(p, Event)] for session in sessions]
    assert numbers == [[0], [0, 1]]


def test_a_stalled_collector_costs_an_event_no_more_than_its_calls(emitters, monkeypatch):
    """The receive window of the collector is closed. No call of the emitting thread may wait, and the calls are
    counted."""
    calls = []

    class Counted(socket.socket):
        def sendmsg(self, *arguments):
            if threading.current_thread() is threading.main_thread():
                calls.append("send")
                assert self.gettimeout() == 0
            return super().sendmsg(*arguments)

        def recv(self, *arguments):
            if threading.current_thread() is threading.main_thread():
                calls.append("receive")
            return super().recv(*arguments)

    with TcpCollector(receive_buffer=4096) as collector:
        collector.reading.clear()
        monkeypatch.setattr(socket, "socket", Counted)
        emitter = emitters(collector.address, buffer_bytes=2**20, acknowledge=False)
        emitter.event("x")
        until(lambda: emitter._sender.transport.is_open)
        most, emitted = 0, 1
        link = emitter._sender.link
        while not (link.blocked and emitter.discarded["full"]):
            calls.clear()
            emitter.event("x", text="y" * 1000)
            emitted += 1
            most = max(most, len(calls))
        monkeypatch.undo()
        assert 1 <= most <= _sender.PROMPT_SENDS + 1
        calls.clear()
        for _ in range(1000):
            emitter.event("x", text="y" * 1000)
        assert calls == []
        collector.reading.set()
        assert emitter.close(20)
        until(lambda: collector.ended)
        found = [event.counter for event in events(bytes(collector.sessions[0]))]
    assert len(found) == emitted + 1000 - emitter.discarded["full"]
    assert found[0] == 0


def test_a_full_disk_discards_and_does_not_stop_the_program(emitters):
    emitter = emitters("file:///dev/full", buffer_bytes=100_000)
    for _ in range(3000):
        emitter.event("x", text="y" * 100)
    assert emitter.discarded["full"] > 0
    assert not emitter.flush(0.2)
    assert not emitter.close(0.2)
    discarded = emitter.discarded
    assert discarded["full"] + discarded["closed"] == 3000


def test_a_pipe_that_nobody_reads_is_waited_for_and_one_that_is_full_too(emitters, tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    emitter = emitters(f"file://{path}", buffer_bytes=2**22)
    for _ in range(5000):
        emitter.event("x", text="y" * 100)
    assert not emitter.flush(0.2)
    data = bytearray()

    def read():
        with path.open("rb") as pipe:
            while piece := pipe.read(4096):
                data.extend(piece)

    reader = threading.Thread(target=read)
    reader.start()
    assert emitter.close(20)
    reader.join(20)
    assert [event.counter for event in events(bytes(data))] == list(range(5000))


def test_sixteen_threads_and_not_one_event_missing(answering, emitters):
    collector = answering("unix").start()
    emitter = emitters(collector.address, buffer_bytes=2**24)

    def work():
        for _ in range(1000):
            with emitter.span("x"):
                pass

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert emitter.close(20)
    assert sum(map(len, collector.only.stored.values())) == 16_000
    for stream, number in collector.only.goodbyes[-1]["streams"].items():
        assert collector.only.stored[int(stream)] == set(range(number))


def test_discards_are_reported_and_said_at_the_end(answering, emitters):
    collector = answering("tcp")
    emitter = emitters(collector.address, buffer_bytes=20_000)
    for _ in range(2000):
        emitter.event("x")
    full = emitter.discarded["full"]
    assert full > 0
    collector.start()
    assert emitter.flush(20)
    emitter.event("at last")
    assert emitter.close(20)
    session = collector.only
    assert session.goodbyes[-1]["discarded"] == {"full": full}
    assert session.goodbyes[-1]["streams"] == {"1": 2001}
    ranges = [tuple(r) for report in session.reports for r in report["ranges"]]
    lost = {n for stream, first, count in ranges for n in range(first, first + count)}
    assert lost == set(range(2001)) - session.stored[1]
    assert len(lost) == full


def test_when_nothing_happens_the_thread_sleeps(answering, emitters, monkeypatch):
    rounds = []
    attend = _link.Link.attend

    def counted(self):
        rounds.append(self)
        return attend(self)

    monkeypatch.setattr(_link.Link, "attend", counted)
    collector = answering("tcp").start()
    emitter = emitters(collector.address)
    emitter.event("x")
    assert emitter.flush(20)
    time.sleep(0.8)  # meanwhile, the link has read the socket for another answer
    rounds.clear()
    time.sleep(0.5)
    assert rounds == []


def test_an_event_reaches_a_silent_collector_without_a_flush(emitters):
    with UdpCollector() as collector:
        emitter = emitters(collector.address)
        emitter.event("x")
        assert [packet[-2] for packet in packets(collector.receive())][-1:] in (
            ["x"],
            ["tailrace.session"],
        )


def test_close_gives_up_in_time_and_counts_what_was_not_sent():
    with TcpCollector() as closed:
        port = closed.port
    emitter = Emitter(f"tcp://127.0.0.1:{port}")
    for _ in range(7):
        emitter.event("x")
    assert not emitter.close(0.05)
    assert not emitter.flush(0.05)
    assert emitter.discarded["closed"] == 7
    emitter.event("y")
    assert emitter.discarded["closed"] == 8


def test_nothing_is_done_where_nothing_was_emitted(emitters):
    with TcpCollector() as collector:
        emitter = emitters(collector.address)
        assert emitter.flush()
        assert emitter.close()
        assert not emitter._sender._has_thread
        assert collector.sessions == []


def test_a_signal_handlers_exception_amid_the_threads_start_is_not_the_end_of_sending(
    answering, emitters, monkeypatch
):
    collector = answering("tcp").start()
    emitter = emitters(collector.address)
    start = _thread.start_new_thread

    def interrupted(*arguments):
        monkeypatch.undo()
        start(*arguments)
        raise InterruptedError

    monkeypatch.setattr(_thread, "start_new_thread", interrupted)
    emitter.event("one")
    emitter.event("two")
    assert emitter.flush(20)
    assert emitter.close(20)
    assert whole(collector.only, s1=2)


def test_a_signal_handlers_exception_behind_the_opening_is_not_the_end_of_sending(
    answering, emitters, monkeypatch
):
    collector = answering("tcp").start()
    emitter = emitters(collector.address)
    sender = emitter._sender
    connect = sender.transport.open

    def interrupted():
        connect()
        raise KeyboardInterrupt

    monkeypatch.setattr(sender.transport, "open", interrupted)
    sender._link.fresh = True
    with pytest.raises(KeyboardInterrupt):
        sender._round()
    monkeypatch.undo()
    emitter.event("x")
    assert emitter.close(20)
    assert whole(collector.only, s1=1)


# A forked child also gets copies of the parent's greenlets, if there are any


def test_a_greenlet_that_sleeps_through_a_fork_takes_no_call_of_the_childs(answering, emitters):
    sender = emitters(answering("tcp").address)._sender

    class Calls(queue.SimpleQueue):
        def get(self, timeout=None):
            assert sender._calls is self, "it sleeps again"
            sender.forked()
            sender._asleep = sender._called = True
            sender._calls.put(None)
            raise queue.Empty

    sender._calls = Calls()
    sender._sleep(1)
    assert sender._asleep
    assert sender._calls.qsize() == 1


def test_a_greenlet_that_works_through_a_fork_takes_no_call_of_the_childs(
    answering, emitters, monkeypatch
):
    sender = emitters(answering("tcp").address)._sender

    def fork():
        sender.forked()
        sender._calls.put(None)

    monkeypatch.setattr(sender, "_round", fork)
    sender._run()
    assert sender._calls.qsize() == 1
    assert sender._idle
    assert not sender._is_over


@pytest.mark.parametrize("reached", [True, False])
def test_a_greenlet_that_connects_during_a_fork_leaves_the_childs_connection_alone(
    answering, emitters, monkeypatch, reached
):
    collector = answering("tcp").start()
    sender = emitters(collector.address)._sender
    parents = sender.transport
    connect = parents.open

    def fork():
        connect()
        sender.forked()
        if not reached:
            raise ConnectionRefusedError

    monkeypatch.setattr(parents, "open", fork)
    sender._link.fresh = True
    assert sender._round() is None
    assert not parents.is_open
    assert (sender.connections, sender.last_error) == (0, None)


def test_two_threads_never_open_the_transport_at_once(answering, emitters, monkeypatch):
    """Otherwise, the later connection would replace the one on which the session was announced, and a third thread
    would send the goodbye (the packet that ends the session) on it without an announcement. The collector would then
    see another session, without events."""
    collector = answering("unix").start()
    emitter = emitters(collector.address)
    sender = emitter._sender
    connect = sender.transport.open
    opening, may_open, opened, may_announce = (threading.Event() for _ in range(4))

    def held():
        """Hold the first thread before it opens the connection, and again before it announces the session."""
        if opening.is_set():
            connect()
            return
        opening.set()
        assert may_open.wait(20)
        connect()
        opened.set()
        assert may_announce.wait(20)

    monkeypatch.setattr(sender.transport, "open", held)
    emitter.event("x")
    assert opening.wait(20)
    sender._round()
    may_open.set()
    assert opened.wait(20)
    sender._lock.run(sender._end, inf)
    sender._lock.run(sender._link.attend, inf)
    may_announce.set()
    assert emitter.close(20)
    assert whole(collector.only, s1=1)
    assert [said["turn"] for said in collector.only.announcements] == [0]
