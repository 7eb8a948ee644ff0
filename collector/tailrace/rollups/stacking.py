"""Give the spans of a lane rows, such that a span stands below those that contain it and overlaps none."""

from __future__ import annotations

from tailrace.export.nesting import DEEPEST


class LaneStack:
    """The rows of one lane, from `first` on. Spans come by their begins and, of equal begins, the longer first."""

    __slots__ = ("_ends", "_first")

    def __init__(self, first: int = 0) -> None:
        self._first = first
        self._ends: list[int] = []

    def take(self, begin: int, end: int) -> int:
        """Return the row of a span: below those that contain it, where nothing else is."""
        ends = self._ends
        row = len(ends)
        while row and (ends[row - 1] <= begin or ends[row - 1] < end):
            row -= 1
        while row < len(ends) and ends[row] > begin:
            row += 1
        if row == len(ends):
            if row == DEEPEST:  # overlap each other in the last row
                row -= 1
                ends[row] = max(ends[row], end)
                return self._first + row
            ends.append(end)
        ends[row] = end
        return self._first + row

    def below(self, begin: int) -> int:
        """Return the first row without a span that ends after `begin`, of those taken so far."""
        row = len(self._ends)
        while row and self._ends[row - 1] <= begin:
            row -= 1
        return self._first + row
