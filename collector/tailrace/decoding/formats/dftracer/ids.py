"""Which of a producer's numbers 1, 2, 3, … have come, in any order; the holes are kept as ranges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

HOLES_MAX = 4096
"""How many holes are remembered. A run of eight threads had some tens at once."""


class IdsState(msgspec.Struct):
    """The number above all that have come, the holes below it, and whether the numbers are `believed`."""

    following: int = 1
    firsts: list[int] = []
    lasts: list[int] = []
    believed: bool = True


class Ids:
    """The numbers seen. A number that comes twice, is below 1 or makes too many holes shows that the numbers
    are no counter, or too scattered to remember: from then on they are not `believed`."""

    def __init__(self, state: IdsState | None = None) -> None:
        state = state or IdsState()
        self._following = state.following
        self._firsts = list(state.firsts)
        self._lasts = list(state.lasts)
        self.believed = state.believed
        self.given_up = 0
        """How many holes were forgotten because there were too many."""

    @property
    def state(self) -> IdsState:
        return IdsState(self._following, list(self._firsts), list(self._lasts), self.believed)

    @property
    def holes(self) -> list[tuple[int, int]]:
        """First and last number of each hole."""
        return list(zip(self._firsts, self._lasts, strict=True))

    @property
    def came(self) -> tuple[tuple[int, int], ...]:
        """First and last number of each range of numbers that came."""
        begins = [1, *(last + 1 for last in self._lasts)]
        ends = [*(first - 1 for first in self._firsts), self._following - 1]
        return tuple((a, b) for a, b in zip(begins, ends, strict=True) if a <= b)

    @property
    def ranges(self) -> int:
        return len(self._firsts)

    def lacks(self, number: int) -> bool:
        """Return whether this number is in a hole."""
        i = bisect_right(self._firsts, number) - 1
        return i >= 0 and number <= self._lasts[i]

    @property
    def begun(self) -> bool:
        """Whether the first number has come."""
        return self._following > 1 and not self.lacks(1)

    def add(self, numbers: Iterable[int]) -> None:
        """Add numbers in the order in which they came."""
        if not self.believed:
            return
        following = self._following
        for number in numbers:
            if number == following:
                following += 1
            elif number > following:
                self._firsts.append(following)
                self._lasts.append(number - 1)
                following = number + 1
                if len(self._firsts) > HOLES_MAX:
                    break
            elif not self._fill(number, number):
                break
        self._following = following
        self._judge()

    def add_ranges(self, ranges: Iterable[tuple[int, int]], breaks: int) -> bool:
        """Add ranges of numbers that came in some order, with so many `breaks` between a number and one that does not
        follow it. Return False, with nothing added, if that order may matter."""
        if not self.believed:
            return True
        if self.ranges + breaks >= HOLES_MAX:
            return False
        for first, last in ranges:
            begin = first
            if begin < self._following:
                begin = min(last + 1, self._following)
                self._fill(first, begin - 1)
            if begin > self._following:
                self._firsts.append(self._following)
                self._lasts.append(begin - 1)
            self._following = max(self._following, last + 1)
        self._judge()
        return True

    def doubt(self) -> None:
        """Forget everything: these numbers mean nothing."""
        self._following, self._firsts, self._lasts, self.believed = 1, [], [], False

    def give_up(self) -> None:
        """Forget everything for want of room."""
        self.given_up += self.ranges
        self.doubt()

    def _fill(self, begin: int, end: int) -> bool:
        """Fill a hole, or a part of it, with the numbers from `begin` to `end`. Return whether more may be added."""
        i = bisect_right(self._firsts, begin) - 1
        if i < 0 or end > self._lasts[i]:
            self.believed = False
            return False
        first, last = self._firsts[i], self._lasts[i]
        parts = [(a, b) for a, b in ((first, begin - 1), (end + 1, last)) if a <= b]
        self._firsts[i : i + 1] = [a for a, _ in parts]
        self._lasts[i : i + 1] = [b for _, b in parts]
        return len(self._firsts) <= HOLES_MAX

    def _judge(self) -> None:
        """Forget the numbers if they cannot be a counter's, or have too many holes."""
        if self.ranges > HOLES_MAX:
            self.give_up()
        elif not self.believed:
            self.doubt()
