"""Compare the statistics of two runs group by group: what grew, what is new, what is gone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tailrace.analysis.statistics import Group, SpanStatistics

FIGURES = {
    "count": "ended",
    "total": "total",
    "self": "self_time",
    "min": "least",
    "p50": "p50",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "max": "most",
}
"""The figures to compare, by the words that users know them by: attributes of `SpanStatistics`."""

UNKNOWN = "unknown"
"""The word for a change of which a run that has the group lacks the figure."""


class FigureChange(NamedTuple):
    """A group in both runs, of which either may lack it. Figures are None where nothing has ended."""

    group: Group
    unit: str
    before: SpanStatistics | None
    after: SpanStatistics | None
    figure: str
    """The word of the compared figure."""

    @property
    def from_(self) -> int | None:
        return _value(self.before, self.figure)

    @property
    def to(self) -> int | None:
        return _value(self.after, self.figure)

    @property
    def growth(self) -> float | None:
        """Return by which share the figure grew: 0.1 is 10 percent more. From nothing it grew without bound.

        Return None where a run lacks the figure."""
        if self.from_ is None or self.to is None:
            return None
        if self.from_ == self.to:
            return 0.0
        return (self.to - self.from_) / abs(self.from_) if self.from_ else math.inf

    @property
    def word(self) -> str:
        """Return the change in words: a percentage, `new`, `gone`, or `UNKNOWN`."""
        if self.before is None:
            return "new"
        if self.after is None:
            return "gone"
        return UNKNOWN if self.growth is None else f"{self.growth:+.1%}"


def changes(
    before: Iterable[SpanStatistics], after: Iterable[SpanStatistics], figure: str
) -> list[FigureChange]:
    """Return every group of either run: those that grew most first, then new groups, then gone ones."""
    return sorted(_pairs(before, after, figure), key=_rank)


def exceeding(found: Iterable[FigureChange], threshold: float) -> list[FigureChange]:
    """Return the changes that grew by more than a share. A new group grew from nothing that is known, so it
    exceeds no threshold."""
    return [each for each in found if each.growth is not None and each.growth > threshold]


def _pairs(
    before: Iterable[SpanStatistics], after: Iterable[SpanStatistics], figure: str
) -> Iterator[FigureChange]:
    first = {(each.group, each.unit): each for each in before}
    second = {(each.group, each.unit): each for each in after}
    for group, unit in {**first, **second}:
        key = group, unit
        yield FigureChange(group, unit, first.get(key), second.get(key), figure)


def _rank(change: FigureChange) -> tuple[int, float, str]:
    place = 2 if change.before is None else 3 if change.after is None else 0
    growth = change.growth
    return (place or (growth is None), -(growth or 0.0), str(change.group))


def _value(statistics: SpanStatistics | None, figure: str) -> int | None:
    return None if statistics is None else getattr(statistics, FIGURES[figure])
