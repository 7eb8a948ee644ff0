"""Test the common behaviour of the recorder in Python and the compiled one. `test_native.py` has the tests of the
compiled one alone."""

from __future__ import annotations

import gc
import json
import random
import signal
import sys
import threading
import time
from collections import defaultdict
from types import MappingProxyType

import pytest

from clients.python.tests.reader import Event, events, packets
from clients.python.tests.recorders import PURE, native, recorder_of
from tailrace_client import _recorder
from tailrace_client._tasks import SUBSTREAM


@pytest.fixture(params=["pure", "compiled"])
def module(request):
    if request.param == "pure":
        return PURE
    return native() or pytest.skip("no C compiler")


@pytest.fixture
def recorder(module):
    """Return a recorder whose clock reads 10, 20, 30…, with tick 0 at 0."""
    return recorder_of(module)


def found(chunks):
    return [event for chunk in chunks for event in events(chunk.data)]


def numbers(chunks):
    """Return, by stream, the numbers of all events in order, including those that reports state as discarded, and how
    many were discarded. Check the numbers that each chunk states."""
    streams, lost = defaultdict(list), defaultdict(int)
    for chunk in chunks:
        counters = []
        for packet in packets(chunk.data):
            if isinstance(packet, Event):
                assert packet.stream == chunk.stream
                counters.append(packet.counter)
                streams[packet.stream].append(packet.counter)
            else:
                assert packet.name == "tailrace.report"
                for stream, first, count in json.loads(packet.option)["ranges"]:
                    assert stream == chunk.stream
                    streams[stream] += range(first, first + count)
                    lost[stream] += count
        assert (chunk.first, chunk.next) == (counters[0], counters[-1] + 1)
    return streams, lost


def assert_complete(recorder, chunks, kinds=("nested", "full")):
    """Check that each number of each stream occurs once, in order, in an event or in a report."""
    streams, lost = numbers(chunks)
    for stream, following in recorder.next_numbers().items():
        wrong = [at for at, number in enumerate(streams[stream]) if at != number]
        assert not wrong, streams[stream][wrong[0] - 3 : wrong[0] + 6]
        assert len(streams[stream]) == following
    assert sum(lost.values()) == sum(recorder.discarded.values())
    assert {reason for reason, count in recorder.discarded.items() if count} <= set(kinds)


# Recorded calls


def test_spans_events_counters_and_known_times_are_recorded(recorder):
    with recorder.span("step", cell=3, load=0.5) as span:
        span.set(result="good", cell=4)
    recorder.event("checkpoint", ok=True)
    recorder.counter("depth", 7, queue="in")
    recorder.write("known", 5, 8, {"x": -1})
    (chunk,) = recorder.take()
    assert chunk[1:] == (1, 0, 4)
    assert packets(chunk.data) == [
        (1, 0, 0, 10, 20, "step", [("cell", 1, 4), ("load", 3, 0.5), ("result", 4, "good")]),
        (1, 1, 0, 30, 30, "checkpoint", [("ok", 4, "true")]),
        (1, 2, 0, 40, 40, "depth", [("tailrace.counter", 1, 7), ("queue", 4, "in")]),
        (1, 3, 0, 5, 8, "known", [("x", 2, -1)]),
    ]
    assert recorder.take() == []


def test_a_span_that_an_exception_ends_says_which_and_lets_it_pass(recorder):
    with pytest.raises(KeyError), recorder.span("step"):
        raise KeyError("x")
    with pytest.raises(KeyError), recorder.span("step", error="mine"):
        raise KeyError("x")
    assert [event.attributes for event in found(recorder.take())] == [
        [("error", 4, "KeyError"), ("error_message", 4, "'x'")],
        [("error", 4, "mine")],
    ]


class SilentError(Exception):
    def __str__(self):
        raise TypeError


@pytest.mark.parametrize("error", [ValueError(), SilentError(), SilentError])
def test_an_exception_without_a_message_is_named_all_the_same(recorder, error):
    with pytest.raises((ValueError, SilentError)), recorder.span("step", cell=1):
        raise error
    (event,) = found(recorder.take())
    kind = (error if isinstance(error, type) else type(error)).__name__
    assert event.attributes == [("cell", 1, 1), ("error", 4, kind)]


@pytest.mark.parametrize("count", range(7))
def test_a_span_keeps_its_values_however_many(recorder, count):
    given = {f"v{at}": f"text {at}" for at in range(count)}
    with recorder.span("step", **given):
        pass
    with recorder.span("step", **given) as span:
        span.set(more="x")
    plain, changed = found(recorder.take())
    assert plain.attributes == [(name, 4, text) for name, text in given.items()]
    assert changed.attributes == [*plain.attributes, ("more", 4, "x")]


def test_a_span_may_be_entered_again(recorder):
    span = recorder.span("step", cell=1)
    for _ in range(2):
        with span:
            pass
    assert [event[3:6] for event in found(recorder.take())] == [(10, 20, "step"), (30, 40, "step")]


def test_an_attribute_may_have_any_name(recorder):
    names = {"name": 1, "self": 2, "value": 3, "start": 4, "no identifier": 5}
    with recorder.span("span", **names) as span:
        span.set(self=6)
    recorder.event("event", **names)
    recorder.counter("counter", 0, **names)
    assert [len(event.attributes) for event in found(recorder.take())] == [5, 5, 6]


def test_a_name_that_is_no_text_is_spelled(recorder):
    recorder.event(5, x=1)
    recorder.event(["a"])
    recorder.write(None, 1, 2, {7: 8, b"y": 9})
    assert [event[5:] for event in found(recorder.take())] == [
        ("5", [("x", 1, 1)]),
        ("['a']", []),
        ("None", [("7", 1, 8), ("b'y'", 1, 9)]),
    ]


def test_bools_are_words_but_for_a_counter_and_none_is_left_out(recorder):
    for ok in (True, False, None):
        recorder.event("event", ok=ok, cell=3)
    for value in (True, False, None):
        recorder.counter("counter", value, ok=value)
    assert [event.attributes for event in found(recorder.take())] == [
        [("ok", 4, "true"), ("cell", 1, 3)],
        [("ok", 4, "false"), ("cell", 1, 3)],
        [("cell", 1, 3)],
        [("tailrace.counter", 1, 1), ("ok", 4, "true")],
        [("tailrace.counter", 1, 0), ("ok", 4, "false")],
        [],
    ]


def test_an_exception_carries_its_message(recorder):
    recorder.event("event", cause=ValueError("no such cell"), other=KeyError())
    (event,) = found(recorder.take())
    assert event.attributes == [("cause", 4, "ValueError: no such cell"), ("other", 4, "KeyError")]


def test_values_that_change_their_type_from_event_to_event_keep_theirs(recorder):
    values = [1, 0.5, -1, "x", True, 2**64, None, [1, 2], 2, "\udc80", "y" * 70_000, float("inf")]
    for value in values:
        recorder.event("event", before=1, value=value, after="z")
    read = [event.attributes[1][1:] for event in found(recorder.take())]
    assert read == [
        (1, 1), (3, 0.5), (2, -1), (4, "x"), (4, "true"), (4, str(2**64)), (4, "z"), (0x81, [1, 2]),
        (1, 2), (4, "\\udc80"), (4, "y" * 65_535), (3, float("inf")),
    ]  # fmt: skip


def test_a_value_that_changes_afterwards_was_recorded_as_it_was(recorder):
    value = [1]
    recorder.event("event", value=value)
    value.append(2)
    assert found(recorder.take())[0].attributes == [("value", 0x81, [1])]


def test_a_mapping_of_any_kind_gives_what_it_has_and_stays_as_it_is(recorder):
    """This also holds for a mapping that makes up a value for a missing key, after events with one attribute."""
    mappings = [
        {"cell": 7},
        MappingProxyType({"cell": 8}),
        defaultdict(int),
        defaultdict(int, other=5),
    ]
    for mapping in mappings:
        recorder.write("event", 10, 20, mapping)
    read = [[value for _, _, value in event.attributes] for event in found(recorder.take())]
    assert read == [[7], [8], [], [5]]
    assert mappings[2:] == [{}, {"other": 5}]


def test_events_belong_to_the_contexts_substream(recorder):
    for number in (1, 2**64 - 1, 0):
        SUBSTREAM.set(number)
        recorder.event("fast", x=1)
        recorder.event("slow", x=None)
    assert [event.substream for event in found(recorder.take())] == [
        1,
        1,
        2**64 - 1,
        2**64 - 1,
        0,
        0,
    ]


@pytest.mark.parametrize(
    ("start", "end", "read"),
    [
        (100, 101, (0, 1)),
        (101, 100, (1, 0)),
        (100.7, 250.2, (0, 150)),
        (2**63, 2**64, (2**63 - 100, 2**64 - 100)),
        (50, 60, None),
        (99, 101, None),
        (101, 99, None),
        (2**70, 2**80, None),
        (101, 2**64 + 100, None),
        (-(2**70), 101, None),
    ],
)
def test_a_time_that_has_no_place_is_discarded(module, start, end, read):
    recorder = recorder_of(module, zero=100)
    recorder.write("known", start, end, {})
    recorder.write("known", start, end, {"x": []})
    assert [event[3:5] for event in found(recorder.take())] == ([read, read] if read else [])
    assert recorder.discarded["encoding"] == (0 if read else 2)


def test_a_clock_may_be_far_from_64_bits(module):
    recorder = recorder_of(module, clock=iter([2**80 + 5, 2**80 + 7, 2**80]).__next__, zero=2**80)
    with recorder.span("step"):
        pass
    recorder.event("x")
    assert [event[3:5] for event in found(recorder.take())] == [(5, 7), (0, 0)]


# Calls that cannot be recorded


class Broken:
    def __str__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize("start", [None, float("nan"), "x"])
def test_what_cannot_be_encoded_leaves_a_hole_that_is_told(recorder, start):
    recorder.event("before", value=1)
    recorder.event("broken", value=Broken())
    recorder.event("broken", value=[Broken()])
    recorder.event(Broken())
    recorder.write("broken", start, 1, {"value": 1})
    recorder.write("broken", 1, 1, 5)
    recorder.event("before", value=2)
    chunks = recorder.take()
    assert [event.counter for event in found(chunks)] == [0, 6]
    assert json.loads(packets(chunks[0].data)[1].option) == {
        "discarded": {"encoding": 5},
        "ranges": [[1, 1, 5]],
    }
    assert_complete(recorder, chunks, ["encoding"])


def test_what_an_exception_of_the_program_interrupts_passes(recorder):
    class Interrupted:
        def __str__(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recorder.event("x", value=Interrupted())
    recorder.event("y")
    assert_complete(recorder, recorder.take())


def test_a_packet_longer_than_the_transport_carries_is_discarded(module):
    recorder = recorder_of(module, longest=100)
    recorder.event("x", text="y" * 100)
    recorder.event("x", text="y" * 10)  # with the report in front, this packet is also too long
    recorder.event("x")
    assert recorder.discarded["oversize"] >= 1
    recorder = recorder_of(module, longest=1000)
    recorder.event("x", text="y" * 1000)
    recorder.event("x", text="y")
    chunks = recorder.take()
    assert [event.counter for event in found(chunks)] == [1]
    assert_complete(recorder, chunks, ["oversize"])


def test_it_is_discarded_though_there_is_memory_for_it(module):
    recorder = recorder_of(module, longest=150)
    recorder.event("x")
    recorder.event("x", text="y" * 150)
    chunks = recorder.take()
    assert [event.counter for event in found(chunks)] == [0]
    assert recorder.discarded["oversize"] == 1
    assert recorder.next_numbers() == {1: 2}


def test_after_close_all_is_discarded_and_takes_no_number(recorder):
    recorder.event("x", a=1)
    recorder.close()
    recorder.event("x", a=1)
    with recorder.span("y"):
        pass
    assert len(found(recorder.take())) == 1
    assert (recorder.late, recorder.discarded["closed"]) == (2, 0)
    assert recorder.next_numbers() == {1: 1}  # a goodbye would count neither event


def test_what_the_sender_discards_is_counted(recorder):
    recorder.discard("refused")
    recorder.discard("no such reason")
    assert recorder.discarded == {
        "full": 0, "oversize": 0, "nested": 0, "encoding": 0, "unconnected": 0, "closed": 0, "refused": 1,
        "lost": 0, "given_up": 0, "uncounted": 0, "limit": 0,
    }  # fmt: skip
    assert recorder.next_numbers() == {}


# Memory


@pytest.mark.parametrize("chunk", [100, 1432, 2**16])
def test_no_more_is_kept_than_the_limit_until_it_is_released(module, chunk):
    recorder = recorder_of(module, limit=10_000, chunk=chunk)
    kept = []
    for number in range(1000):
        recorder.event("event", number=number)
        if number % 7 == 0:
            kept += recorder.take()
    kept += recorder.take()
    size = sum(len(chunk.data) for chunk in kept)
    assert 9_900 < size <= 10_000
    assert recorder.discarded["full"] == 1000 - len(found(kept))
    assert recorder.next_numbers() == {1: 1000}
    recorder.release(size)
    recorder.event("event", number=1000)
    assert_complete(recorder, kept + recorder.take())


def test_the_limit_is_one_for_all_threads(module):
    recorder = recorder_of(module, limit=50_000, chunk=1432)
    go = threading.Barrier(8)

    def work():
        go.wait(20)
        for number in range(500):
            recorder.event("event", number=number, text="x" * (number % 50))
        go.wait(20)

    run_all([work] * 8)
    chunks = recorder.take()
    size = sum(len(chunk.data) for chunk in chunks)
    assert 45_000 < size <= 50_000
    assert (
        sum(recorder.discarded.values()) == recorder.discarded["full"] == 4000 - len(found(chunks))
    )


def test_chunks_are_whole_packets_and_no_longer_than_asked(module):
    recorder = recorder_of(module, chunk=300)
    for number in range(100):
        recorder.event("event", text="x" * ((number * 37) % 400))
    chunks = recorder.take()
    long = [chunk for chunk in chunks if len(chunk.data) > 300]
    assert all(chunk.next - chunk.first == 1 for chunk in long)
    assert 0 < len(long) < len(chunks) < 100
    assert_complete(recorder, chunks)


def test_the_sender_is_told_of_the_first_packet_and_of_each_chunk(module):
    told = []
    recorder = recorder_of(
        module,
        chunk=1000,
        started=lambda: told.append("started"),
        filled=lambda: told.append("filled"),
    )
    recorder.event("event")
    recorder.event("event")
    assert told == ["started"]
    recorder.take()
    recorder.take()
    recorder.event("event")
    assert told == ["started"] * 2
    size = 0
    while size < 20_000:
        recorder.event("event", x=1)
        size += 58
    assert told.count("started") == 2
    assert 18 <= told.count("filled") <= 21


def test_what_the_sender_raises_never_reaches_the_program(module):
    def broken():
        raise OSError("no")

    recorder = recorder_of(module, chunk=100, started=broken, filled=broken)
    for _ in range(20):
        recorder.event("event")
    assert len(found(recorder.take())) == 20


# Threads


def run_all(functions):
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture
def hasty():
    """Let the interpreter switch between threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_sixteen_threads_lose_nothing_while_it_is_taken(module, hasty):
    recorder = recorder_of(module, clock=time.monotonic_ns, chunk=1432)
    chunks, over, go = [], threading.Event(), threading.Barrier(16)

    def work(index):
        go.wait(20)
        if index % 4 == 0:
            recorder.use_stream(100)  # four threads share this stream
        if index == 7:
            recorder.use_stream(2)  # perhaps the own stream of another thread
        for number in range(1000):
            if number % 3:
                recorder.event("fast", index=index, number=number)
            elif number % 2:
                recorder.event("slow", index=index, number=number, more=None)
            else:
                with recorder.span("span", index=index) as span:
                    span.set(number=number)
        go.wait(20)

    def take():
        while not over.is_set():
            taken = recorder.take()
            chunks.extend(taken)
            recorder.release(sum(len(chunk.data) for chunk in taken))

    taker = threading.Thread(target=take)
    taker.start()
    run_all([lambda index=index: work(index) for index in range(16)])
    over.set()
    taker.join(20)
    chunks += recorder.take()
    assert_complete(recorder, chunks, [])
    assert sum(recorder.next_numbers().values()) == 16_000
    written = defaultdict(list)
    for event in found(chunks):
        values = {name: value for name, _, value in event.attributes}
        written[values["index"]].append(values["number"])
    assert written == {index: list(range(1000)) for index in range(16)}


def test_each_thread_has_a_stream_and_one_that_comes_later_goes_on_with_it(recorder):
    recorder.event("main")
    for _ in range(3):
        run_all([lambda: recorder.event("other")])
    assert recorder.next_numbers() == {1: 1, 2: 3}
    assert_complete(recorder, recorder.take())


def test_a_thread_chooses_a_stream_and_goes_back_to_its_own(recorder):
    recorder.use_stream(2**32 - 1)
    recorder.event("chosen")
    recorder.use_stream(None)
    recorder.event("own")
    recorder.use_stream(2**32 - 1)
    recorder.event("chosen")
    run_all([lambda: (recorder.use_stream(1), recorder.event("shared"))])
    recorder.use_stream(None)
    recorder.event("shared", x=1)
    assert recorder.next_numbers() == {2**32 - 1: 2, 1: 3}
    assert_complete(recorder, recorder.take())


def test_a_thread_that_goes_on_with_another_ones_stream_starts_with_its_own(recorder):
    recorder.event("main")
    run_all([lambda: (recorder.event("own"), recorder.use_stream(50), recorder.event("chosen"))])
    run_all([lambda: recorder.event("own")])
    assert recorder.next_numbers() == {1: 1, 2: 2, 50: 1}


@pytest.mark.parametrize("number", [-1, 2**32, 2**100, -(2**100)])
def test_a_stream_must_fit_its_field(recorder, number):
    with pytest.raises(ValueError, match="is not a stream: 0 to 4294967295"):
        recorder.use_stream(number)


def test_many_streams_of_one_thread(recorder):
    for number in range(3000):
        recorder.use_stream(number)
        recorder.event("x", number=number)
    chunks = recorder.take()
    assert [(chunk.stream, chunk.first, chunk.next) for chunk in chunks] == [
        (number, 0, 1) for number in range(3000)
    ]


def test_reset_forgets_everything(recorder):
    recorder.use_stream(5)
    for _ in range(3):
        recorder.event("of the parent")
    recorder.discard("refused")
    with recorder.span("begun before"):
        recorder.reset(10)
    recorder.write("known", 1010, 1020, {})
    assert not any(recorder.discarded.values())
    assert [event[:5] for event in found(recorder.take())] == [
        (1, 0, 0, 30, 40),
        (1, 1, 0, 1000, 1010),
    ]


# Interruptions


@pytest.fixture
def alarms():
    """Yield a function that lets another function run as a signal handler, as often as possible."""
    calls = []
    gc.disable()  # otherwise an exception could hit callbacks of others, as of hypothesis

    def start(function):
        calls.append(signal.signal(signal.SIGALRM, lambda *_: function()))
        signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)

    yield start
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, calls[0])
    gc.enable()


def test_values_and_destructors_may_emit(recorder):
    class Emitting:
        def __str__(self):
            recorder.event("inner", x=1)
            return "x"

        def __del__(self):
            recorder.event("destroyed")

    for _ in range(100):
        recorder.event("outer", value=Emitting())
    gc.collect()
    chunks = recorder.take()
    assert [event.description for event in found(chunks)[:3]] == ["inner", "outer", "destroyed"]
    assert_complete(recorder, chunks, [])
    assert recorder.next_numbers() == {1: 300}


def test_signal_handlers_may_emit_at_any_moment(module, alarms):
    chunks, interrupted = [], []

    def handler():
        interrupted.append(1)
        recorder.event("interrupted", x=1)
        recorder.event("interrupted", x=None)

    recorder = recorder_of(module, clock=time.monotonic_ns, chunk=1432, limit=2**24)
    handler()  # make the packer of these events before a signal can interrupt this
    alarms(handler)
    emitted = 0
    deadline = time.monotonic() + 20
    while len(interrupted) < 300 and time.monotonic() < deadline:
        for number in range(100):
            recorder.event("fast", number=number)
            recorder.event("slow", number=None)
        emitted += 200
        chunks += recorder.take()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)  # another thread may still take the last alarm
    recorder.event("last")
    chunks += recorder.take()
    assert_complete(recorder, chunks, ["nested"])
    assert sum(recorder.next_numbers().values()) == emitted + 2 * len(interrupted) + 1


def test_where_the_stack_ends_an_event_may_be_lost_but_not_its_number(recorder):
    def descend(depth):
        recorder.event("fast", depth=depth)
        recorder.event("slow", depth=None)
        with recorder.span("span", depth=depth):
            descend(depth + 1)

    chunks, released = [], 0
    for depth in range(20):
        with pytest.raises(RecursionError):
            eval("[" * depth + "descend(0)" + "]" * depth, {"descend": descend})  # noqa: S307
        recorder.event("after")
        chunks += recorder.take()
        recorder.release(sum(len(chunk.data) for chunk in chunks) - released)
        released = sum(len(chunk.data) for chunk in chunks)
    assert_complete(recorder, chunks, ["nested", "encoding"])


def test_an_exception_out_of_a_signal_handler_leaves_all_in_order(module, alarms):
    """Ctrl-C may arrive at any time, also between an event's number and its packet."""
    armed, hits, chunks = False, 0, []

    class Stop(BaseException):
        pass

    def handler():
        nonlocal armed
        if armed:
            armed = False
            raise Stop

    recorder = recorder_of(module, clock=time.monotonic_ns, chunk=1432, limit=100_000)
    alarms(handler)
    deadline = time.monotonic() + 20
    while hits < 300 and time.monotonic() < deadline:
        try:
            armed = True
            for number in range(10_000):
                recorder.event("fast", number=number)
                with recorder.span("slow", number=None):
                    pass
        except Stop:
            hits += 1
        armed = False
        taken = recorder.take()
        chunks += taken
        recorder.release(sum(len(chunk.data) for chunk in taken))
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)  # another thread may still take the last alarm
    recorder.event("last")
    chunks += recorder.take()
    assert_complete(recorder, chunks)
    assert hits > 0


def test_a_signal_handler_may_emit_while_its_thread_takes_a_lane_over():
    """Test only the recorder in Python, because the compiled one has no locks. A profiler takes the place of the signal
    handler."""
    recorder = recorder_of(PURE)
    both = threading.Barrier(2)
    run_all([lambda: (recorder.event("before"), both.wait())] * 2)  # leaves two free lanes
    emitted = []

    def handler(frame, what, _):
        if what == "call" and frame.f_code.co_name == "_leave" and not emitted:
            emitted.append("once")
            recorder.event("handler")

    def waited(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, waited)
    signal.setitimer(signal.ITIMER_REAL, 5)
    sys.setprofile(handler)
    try:
        recorder.event("event")
    finally:
        sys.setprofile(None)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert emitted
    chunks = recorder.take()
    assert_complete(recorder, chunks)
    assert sorted(event.description for event in found(chunks)) == [
        "before",
        "before",
        "event",
        "handler",
    ]


def test_a_take_that_is_interrupted_loses_nothing(monkeypatch):
    """Test only the recorder in Python, because the compiled one runs no Python code during `take`."""
    recorder = recorder_of(PURE, chunk=200)
    for stream in (1, 2, 3):
        recorder.use_stream(stream)
        for number in range(10):
            recorder.event("event", number=number)
    cut, calls = _recorder.cut, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return cut(*args)

    monkeypatch.setattr(_recorder, "cut", interrupted)
    with pytest.raises(KeyboardInterrupt):
        recorder.take()
    recorder.event("event")
    chunks = recorder.take()
    assert_complete(recorder, chunks)
    assert len(found(chunks)) == 31


# Off


def test_off_nothing_happens_and_one_span_is_all(module):
    with module.span("x", a=1) as span:
        span.set(b=2)
        assert span is module.OFF is module.span("y")
    assert isinstance(span, module.Span)
    with pytest.raises(KeyError), module.span("x"):
        raise KeyError
    module.event("x", a=1)
    module.counter("x", 1, a=1)
    module.write("x", 1, 2, a=1)


def test_switched_on_the_functions_record(module, recorder):
    module.switch(recorder)
    try:
        with module.span("span", a=1):
            module.event("event", name=2)
        module.counter("counter", 3, value=4)
        module.write("known", 5, 6, start=7)
    finally:
        module.switch(None)
    module.event("off")
    assert [event[3:] for event in found(recorder.take())] == [
        (20, 20, "event", [("name", 1, 2)]),
        (10, 30, "span", [("a", 1, 1)]),
        (40, 40, "counter", [("tailrace.counter", 1, 3), ("value", 1, 4)]),
        (5, 6, "known", [("start", 1, 7)]),
    ]


def test_recorders_that_are_no_more_take_their_memory_with_them(module):
    for _ in range(50):
        recorder = recorder_of(module)
        holder = [recorder]
        cycle = recorder_of(module, filled=holder.clear, started=lambda: None)
        holder.append(cycle)
        for one in (recorder, cycle):
            run_all([lambda one=one: one.event("x", text="y" * random.randrange(1000))])
            one.event("x", holder=holder)
    gc.collect()
