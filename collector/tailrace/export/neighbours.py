"""Find the events around places in a stream, in one pass over events in any order.

Memory is that of the places, not of the events: a join in the database holds one side or sorts it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

Seen = tuple[int, int]
"""An event: its number, and the time at which it begins."""


class Neighbours:
    """The nearest event below each of some numbers, and above each of some others."""

    def __init__(self, lows: Iterable[int], highs: Iterable[int]) -> None:
        self._lows, self._highs = sorted(set(lows)), sorted(set(highs))
        self._below: list[Seen | None] = [None] * len(self._lows)
        self._above: list[Seen | None] = [None] * len(self._highs)

    def see(self, number: int, time: int) -> None:
        """Take an event. It may be nearest to the next place on either side; `below` looks further."""
        low = bisect_right(self._lows, number)
        if low < len(self._lows):
            found = self._below[low]
            if found is None or found[0] < number:
                self._below[low] = (number, time)
        high = bisect_left(self._highs, number) - 1
        if high >= 0:
            found = self._above[high]
            if found is None or found[0] > number:
                self._above[high] = (number, time)

    def below(self, low: int) -> int | None:
        """Return the time of the event with the highest number below one of `lows`."""
        for index in range(bisect_left(self._lows, low), -1, -1):
            if (found := self._below[index]) is not None:
                return found[1]
        return None

    def above(self, high: int) -> int | None:
        """Return the time of the event with the lowest number above one of `highs`."""
        for index in range(bisect_left(self._highs, high), len(self._highs)):
            if (found := self._above[index]) is not None:
                return found[1]
        return None
