from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections import defaultdict
from itertools import count

import pytest

from clients.python.tests.collectors import TcpCollector, UdpCollector, until
from clients.python.tests.reader import Event, events, packets, received
from tailrace_client import Emitter, _emitter


@pytest.fixture
def collector():
    with UdpCollector() as opened:
        yield opened


@pytest.fixture
def emitter(collector):
    """Return an emitter to `collector`, whose clock advances by 10 ns with each reading."""
    ticks = count(1_000_000, 10)
    made = Emitter(collector.address, clock=lambda: next(ticks), acknowledge=False)
    yield made
    made.close()


def counters(found):
    """Return the sequence numbers of the events by stream, in order of arrival."""
    streams = defaultdict(list)
    for event in found:
        streams[event.stream].append(event.counter)
    return streams


def test_a_span_has_the_times_and_attributes_it_was_given(collector, emitter):
    with emitter.span("step", cell=3, load=0.5) as span:
        span.set(result="good")
    emitter.event("checkpoint")
    emitter.counter("queue length", 17, of="jobs")
    emitter.write("job", 5, 8, {"number": 4})
    assert emitter.flush()
    session, *found = received(collector)
    assert session.name == "tailrace.session"
    assert json.loads(session.option)["clock"] == "logical"
    assert "now" not in json.loads(session.option)
    attributes = [("cell", 1, 3), ("load", 3, 0.5), ("result", 4, "good")]
    assert found == [
        (1, 0, 0, 1_000_000, 1_000_010, "step", attributes),
        (1, 1, 0, 1_000_020, 1_000_020, "checkpoint", []),
        (1, 2, 0, 1_000_030, 1_000_030, "queue length", [("tailrace.counter", 1, 17), ("of", 4, "jobs")]),
        (1, 3, 0, 5, 8, "job", [("number", 1, 4)]),
    ]  # fmt: skip
    assert emitter.epoch is None


def test_without_a_clock_of_its_own_times_are_since_the_epoch_that_comes_first(collector):
    emitter = Emitter(collector.address, process="solver")
    emitter.event("x")
    emitter.close()
    epoch, session, event, goodbye = received(collector)
    assert epoch == ("epoch", emitter.epoch.to_bytes(8, "big"))
    assert 1.7e18 < emitter.epoch < 4e18
    said = json.loads(session.option)
    assert said["process"] == "solver"
    assert "clock" not in said
    assert event.start == event.end <= said["now"]
    assert json.loads(goodbye.option)["streams"] == {"1": 1}


def test_a_span_that_began_before_connect_keeps_its_times(collector):
    begin = time.monotonic_ns()
    emitter = Emitter(collector.address, acknowledge=False)
    end = time.monotonic_ns()
    emitter.write("loading", begin, end, {})
    emitter.write("before the import", 0, end, {})
    emitter.close()
    *before, goodbye = received(collector)
    (event,) = [packet for packet in before if isinstance(packet, Event)]
    assert event.end - event.start == end - begin
    assert json.loads(goodbye.option)["discarded"] == {"encoding": 1}


def test_a_process_that_was_moved_to_a_host_with_less_uptime_emits(collector, monkeypatch):
    """A checkpoint of the process contains the time of the import. The clock of the other host may be behind this
    time."""
    monkeypatch.setattr(_emitter, "_IMPORTED", time.monotonic_ns() + 10**15)
    emitter = Emitter(collector.address, acknowledge=False)
    emitter.event("moved")
    assert emitter.close()
    assert not any(emitter.discarded.values())
    assert "moved" in [packet[-2] for packet in received(collector)]
    assert 1.7e18 < emitter.epoch < 4e18


def test_what_is_emitted_within_a_substream_is_written_to_it(collector, emitter):
    with emitter.substream(7):
        emitter.event("inside")
        with emitter.substream(2**64 - 1):
            emitter.event("further inside")
    emitter.event("outside")
    emitter.flush()
    found = received(collector)[1:]
    assert [event.substream for event in found] == [7, 2**64 - 1, 0]


@pytest.mark.parametrize("number", [-1, 2**64])
def test_a_substream_must_fit_its_field(emitter, number):
    with pytest.raises(ValueError, match="is not a substream"), emitter.substream(number):
        pass


@pytest.mark.parametrize("number", [-1, 2**32])
def test_a_stream_must_fit_its_field(emitter, number):
    with pytest.raises(ValueError, match="0 to 4294967295"):
        emitter.use_stream(number)


def test_threads_that_choose_one_stream_share_its_counter(collector, emitter):
    def work():
        emitter.use_stream(2**32 - 1)
        for _ in range(300):
            emitter.event("x")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    emitter.flush()
    found = [packet for packet in received(collector) if isinstance(packet, Event)]
    assert sorted(counters(found)[2**32 - 1]) == list(range(900))


def test_events_emitted_at_once_share_datagrams(collector, emitter):
    for number in range(1000):
        emitter.event("event", number=number)
    emitter.flush()
    datagrams = collector.waiting()
    assert len(datagrams) < 50
    found = [event for datagram in datagrams for event in events(datagram)]
    assert [event.counter for event in found] == list(range(1000))


def test_a_packet_too_long_for_a_datagram_leaves_a_hole_a_report_and_a_count(collector, emitter):
    emitter.event("long", text="x" * 60_000, more="y" * 10_000)
    emitter.event("after")
    emitter.flush()
    found = received(collector)
    assert counters(p for p in found if isinstance(p, Event)) == {1: [1]}
    assert emitter.discarded["oversize"] == 1
    reports = [json.loads(p.option) for p in found if p[0] == "tailrace.report"]
    assert [1, 0, 1] in [lost for report in reports for lost in report["ranges"]]


def test_what_does_not_fit_while_nobody_listens_is_discarded_newest_first_and_seen_as_a_hole():
    with TcpCollector() as closed:
        port = closed.port
    emitter = Emitter(f"tcp://127.0.0.1:{port}", buffer_bytes=10_000, acknowledge=False)
    for _ in range(1000):
        emitter.event("x")
    kept = 1000 - emitter.discarded["full"]
    assert 0 < kept < 1000
    with TcpCollector(port) as collector:
        assert emitter.flush(20)
        emitter.event("at last")
        assert emitter.close(20)
        until(lambda: collector.ended)
        found = events(bytes(collector.sessions[0]))
    assert counters(found) == {1: [*range(kept), 1000]}


def test_a_file_is_written_with_its_session_and_its_goodbye(tmp_path):
    path = tmp_path / "trace"
    emitter = Emitter(f"file://{path}")
    for number in range(20_000):
        emitter.event("x", number=number)
    assert emitter.close(20)
    epoch, session, *found, goodbye = packets(path.read_bytes())
    assert epoch.name == "epoch"
    assert json.loads(session.option)["acknowledge"] is False
    assert json.loads(goodbye.option)["streams"] == {"1": 20_000}
    assert len(found) == 20_000 - sum(emitter.discarded.values())


def test_what_was_discarded_at_the_end_of_a_stream_is_named_where_nobody_asks(tmp_path):
    """Otherwise, a reader would count these events as lost behind the client."""

    class Raising:
        def __str__(self):
            raise LookupError

    path = tmp_path / "trace"
    emitter = Emitter(f"file://{path}")
    emitter.event("x")
    for stream, lost in [(None, 3), (7, 2)]:
        emitter.use_stream(stream)
        for _ in range(lost):
            emitter.event("x", value=Raising())
    assert emitter.close(20)
    *_, report, goodbye = packets(path.read_bytes())
    assert json.loads(report.option)["ranges"] == [[1, 1, 3], [7, 0, 2]]
    assert json.loads(goodbye.option)["streams"] == {"1": 4, "7": 2}


def test_a_signal_handler_and_a_destructor_may_emit(tmp_path):
    """Both may run at any time, also while the thread that they interrupt emits or sends."""

    class Destroyed:
        def __del__(self):
            emitter.event("destroyed")

        def __str__(self):
            return "x"

    def interrupted(*_):
        emitter.event("interrupted")

    before = signal.signal(signal.SIGALRM, interrupted)
    with TcpCollector() as collector:
        emitter = Emitter(collector.address, buffer_bytes=2**24, acknowledge=False)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
            for _ in range(5_000):
                emitter.event("x", value=Destroyed())
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert emitter.close(20)
        until(lambda: collector.ended)
        *found, goodbye = packets(bytes(collector.sessions[0]))
    found = [packet for packet in found if isinstance(packet, Event)]
    assert {event.description for event in found} == {"x", "destroyed", "interrupted"}
    emitted = json.loads(goodbye.option)["streams"]["1"]
    assert len({event.counter for event in found}) == len(found)
    assert len(found) == emitted - sum(emitter.discarded.values())


class Interrupt(KeyboardInterrupt):
    """Raised by a signal handler of this test."""


def test_an_exception_of_a_signal_handler_anywhere_in_it_leaves_no_broken_packet():
    """Ctrl-C may arrive at any time, and the program may continue after it."""

    def interrupted(*_):
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupted)
    with TcpCollector() as collector:
        emitter = Emitter(collector.address, buffer_bytes=2**24, acknowledge=False)
        times = 0
        for _ in range(100):
            with contextlib.suppress(Interrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.002)
                for _ in range(20_000):
                    emitter.event("x", text="y" * 5000)
                signal.setitimer(signal.ITIMER_REAL, 0)
                times -= 1
            times += 1
        signal.signal(signal.SIGALRM, before)
        assert times > 50
        assert emitter.close(20)
        until(lambda: collector.ended == len(collector.sessions))
        sessions = [bytes(session) for session in collector.sessions]
    # The client has given up a connection of which it did not know how many bytes the kernel had accepted, perhaps
    # within a packet.
    found = {event.counter for event in events(sessions[-1])}
    for session in sessions[:-1]:
        at = 0
        while at + 8 <= len(session):
            size = int.from_bytes(session[at + 4 : at + 8], "big")
            if at + size <= len(session):
                found |= {event.counter for event in events(session[at : at + size])}
            at += size
    total = emitter._sender.link.recorder.next_numbers()[1]
    assert total - len(found) <= sum(emitter.discarded.values()) + times


def test_after_close_nothing_is_sent_and_that_is_counted(collector):
    emitter = Emitter(collector.address, acknowledge=False)
    emitter.event("x")
    span = emitter.span("open").__enter__()
    assert emitter.close()
    emitter.event("y")
    span.__exit__(None, None, None)
    assert not emitter.flush()
    assert emitter.close()
    assert emitter.discarded["closed"] == 2
    assert [packet[0] for packet in received(collector)][:3] == ["epoch", "tailrace.session", 1]


def test_an_emitter_without_an_address_does_nothing():
    emitter = Emitter(None)
    assert not emitter.enabled
    with emitter.span("x") as span:
        span.set(a=1)
        emitter.event("y")
        emitter.counter("z", 1)
        emitter.write("w", 0, 1, {})
        emitter.use_stream(5)
    with emitter.substream(3):
        pass
    assert not emitter.flush()
    assert not emitter.close()
    assert emitter.discarded == {}
    assert emitter.span("x") is emitter.span("y")
