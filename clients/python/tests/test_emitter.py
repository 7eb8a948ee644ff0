from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import defaultdict
from itertools import count

import pytest

import tailrace_client
from clients.python.tests.collectors import TcpCollector, UdpCollector, until
from clients.python.tests.reader import Metadata, events, packets
from tailrace_client import Emitter


@pytest.fixture
def collector():
    with UdpCollector() as opened:
        yield opened


@pytest.fixture
def emitter(collector):
    """One that writes to `collector`; its clock advances by 10 ns each time it is read."""
    ticks = count(1_000_000, 10)
    made = Emitter(
        collector.address, clock=lambda: next(ticks), wall_clock=lambda: 1_700_000_000_000_000_000
    )
    yield made
    made.close()


def received(collector):
    return [packet for datagram in collector.waiting() for packet in packets(datagram)]


def counters(found):
    """The counters of each stream, in order of arrival."""
    streams = defaultdict(list)
    for event in found:
        streams[event.stream].append(event.counter)
    return streams


def test_a_span_has_its_times_relative_to_the_epoch_that_comes_first(collector, emitter):
    with emitter.span("step", cell=3, load=0.5) as span:
        span.set(result="good")
    emitter.event("checkpoint")
    assert emitter.flush()
    epoch, step, checkpoint = received(collector)
    assert epoch == Metadata("epoch", (1_700_000_000_000_000_000).to_bytes(8, "big"))
    attributes = [("cell", 1, 3), ("load", 3, 0.5), ("result", 4, "good")]
    assert step == (1, 0, 0, 10, 20, "step", attributes)
    assert checkpoint == (1, 1, 0, 30, 30, "checkpoint", [])


def test_a_span_that_an_exception_ends_says_which_and_lets_it_pass(collector, emitter):
    with pytest.raises(KeyError), emitter.span("step"):
        raise KeyError("x")
    emitter.flush()
    assert received(collector)[1].attributes == [("error", 4, "KeyError")]


def test_an_attribute_may_have_any_name(collector, emitter):
    with emitter.span("step", name=1, self=2, address=3):
        pass
    emitter.event("event", name=1, self=2)
    emitter.flush()
    assert [len(event.attributes) for event in received(collector)[1:]] == [3, 2]


def test_spans_written_at_once_share_datagrams(collector, emitter):
    for number in range(1000):
        emitter.event("event", number=number)
    emitter.flush()
    datagrams = collector.waiting()
    assert len(datagrams) < 100
    assert max(map(len, datagrams)) <= 1432
    found = [event for datagram in datagrams for event in events(datagram)]
    assert [event.counter for event in found] == list(range(1000))
    assert [event.attributes for event in found] == [[("number", 1, n)] for n in range(1000)]


def test_each_thread_has_a_stream_that_counts_from_zero_without_holes(collector, emitter):
    ready = threading.Barrier(4)

    def work():
        ready.wait(20)
        for _ in range(500):
            with emitter.span("step"):
                pass
        ready.wait(20)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    emitter.flush()
    streams = counters(received(collector)[1:])
    assert set(streams) == {1, 2, 3, 4}
    assert all(numbers == list(range(500)) for numbers in streams.values())


def test_a_thread_goes_on_with_the_stream_of_one_that_ended(collector, emitter):
    for _ in range(3):
        thread = threading.Thread(target=lambda: emitter.event("x"))
        thread.start()
        thread.join()
    emitter.flush()
    assert counters(received(collector)[1:]) == {1: [0, 1, 2]}


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
    streams = counters(received(collector)[1:])
    assert set(streams) == {2**32 - 1}
    assert sorted(streams[2**32 - 1]) == list(range(900))


@pytest.mark.parametrize("number", [-1, 2**32])
def test_a_stream_must_fit_its_field(emitter, number):
    with pytest.raises(ValueError, match="0 to 4294967295"):
        emitter.use_stream(number)


def test_a_counter_wraps_after_its_largest_value(collector, emitter):
    emitter.event("x")
    emitter._streams[1].counter = count(2**32 - 1)
    emitter.event("y")
    emitter.event("z")
    emitter.flush()
    assert counters(received(collector)[1:]) == {1: [0, 2**32 - 1, 0]}


def test_a_value_that_cannot_be_encoded_leaves_a_hole_and_a_count(collector, emitter):
    class Broken:
        def __str__(self):
            raise RuntimeError("no")

    emitter.event("before")
    emitter.event("broken", value=Broken())
    emitter.event("after")
    emitter.flush()
    assert counters(received(collector)[1:]) == {1: [0, 2]}
    assert emitter.dropped["encoding"] == 1


def test_a_packet_too_long_for_a_datagram_leaves_a_hole_and_a_count(collector, emitter):
    emitter.event("long", text="x" * 60_000, more="y" * 10_000)
    emitter.event("after")
    emitter.flush()
    assert counters(received(collector)[1:]) == {1: [1]}
    assert emitter.dropped["oversize"] == 1


def test_what_does_not_fit_while_nobody_listens_is_dropped_newest_first_and_seen_as_a_hole():
    with TcpCollector() as closed:
        port = closed.port
    emitter = Emitter(f"tcp://127.0.0.1:{port}", buffer_bytes=10_000)
    for _ in range(1000):
        emitter.event("x")
    kept = 1000 - emitter.dropped["full"]
    assert 0 < kept < 1000
    with TcpCollector(port) as collector:
        assert emitter.flush(20)
        emitter.event("at last")
        assert emitter.close(20)
        until(lambda: collector.ended)
        epoch, *found = packets(bytes(collector.sessions[0]))
    assert epoch.name == "epoch"
    assert counters(found) == {1: [*range(kept), 1000]}


def test_a_collector_that_does_not_read_never_stops_the_program():
    with TcpCollector(receive_buffer=4096) as collector:
        collector.reading.clear()
        emitter = Emitter(collector.address, buffer_bytes=50_000)
        emitted = 0
        while not emitter.dropped["full"]:
            emitter.event("x", text="y" * 1000)
            emitted += 1
        collector.reading.set()
        assert emitter.close(20)
        until(lambda: collector.ended)
        found = events(bytes(collector.sessions[0]))
    assert counters(found) == {1: list(range(emitted - emitter.dropped["full"]))}


def test_after_a_reconnection_the_epoch_comes_first_and_the_counter_goes_on():
    with TcpCollector() as collector:
        emitter = Emitter(collector.address)
        emitter.event("one")
        until(lambda: collector.sessions and events(bytes(collector.sessions[0])))
        collector.hang_up()
        until(lambda: collector.ended == 1)
        emitter.event("two")
        emitter.close(20)
        until(lambda: collector.ended == 2)
        first, second = (packets(bytes(session)) for session in collector.sessions)
    assert first[0] == second[0] == Metadata("epoch", emitter.epoch.to_bytes(8, "big"))
    assert [event.counter for event in first[1:] + second[1:]] == [0, 1]


def test_a_file_is_written(tmp_path):
    path = tmp_path / "trace"
    emitter = Emitter(f"file://{path}")
    for number in range(20_000):
        emitter.event("x", number=number)
    emitter.close(20)
    found = events(path.read_bytes())
    assert len(found) == 20_000 - sum(emitter.dropped.values())
    assert found[-1].counter >= 12_000


def test_a_signal_handler_and_a_destructor_may_write_events():
    """Both come at any moment: also while the thread they interrupt writes one."""

    class Destroyed:
        def __del__(self):
            emitter.event("destroyed")

        def __str__(self):
            return "x"

    def interrupted(*_):
        emitter.event("interrupted")

    before = signal.signal(signal.SIGALRM, interrupted)
    with TcpCollector() as collector:
        emitter = Emitter(collector.address, buffer_bytes=2**24)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
            for _ in range(5_000):
                emitter.event("x", value=Destroyed())
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert emitter.close(20)
        until(lambda: collector.ended)
        found = events(bytes(collector.sessions[0]))
    assert {event.description for event in found} == {"x", "destroyed", "interrupted"}
    emitted = next(emitter._streams[1].counter)
    assert (
        len({event.counter for event in found}) == len(found) == emitted - emitter.dropped["nested"]
    )


def test_an_event_that_interrupts_the_queue_itself_is_counted_and_not_lost_silently(
    collector, emitter
):
    channel = emitter._channel
    channel._busy = True  # as it is while the interrupted thread is within `put`
    emitter.event("nested")
    channel._busy = False
    emitter.event("after")
    emitter.flush()
    assert counters(received(collector)[1:]) == {1: [1]}
    assert emitter.dropped["nested"] == 1


def test_after_close_nothing_is_sent_and_that_is_counted(collector):
    emitter = Emitter(collector.address)
    emitter.event("x")
    assert emitter.close()
    emitter.event("y")
    assert emitter.flush()
    assert emitter.dropped["closed"] == 1
    assert [packet[0] for packet in received(collector)] == ["epoch", 1]


def test_close_gives_up_in_time_and_counts_what_was_not_sent():
    with TcpCollector() as closed:
        port = closed.port
    emitter = Emitter(f"tcp://127.0.0.1:{port}")
    for _ in range(7):
        emitter.event("x")
    assert not emitter.close(0.01)
    assert not emitter.flush(0.01)
    assert emitter.dropped["closed"] == 7


# Processes


def run(program, *arguments, **environ):
    """Run a program with the client to its end."""
    subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, *arguments],
        env={"PYTHONPATH": ":".join(sys.path), **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def test_a_process_sends_what_is_left_when_it_ends(collector):
    run(
        "import tailrace_client as t; t.connect(); t.event('bye')",
        TAILRACE_ADDRESS=collector.address,
    )
    assert [packet[-2] for packet in received(collector)] == ["epoch", "bye"]


def test_an_emitter_that_nobody_closes_is_flushed_at_the_end_too(collector):
    program = "import sys, tailrace_client as t; e = t.Emitter(sys.argv[1]); e.event('bye')"
    run(program, collector.address)
    assert [packet[-2] for packet in received(collector)] == ["epoch", "bye"]


def test_a_process_does_not_wait_longer_at_its_end_than_it_says():
    """Nobody listens; with the exit's own second it ends by itself, and the test's limit is 60."""
    with TcpCollector() as closed:
        address = closed.address
    run("import tailrace_client as t; t.connect(); t.event('bye')", TAILRACE_ADDRESS=address)


def test_a_forked_child_is_a_producer_of_its_own():
    program = """
import os, tailrace_client as t
t.connect()
t.event("of both?")
child = os.fork()
t.event("child" if child == 0 else "parent")
t.close(20)
if child:
    os.waitpid(child, 0)
else:
    os._exit(0)
"""
    with TcpCollector() as collector:
        run(program, TAILRACE_ADDRESS=collector.address)
        until(lambda: collector.ended == 2)
        sessions = [packets(bytes(session)) for session in collector.sessions]
    assert sessions[0][0] != sessions[1][0]  # the epochs
    found = sorted([(event.description, event.counter) for event in s[1:]] for s in sessions)
    assert found == [[("child", 0)], [("of both?", 0), ("parent", 1)]]


def test_a_forked_child_writes_a_file_of_its_own(tmp_path):
    program = """
import os, tailrace_client as t
t.connect()
t.event("parent")
t.flush(20)
if os.fork() == 0:
    t.event("child")
    t.close(20)
    os._exit(0)
os.wait()
"""
    run(program, TAILRACE_ADDRESS=f"file://{tmp_path}/trace")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[0] == "trace"
    assert names[1].removeprefix("trace.").isdigit()
    found = [[e.description for e in events((tmp_path / name).read_bytes())] for name in names]
    assert found == [["parent"], ["child"]]


def test_a_process_that_forks_while_its_threads_write_never_hangs(collector):
    program = """
import os, threading, tailrace_client as t
t.connect()
stop = threading.Event()
def work():
    while not stop.is_set():
        t.event("thread")
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for _ in range(20):
    if os.fork() == 0:
        t.event("child")
        os._exit(not t.close(20))
    assert os.wait()[1] == 0
stop.set()
for thread in threads: thread.join()
"""
    run(program, TAILRACE_ADDRESS=collector.address)


# The process's own emitter


@pytest.fixture
def process():
    yield tailrace_client
    tailrace_client.close()


def test_without_an_address_everything_is_off(process, monkeypatch):
    monkeypatch.delenv("TAILRACE_ADDRESS", raising=False)
    threads = threading.active_count()
    emitter = process.connect()
    with process.span("x", a=1) as span:
        span.set(b=2)
    process.event("x")
    process.use_stream(1)
    assert process.flush()
    assert process.close()
    assert not emitter.enabled
    with emitter.span("x"):
        emitter.event("y")
    emitter.write("x", 0, 1, {})
    assert emitter.flush()
    assert emitter.close()
    assert emitter.dropped == {}
    assert process.span("x") is process.span("y") is emitter.span("z")
    assert threading.active_count() == threads


def test_before_connect_everything_is_off(process):
    with process.span("x"):
        process.event("y")
    assert process.flush()


def test_the_environment_says_where_unless_the_program_does(process, collector, monkeypatch):
    monkeypatch.setenv("TAILRACE_ADDRESS", collector.address)
    process.connect()
    process.use_stream(5)
    with process.span("x"):
        process.event("y")
    process.close()
    assert [packet[:2] for packet in received(collector)[1:]] == [(5, 0), (5, 1)]
    with UdpCollector() as other:
        process.connect(other.address)
        process.event("z")
        process.close()
        assert len(received(other)) == 2
    assert received(collector) == []


def test_a_second_connect_closes_the_first_connection(process, collector):
    process.connect(collector.address)
    process.event("x")
    process.connect(collector.address)
    assert len(received(collector)) == 2


def test_a_bad_address_in_the_program_is_an_error_and_in_the_environment_a_warning(
    process, monkeypatch
):
    with pytest.raises(ValueError, match="is not an address"):
        process.connect("localhost:7701")
    monkeypatch.setenv("TAILRACE_ADDRESS", "localhost:7701")
    with pytest.warns(RuntimeWarning, match="TAILRACE_ADDRESS: 'localhost:7701' is not an address"):
        assert not process.connect().enabled
