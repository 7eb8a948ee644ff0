"""The kernel and the ledger in Python count the events of a block as the ledger counts those of lists."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from tailrace.config.schema import LedgerConfig
from tailrace.kernels import active
from tailrace.ledger.bounds import Commons, CommonsState
from tailrace.ledger.counters import Counters
from tailrace.ledger.stream import CountersState
from tailrace.model.record import Kind, Record
from tailrace.rows.block import Integers
from tailrace.rows.fields import COUNTER, STREAM
from tailrace.rows.records import marks_of
from tests.forms import examples
from tests.rows.packing import packed

if active():
    from tailrace.ledger._observe import InOrder, hear

pytestmark = pytest.mark.skipif(not active(), reason="kernels are off or not built")
BITS = 12
WINDOW = 16
WINDOWS = [WINDOW, 150]
"""Ranges of fewer numbers than are kept near zero, and of more."""


def event(stream, count, time, size):
    return Record(
        0, size, Kind.SPAN, str(stream), None, count % 2**BITS,
        None, None, None, None, time, time + 3, None, None, None,
    )  # fmt: skip


@st.composite
def traffic(draw):
    """Events of some streams: most in order, some late, doubled, lost, far away, of a stream that begins anew,
    or in a stream that counts nothing."""
    at = [
        draw(st.sampled_from([0, 0, 3, 60, 2**BITS - 70])) for _ in range(draw(st.integers(1, 4)))
    ]
    events, time = [], 1000
    for _ in range(draw(st.integers(1, 40))):
        stream = draw(st.integers(0, len(at) - 1))
        time += draw(st.integers(0, 50))
        what = draw(st.sampled_from(["run", "run", "run", "lost", "late", "far", "anew", "stuck"]))
        if what == "run":
            for _ in range(draw(st.integers(1, 90))):
                events.append(event(stream, at[stream], time, 50))
                at[stream] += 1
                time += 1
        elif what == "lost":
            at[stream] += draw(st.integers(1, 2 * WINDOW))
        elif what == "late":
            back = draw(st.integers(1, 2 * WINDOW))
            events.append(event(stream, max(0, at[stream] - back), max(0, time - back), 50))
        elif what == "far":
            events.append(event(stream, draw(st.integers(0, 2**BITS - 1)), time, 50))
        elif what == "anew":
            events.append(event(stream, 0, draw(st.integers(0, 5)), 50))
        else:
            events += [event(stream, at[stream], time + n, 50) for n in range(4)]
    cuts = draw(st.lists(st.integers(1, 200), max_size=4))
    return events, sorted({0, *(cut for cut in cuts if cut < len(events)), len(events)})


def ledger(limits):
    return Counters(limits, BITS, CountersState(), Commons(CommonsState(), lambda: False))


def as_lists(counters, events, now):
    columns = list(zip(*events, strict=True))
    seqs, restart = counters.observe(columns[STREAM], columns[COUNTER], marks_of(columns), now)
    return seqs, restart


def as_block(counters, events, now):
    block = packed(events)
    seqs = counters.count_block(block, now)
    numbers = seqs.list(len(events)) if isinstance(seqs, Integers) else seqs
    counters.hear_block(block, now)
    counters.note_seen((each.stream for each in events), len(numbers), now)
    return numbers, len(numbers) < len(events)


@examples(300)
@given(traffic(), st.sampled_from([2, 100]), st.sampled_from(WINDOWS))
def test_a_block_is_counted_like_lists(made, places, window):
    events, cuts = made
    limits = LedgerConfig(reorder_events=window, streams_max=places)
    listed, block = ledger(limits), ledger(limits)
    for begin, stop in pairwise(cuts):
        at = begin
        while at < stop:
            found = as_lists(listed, events[at:stop], at)
            assert as_block(block, events[at:stop], at) == found
            assert block.state == listed.state
            assert [*block.news] == [*listed.news]
            assert block.findings == listed.findings
            assert block.marks.count == listed.marks.count
            seqs, restart = found
            at += len(seqs) + restart


def test_streams_without_a_place_cost_nothing_to_the_others(monkeypatch):
    """Each look at all streams takes as long as there are streams: one for each event would take seconds."""
    looks = []

    class Counted(InOrder):
        def read_all(self):
            looks.append("read")
            super().read_all()

        def write_back(self):
            looks.append("write")
            super().write_back()

    counters = ledger(LedgerConfig(reorder_events=WINDOW, streams_max=2))
    as_block(counters, [event(stream, 0, 1000, 50) for stream in range(2)], 1)
    known = [event(number % 2, 1 + number // 2, 1010 + number, 50) for number in range(150)]
    as_block(counters, known, 2)
    monkeypatch.setattr("tailrace.ledger.counters.InOrder", Counted)
    other = [event(stream, number, 2000, 50) for number in range(20) for stream in range(2, 8)]
    late = [event(number % 2, 200 - number, 3000, 50) for number in range(20)]
    numbers, _ = as_block(counters, [*other, *late], 3)
    assert numbers[: len(other)] == [None] * len(other)
    assert looks.count("read") == 1, "when it begins"
    assert looks.count("write") == len(other) + 1


@pytest.mark.parametrize("window", [2 * WINDOW, max(WINDOWS)])
def test_python_counts_the_first_event_of_a_stream_and_no_other(monkeypatch, window):
    """A block may have thousands of streams that are all new: each costs one look, whatever the others."""
    looks, counted = [], []

    class Counted(InOrder):
        def read_all(self):
            looks.append("read")
            super().read_all()

    monkeypatch.setattr("tailrace.ledger.counters.InOrder", Counted)
    counters = ledger(LedgerConfig(reorder_events=window))
    one = counters.count_one
    monkeypatch.setattr(counters, "count_one", lambda *event: counted.append(event) or one(*event))
    rounds = [event(stream, number, 1000 + number, 50) for number in range(90) for stream in range(40)]  # fmt: skip
    numbers, _ = as_block(counters, rounds, 1)
    assert numbers == [number for number in range(90) for _ in range(40)]
    assert [count for _, count, *_ in counted] == [0] * 40
    assert looks == ["read"], "when it begins"


def test_streams_are_not_heard_beyond_what_a_block_holds():
    words = packed([event(0, 0, 1000, 50), event(1, 0, 1001, 50)]).stream
    with pytest.raises(ValueError, match="2 codes are not of 3 rows"):
        hear(words, 3, {}, {}, 1)
    with pytest.raises(ValueError, match="row 1 has stream 1 of 1"):
        hear(words._replace(known=1), 2, {}, {}, 1)
