"""Give the spans of lanes rows, such that a span stands below those that contain it and overlaps none.

A bucket of short spans stands below the spans that contain its begin.
"""

from __future__ import annotations

import numpy as np

from tailrace.export.nesting import DEEPEST
from tailrace.rollups.places import Ints, Longs, Truths

FEW = 32
"""So few buckets are looked at one by one."""


class LaneStack:
    """The rows of one lane. Spans come by their begins and, of equal begins, the longer first."""

    __slots__ = ("ends",)

    def __init__(self) -> None:
        self.ends: list[int] = []

    def take(self, begin: int, end: int) -> int:
        """Return the row of a span: below those that contain it, where nothing else is."""
        ends = self.ends
        row = len(ends)
        while row and (ends[row - 1] <= begin or ends[row - 1] < end):
            row -= 1
        while row < len(ends) and ends[row] > begin:
            row += 1
        if row == len(ends):
            if row == DEEPEST:  # overlap each other in the last row
                row -= 1
                ends[row] = max(ends[row], end)
                return row
            ends.append(end)
        ends[row] = end
        return row

    def below(self, begin: int) -> int:
        """Return the first row behind all spans that have not ended at `begin`."""
        row = len(self.ends)
        while row and self.ends[row - 1] <= begin:
            row -= 1
        return row

    def steps(self) -> list[tuple[int, int]]:
        """Return from when on which row is the first behind all spans that have not ended: times in order."""
        found: list[tuple[int, int]] = []
        latest = -1
        for row in range(len(self.ends), 0, -1):
            if self.ends[row - 1] > latest:
                found.append((latest, row))
                latest = self.ends[row - 1]
        return [*found, (latest, 0)]


def stacked(begin: Longs, end: Longs, short: Truths) -> Ints:
    """Return the rows of one lane's spans, which are in order; `short` says which are buckets."""
    rows = np.zeros(len(begin), np.int32)
    stack = LaneStack()
    longs = np.flatnonzero(~short)
    taken = zip(longs.tolist(), begin[longs].tolist(), end[longs].tolist(), strict=True)
    behind = np.append(longs[1:], len(begin)).tolist()
    for (at, first, last), until in zip(taken, behind, strict=False):
        rows[at] = stack.take(first, last)
        if until - at <= FEW:
            rows[at + 1 : until] = [stack.below(each) for each in begin[at + 1 : until].tolist()]
        else:
            since, row = zip(*stack.steps(), strict=True)
            found = np.searchsorted(np.array(since), begin[at + 1 : until], side="right") - 1
            rows[at + 1 : until] = np.array(row)[found]
    return rows
