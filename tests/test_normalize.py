"""Ticks to wall time: exact where it can be, never an exception."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, strategies as st

from tailrace.config.schema import LedgerConfig
from tailrace.ledger.references import References, ReferencesState
from tailrace.model.record import Record
from tailrace.normalize import (
    ATTRIBUTES,
    INT64_MAX,
    INT64_MIN,
    KIND,
    NAME,
    ForgottenSpans,
    OpenSpan,
    Spans,
    wall_times,
)

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


def test_a_rate_next_to_nothing_gives_no_time():
    assert wall_times([2**62], 0, math.ulp(0.0)) == [None]


# Spans


def event(kind, *, id_=1, name=None, attributes=None, at=0):
    return Record(
        0, 0, kind, "1", None, None, name, None, id_, None, at, at, attributes, None, None
    )  # fmt: skip


def taken(*records, open_=None):
    """Kind, name and attributes of the rows that records become."""
    limits = LedgerConfig()
    columns = [list(column) for column in zip(*records, strict=True)]
    Spans(
        limits,
        References(limits, "", ReferencesState()),
        {} if open_ is None else open_,
        ForgottenSpans(),
    ).take(columns, 0)
    return list(zip(columns[KIND], columns[NAME], columns[ATTRIBUTES], strict=True))


ASKS = '{"$name":"task:1\\u00e9\\"","x":1}'


@pytest.mark.parametrize(
    ("ends_with", "attributes"),
    [
        (None, '{"$name":"task:1é\\""}'),
        ("{}", '{"$name":"task:1é\\""}'),
        ('{"y":2}', '{"$name":"task:1é\\"","y":2}'),
        ('{"$name":"its own","y":2}', '{"$name":"its own","y":2}'),
    ],
)
def test_a_span_asks_for_its_name_as_its_begin_did(ends_with, attributes):
    rows = taken(event("begin", attributes=ASKS), event("end", at=2, attributes=ends_with))
    assert rows == [("begin", None, ASKS), ("span", None, attributes)]


def test_a_span_asks_also_when_its_begin_came_in_an_earlier_chunk_and_life():
    open_ = {}
    taken(event("begin", attributes=ASKS), open_=open_)
    saved = msgspec.msgpack.encode(open_)
    restored = msgspec.msgpack.decode(saved, type=dict[int, OpenSpan])
    assert taken(event("end"), open_=restored) == [("span", None, '{"$name":"task:1é\\""}')]


def test_an_open_span_of_a_checkpoint_without_keys_is_still_read():
    saved = msgspec.msgpack.encode({1: [5, "n", None, None]})
    assert msgspec.msgpack.decode(saved, type=dict[int, OpenSpan])[1].asked is None


@pytest.mark.parametrize(
    "attributes", [None, '{"x":"$name"}', '{"$name":1}', '{"$name":"', "$name"]
)
def test_a_begin_that_has_a_name_or_asks_for_none_asks_for_none_at_its_end(attributes):
    assert taken(event("begin", attributes=attributes), event("end"))[1] == ("span", None, None)
    assert taken(event("begin", name="n", attributes=ASKS), event("end"))[1] == ("span", "n", None)
