"""Ticks to wall time: exact where it can be, never an exception."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from tailrace import kernels
from tailrace.ingest.incarnation_rows import (
    INT64_MAX,
    INT64_MIN,
    RecordRows,
    block_times,
    wall_times,
)
from tailrace.ingest.state import IncarnationState, Tally
from tailrace.model.record import Kind, Record
from tailrace.rows.block import Block, Integers, Words
from tailrace.rows.schema import ROW
from tests.rows.packing import packed

int64 = st.integers(INT64_MIN, INT64_MAX)
rates = st.floats(min_value=0, exclude_min=True, allow_infinity=False)


@given(st.lists(st.none() | int64), st.none() | int64, st.none() | rates | st.just(1e9))
def test_a_wall_time_is_in_64_bits_or_none_and_nothing_raises(starts, epoch, rate):
    times = wall_times(starts, epoch, rate)
    assert len(times) == len(starts)
    assert all(time is None or INT64_MIN <= time <= INT64_MAX for time in times)
    if epoch is None or rate is None:
        assert set(times) <= {None}


@pytest.mark.parametrize(
    ("ticks", "rate", "nanoseconds"),
    [(7, 1e9, 7), (3, 1e6, 3000), (5, 2e9, 2), (10, 2.5e9, 4), (3, 0.5, 6 * 10**9)],
)
def test_ticks_are_scaled_by_their_rate(ticks, rate, nanoseconds):
    assert wall_times([ticks, None], 10**18, rate) == [10**18 + nanoseconds, None]


def with_starts(starts):
    """A block of events that have nothing but their starts."""
    offsets = Integers.of(range(len(starts)))
    nothing, one = bytes(4 * len(starts)), [""]
    words = Words(nothing, one, 1)
    values = dict.fromkeys(Block._fields[6:])
    return Block(len(starts), len(starts), offsets, offsets, words, words, **values)._replace(
        start=Integers.of(starts)
    )


@pytest.mark.skipif(not kernels.active(), reason="kernels are off")
@given(
    st.lists(st.none() | int64, min_size=1),
    st.none() | st.integers(0, 2**64 - 1) | int64,
    st.none() | rates | st.sampled_from([1e9, 1e6, 1.0]),
)
def test_the_times_of_a_block_are_those_of_its_starts(starts, epoch, rate):
    times = block_times(with_starts(starts), epoch, rate)
    found = [None] * len(starts) if times is None else times.list(len(starts))
    assert found == wall_times(starts, epoch, rate)


def test_a_rate_next_to_nothing_gives_no_time():
    assert wall_times([2**62], 0, math.ulp(0.0)) == [None]


def test_flaws_of_a_block_are_counted_and_written_as_those_of_records():
    """DFTracer's kernel packs records with a backslash."""
    one = Record(0, 9, Kind.SPAN, "1", None, None, "n", "c", None, None, 1, 2, None, None, None)
    records = [one._replace(offset=9 * i, flaw=("backslash", None)[i % 2]) for i in range(5)]
    records[2] = records[2]._replace(attributes='{"id":1}')
    tallies, emitted = (Tally(), Tally()), []
    rows = [
        RecordRows(IncarnationState("x"), tally, lambda _, some, __: emitted.append(some))
        for tally in tallies
    ]
    block = packed(records)
    rows[0].write(block.columns(), [None] * len(records))
    rows[1].write_block(block)
    assert tallies[0].flaws == tallies[1].flaws == {"backslash": 3}
    attributes = ROW.index("attributes")
    assert emitted[0][attributes] == block.column(emitted[1].columns()[attributes])
