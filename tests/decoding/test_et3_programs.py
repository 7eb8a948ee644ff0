"""Test ET3 with random programs: the decoder reports lines as missing that were removed, and never more lines."""

from __future__ import annotations

import random
from typing import NamedTuple

import msgspec
from hypothesis import given, settings, strategies as st

from tailrace.decoding.formats.et3 import FORMAT
from tailrace.model.record import Kind, Record

THREADS = (1766822961, 1191747167, 511967813)
FEW = settings(max_examples=150, deadline=None)
seeds = st.integers(0, 2**32)


class Event(NamedTuple):
    """A line without its last field. `clock` is the number of entries and exits up to this line, including it."""

    letter: str
    fields: tuple[int, ...]
    thread: int
    clock: int

    def stated(self) -> str:
        last = self.clock
        return self._line(self.thread, last) if self.letter == "D" else self._line(last)

    def threaded(self) -> str:
        return self._line(*((self.thread, self.clock) if self.letter == "D" else (self.thread,)))

    def _line(self, *last: int) -> str:
        return " ".join(map(str, (self.letter, *self.fields, *last))) + "\n"


class Program:
    """A random program: threads that call methods and create objects. With `exceptions`, frames may end without an
    exit.
    """

    def __init__(self, seed: int, *, threads: int, exceptions: bool = False) -> None:
        self.random = random.Random(seed)
        self.events: list[Event] = []
        self.spans: dict[int, tuple] = {}
        """For each frame that has ended: its thread, method, parent, start and end."""
        stacks: dict[int, list[tuple[int, int, int]]] = {t: [] for t in THREADS[:threads]}
        clock = begun = 0
        for _ in range(self.random.randrange(1, 150)):
            thread = self.random.choice(THREADS[:threads])
            stack = stacks[thread]
            step = self.random.random()
            if step < 0.4:
                clock, begun = clock + 1, begun + 1
                # Methods do not call themselves: if an exception had left one of several frames of a method, no line
                # would show which.
                method = self.random.randrange(10**6) if exceptions else self.random.randrange(5)
                stack.append((begun, method, clock))
                self.events.append(Event("M", (method, self.number()), thread, clock))
            elif step < 0.7 and stack:
                clock += 1
                if exceptions:
                    del stack[self.random.randrange(len(stack)) + 1 :]
                number, method, start = stack.pop()
                parent = stack[-1][0] if stack else None
                self.spans[number] = (thread, method, parent, start, clock)
                self.events.append(Event("E", (method,), thread, clock))
            else:
                letter, fields = self.random.choice(
                    [("N", 5), ("A", 5), ("U", 3), ("W", 2), ("D", 1), ("D", 1), ("D", 1)]
                )
                numbers = tuple(self.number() for _ in range(fields))
                self.events.append(Event(letter, numbers, thread, clock))
        self.clock = clock

    def number(self) -> int:
        return self.random.choice([0, self.random.randrange(2**31)])

    def without_some(self, odds: float) -> tuple[list[Event], list[Event]]:
        """Return the events that stay, and the events that are removed."""
        left, dropped = [], []
        for event in self.events:
            (dropped if self.random.random() < odds else left).append(event)
        return left, dropped


def decode(lines: list[str], path: str = "/run/trace", dialect: str = "auto") -> list[Record]:
    decoder = FORMAT.decoder(1 << 20, None)
    decoder.begin(path, dialect)
    return decoder.feed("".join(lines).encode()) + decoder.end()


def missing(records: list[Record]) -> int:
    return sum(
        r.detail.count * (1 if r.kind == Kind.GAP else -1)
        for r in records
        if r.kind in {Kind.GAP, Kind.HEAL}
    )


def begins_late(records: list[Record]) -> bool:
    """Whether lines may be missing before the first one."""
    return any(r.kind == Kind.GAP and r.name == "late_join" for r in records)


def ticks(events: list[Event]) -> int:
    return sum(event.letter in "ME" for event in events)


def spans(records: list[Record]) -> dict[int, tuple]:
    begins = {r.id: r for r in records if r.kind == Kind.BEGIN}
    assert list(begins) == list(range(1, len(begins) + 1))
    ended = {}
    for end in records:
        if end.kind == Kind.END:
            begin = begins[end.id]
            assert end.stream == begin.stream
            assert begin.attributes is not None
            method = int(begin.attributes.partition('"method_id":')[2].partition(",")[0])
            ended[end.id] = (begin.stream, method, begin.parent, begin.start, end.end)
    return ended


@FEW
@given(seeds)
def test_spans_of_the_specifications_form_are_the_programs(seed: int) -> None:
    program = Program(seed, threads=1)
    records = decode([event.stated() for event in program.events], dialect="specification")
    assert spans(records) == {n: ("", *rest) for n, (_, *rest) in program.spans.items()}
    assert missing(records) == 0
    assert {record.flaw for record in records} <= {None}


@FEW
@given(seeds, st.integers(1, 3), st.booleans())
def test_spans_of_the_agents_form_are_the_programs(
    seed: int, threads: int, exceptions: bool
) -> None:
    program = Program(seed, threads=threads, exceptions=exceptions)
    for path in ("/run/trace", "/run/trace_reordered"):
        records = decode([event.threaded() for event in program.events], path, "agent")
        assert spans(records) == {n: (str(t), *rest) for n, (t, *rest) in program.spans.items()}
        assert missing(records) == 0
        assert {record.flaw for record in records} <= {None}


@FEW
@given(seeds, st.sampled_from([0.02, 0.2, 0.7]))
def test_the_specifications_clock_misses_what_was_dropped(seed: int, odds: float) -> None:
    """Lines that are missing at the end of the trace are unknown, and those before its first line may be in another file."""
    left, dropped = Program(seed, threads=1).without_some(odds)
    end = max((event.clock for event in left), default=0)
    records = decode([event.stated() for event in left], dialect="specification")
    first = began(left)
    assert missing(records) == ticks([e for e in dropped if first < e.clock <= end])
    assert begins_late(records) == any(ticks([e]) and e.clock <= min(first, end) for e in dropped)


def began(left: list[Event]) -> int:
    """The first time of a trace. A death at 0 tells none."""
    return next((event.clock for event in left if event.letter != "D" or event.clock), 0)


def aligned(left: list[Event]) -> bool:
    """Whether the first two deaths with an entry or exit in between lack nothing before them."""
    seen, alike = 0, set()
    for event in left:
        seen += ticks([event])
        if event.letter == "D":
            if event.clock > seen:
                return False
            alike.add(seen)
        if len(alike) > 1:
            return True
    return False


@FEW
@given(seeds)
def test_lines_out_of_their_order_are_not_missing(seed: int) -> None:
    program = Program(seed, threads=1)
    events = list(program.events)
    for _ in range(5):
        at = program.random.randrange(len(events))
        events.insert(min(at + program.random.randrange(6), len(events) - 1), events.pop(at))
    if events[0].clock > 1 and any(e.clock == 1 and e.letter == "M" for e in events):
        events.sort(key=lambda event: event.clock != 1)
    records = decode([event.stated() for event in events], dialect="specification")
    assert missing(records) == 0
    assert len([r for r in records if r.size]) == len(events)


@FEW
@given(seeds, st.sampled_from([0.02, 0.2]), st.sampled_from([0.02, 0.2]))
def test_what_cannot_be_read_is_not_missing_a_second_time(
    seed: int, odds: float, damaged: float
) -> None:
    """The missing lines are the holes of the clock, without the unreadable lines in them."""
    program = Program(seed, threads=1)
    left, dropped = program.without_some(odds)
    good, spoiled, lines = [], [], []
    for event in left:
        spoil = program.random.random() < damaged
        (spoiled if spoil else good).append(event)
        lines.append("M 1 what\n" if spoil else event.stated())
    claimed = missing(decode(lines, dialect="specification"))
    end, first = max((event.clock for event in good), default=0), began(good)
    seen = [event for event in (*dropped, *spoiled) if first < event.clock <= end]
    assert max(0, ticks(seen) - len(spoiled)) <= claimed <= ticks(dropped)


@FEW
@given(seeds, st.integers(1, 3), st.sampled_from([0.02, 0.2, 0.7]), st.booleans())
def test_a_reordered_trace_misses_what_was_dropped_before_its_last_death(
    seed: int, threads: int, odds: float, exceptions: bool
) -> None:
    left, dropped = Program(seed, threads=threads, exceptions=exceptions).without_some(odds)
    lines = [event.threaded() for event in left]
    records = decode(lines, "/run/trace_reordered", "agent")
    end = max((event.clock for event in left if event.letter == "D"), default=0)
    lost = ticks([event for event in dropped if event.clock <= end])
    assert missing(records) <= ticks(dropped)
    taken_back = any(record.kind == Kind.HEAL for record in records)
    assert missing(records) >= lost or (begins_late(records) and (taken_back or not aligned(left)))
    # If only deaths show the losses, the reported number may be too small, but is never too large.
    assert missing(decode(lines, "/run/trace", "agent")) <= ticks(dropped)


@FEW
@given(seeds, st.integers(1, 3), st.sampled_from([0, 0, 0.02, 0.2]), st.booleans())
def test_lines_of_the_agents_form_may_stand_in_any_order(
    seed: int, threads: int, odds: float, exceptions: bool
) -> None:
    """Only the order of lines matches exits with entries. So an unknown number may be missing, but no more than were
    dropped."""
    left, dropped = Program(seed, threads=threads, exceptions=exceptions).without_some(odds)
    lines = [event.threaded() for event in left]
    for path in ("/run/trace", "/run/trace_reordered", "/run/trace_with_deaths"):
        for order in (lines[::-1], sorted(lines), random.Random(seed).sample(lines, len(lines))):
            assert missing(decode(order, path, "agent")) <= ticks(dropped)
        assert missing(decode(lines, path, "agent")) <= ticks(dropped)


@FEW
@given(seeds, st.sampled_from([0.02, 0.2, 0.7]))
def test_deaths_at_the_end_miss_what_was_dropped_before_the_latest(seed: int, odds: float) -> None:
    left, dropped = Program(seed, threads=2).without_some(odds)
    deaths = [event for event in left if event.letter == "D"]
    lines = [event.threaded() for event in left if event.letter != "D"]
    lines += [event.threaded() for event in deaths]
    records = decode(lines, "/run/trace_with_deaths", "agent")
    claimed = missing(records)
    seen = ticks(left) + claimed
    assert seen >= max((event.clock for event in deaths), default=0) or begins_late(records)
    assert claimed <= ticks(dropped)


@FEW
@given(seeds, st.integers(1, 3))
def test_a_running_agents_clock_claims_nothing(seed: int, threads: int) -> None:
    """An agent's clock also ticks for calls that are not written, several times for each written call."""
    program = Program(seed, threads=threads)
    hidden = 0
    lines = []
    for event in program.events:
        hidden += program.random.randrange(1, 40) if event.letter in "ME" else 0
        lines.append(event._replace(clock=event.clock + hidden).threaded())
    assert missing(decode(lines, dialect="agent")) == 0


def told(records: list[Record]) -> list[tuple]:
    return [tuple(record)[2:] for record in records]


@FEW
@given(seeds, st.booleans())
def test_lines_read_many_at_once_are_as_those_read_one_by_one(seed: int, stated: bool) -> None:
    """A line with a carriage return is not usual."""
    left, _ = Program(seed, threads=1 if stated else 2).without_some(0.05)
    lines = [event.stated() if stated else event.threaded() for event in left]
    odd = [line.replace("\n", "\r\n") for line in lines]
    for path in ("/run/trace", "/run/trace_reordered"):
        assert told(decode(lines, path)) == told(decode(odd, path))


@FEW
@given(seeds, st.booleans(), st.floats(0, 1), st.floats(0, 1))
def test_a_decoder_goes_on_from_its_state_with_the_names_it_had(
    seed: int, stated: bool, cut: float, told_at: float
) -> None:
    left, _ = Program(seed, threads=1 if stated else 3).without_some(0.05)
    data = "".join(event.stated() if stated else event.threaded() for event in left).encode()
    document = b"".join(b"A#m%d,%d\n" % (n, n) for n in range(4))
    at, known = int(cut * len(data)), int(told_at * len(data))

    def run(stops: list[int]) -> list[Record]:
        decoder = FORMAT.decoder(1 << 16, None)
        decoder.begin("/run/trace_reordered", "auto")
        records: list[Record] = []
        begin = 0
        for stop in sorted({*stops, known, len(data)}):
            records += decoder.feed(data[begin:stop])
            if stop == known:
                records += decoder.document("methods.list", document)
            if stop in stops:
                saved = msgspec.msgpack.encode(decoder.state)
                state = msgspec.msgpack.decode(saved, type=FORMAT.state_type)
                decoder = FORMAT.decoder(1 << 16, state)
            begin = stop
        return records + decoder.end()

    assert run([at]) == run([])
