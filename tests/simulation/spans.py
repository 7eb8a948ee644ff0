"""Store sets of numbers as ordered ranges that do not touch each other."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class Spans:
    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._nexts: list[int] = []

    def add(self, first: int, following: int) -> None:
        """Add the numbers from `first` to `following` (exclusive)."""
        if first >= following:
            return
        begin = bisect_left(self._nexts, first)
        end = bisect_right(self._firsts, following)
        if begin < end:
            first = min(first, self._firsts[begin])
            following = max(following, self._nexts[end - 1])
        self._firsts[begin:end] = [first]
        self._nexts[begin:end] = [following]

    def put(self, number: int) -> bool:
        """Add a number. Return whether it is new."""
        nexts = self._nexts
        if nexts and nexts[-1] == number:
            nexts[-1] = number + 1
            return True
        if number in self:
            return False
        self.add(number, number + 1)
        return True

    def __contains__(self, number: int) -> bool:
        return self.beyond(number) != number

    def beyond(self, number: int) -> int:
        """Return the lowest number from `number` on that is not in the set."""
        at = bisect_right(self._firsts, number) - 1
        return max(number, self._nexts[at]) if at >= 0 else number

    def ranges(self) -> list[tuple[int, int]]:
        """Return the ranges, each as its first number and its last number plus one."""
        return list(zip(self._firsts, self._nexts, strict=True))

    def missing(self, first: int, following: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges between two numbers that are not in the set."""
        at = bisect_right(self._nexts, first)
        while first < following:
            begin = self._firsts[at] if at < len(self._firsts) else following
            if first < begin:
                yield first, min(begin, following)
            first = self._nexts[at] if at < len(self._nexts) else following
            at += 1
