"""Ticks to wall time: exact where it can be, never an exception. Attributes of two records as those of one."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, strategies as st

from tailrace.normalize import INT64_MAX, INT64_MIN, united, wall_times

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


# Attributes


names = st.sampled_from(["a", "b", 'quo"te', "ü", "$flaw", "$name"])
values = (
    st.none() | st.integers(-3, 3) | st.text(max_size=3) | st.lists(st.integers(0, 1), max_size=2)
)
objects = st.none() | st.dictionaries(names, values).map(
    lambda each: json.dumps(each, separators=(",", ":"))
)


@given(objects, objects)
def test_a_span_has_the_attributes_of_its_end_and_its_begin_each_name_once(ends, begins):
    pairs = json.loads(united(ends, begins) or "{}", object_pairs_hook=list)
    found = dict(pairs)
    assert len(found) == len(pairs)
    ours, theirs = json.loads(ends or "{}"), json.loads(begins or "{}")
    changed = {name: value for name, value in theirs.items() if ours.get(name, value) != value}
    changed |= {n: v for n, v in theirs.items() if n in ours and type(ours[n]) is not type(v)}
    assert dict(found.pop("$begin", [])) == changed
    assert found == theirs | ours


def test_a_span_asks_for_the_names_of_members_as_both_of_its_records_do():
    found = united('{"$late":{"a":"k1"},"x":1}', '{"$late":{"b":"k2"},"x":1}')
    assert json.loads(found) == {"$late": {"a": "k1", "b": "k2"}, "x": 1}
