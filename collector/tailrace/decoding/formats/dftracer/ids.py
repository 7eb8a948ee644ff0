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
    def ranges(self) -> int:
        return len(self._firsts)

    def lacks(self, number: int) -> bool:
        """Return whether this number is in a hole."""
        i = bisect_right(self._firsts, number) - 1
        return i >= 0 and number <= self._lasts[i]

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
            else:
                self._fill(number)
        self._following = following
        if len(self._firsts) > HOLES_MAX or not self.believed:
            self.given_up += self.ranges if self.ranges > HOLES_MAX else 0
            self.doubt()

    def doubt(self) -> None:
        """Forget everything: these numbers mean nothing."""
        self._following, self._firsts, self._lasts, self.believed = 1, [], [], False

    def give_up(self) -> None:
        """Forget everything for want of room."""
        self.given_up += self.ranges
        self.doubt()

    def _fill(self, number: int) -> None:
        if not self.lacks(number):
            self.believed = False
            return
        i = bisect_right(self._firsts, number) - 1
        first, last = self._firsts[i], self._lasts[i]
        parts = [(a, b) for a, b in ((first, number - 1), (number + 1, last)) if a <= b]
        self._firsts[i : i + 1] = [a for a, _ in parts]
        self._lasts[i : i + 1] = [b for _, b in parts]
