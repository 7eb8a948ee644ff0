"""The nearest event on either side, whatever the order in which events come."""

from __future__ import annotations

from hypothesis import given, strategies as st

from tailrace.export.lost import Neighbours

NUMBERS = st.lists(st.integers(0, 30), max_size=15)


@given(NUMBERS, NUMBERS, st.permutations(range(0, 31, 2)), st.integers(0, 16))
def test_the_nearest_events_are_found(lows, highs, events, count):
    neighbours = Neighbours(lows, highs)
    seen = events[:count]
    for number in seen:
        neighbours.see(number, 1000 + number)
    for low in lows:
        nearest = max((n for n in seen if n < low), default=None)
        assert neighbours.below(low) == (None if nearest is None else 1000 + nearest)
    for high in highs:
        nearest = min((n for n in seen if n > high), default=None)
        assert neighbours.above(high) == (None if nearest is None else 1000 + nearest)
