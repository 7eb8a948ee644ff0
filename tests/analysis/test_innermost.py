"""Each moment of a lane belongs to the span that began last and is still open."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from tailrace.analysis.flame import LaneSpan, shares

SPANS = st.lists(
    st.tuples(st.integers(-20, 20), st.integers(-2, 15), st.sampled_from("abc")), max_size=12
)


def in_order(spans):
    return sorted((LaneSpan(*span) for span in spans), key=lambda s: (s.start, -s.end))


def by_the_tick(spans):
    """The shares, found by asking at each tick which spans are open."""
    found = Counter()
    for tick in range(-20, 40):
        last = [span for span in spans if span.start <= tick < span.end][-1:]
        found.update(span.owner for span in last)
    return found


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], {}),
        ([(0, 10, "a")], {"a": 10}),
        ([(0, 10, "a"), (2, 5, "b")], {"a": 7, "b": 3}),
        ([(0, 10, "a"), (2, 5, "b"), (5, 10, "b")], {"a": 2, "b": 8}),
        ([(0, 10, "a"), (0, 10, "b")], {"b": 10}),
        ([(0, 6, "a"), (4, 9, "b")], {"a": 4, "b": 5}),
        ([(0, 4, "a"), (8, 9, "a")], {"a": 5}),
        ([(0, 10, "a"), (3, 3, "b")], {"a": 10}),
        ([(0, 10, "a"), (3, 1, "b")], {"a": 10}),
    ],
)
def test_shares(spans, expected):
    assert shares(LaneSpan(*span) for span in spans) == expected


@given(SPANS)
def test_every_tick_is_shared_as_if_it_were_asked_for_alone(spans):
    spans = in_order(spans)
    assert {k: v for k, v in shares(spans).items() if v} == by_the_tick(spans)


def test_times_may_be_as_large_as_the_table_holds():
    assert shares([LaneSpan(-(2**63), 2**63 - 1, "a")]) == {"a": 2**64 - 1}
