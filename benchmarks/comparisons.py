"""Compute ratios: our figure divided by that of each other program, run by run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple, Self

from benchmarks.measures import MEASURES, Measure
from benchmarks.results import Case, Role, Side


class Spread(NamedTuple):
    """The minimum, the median and the maximum of some values."""

    least: float
    middle: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Return the spread of values. There must be at least one."""
        return cls(min(values), median(values), max(values))


class Ratio(NamedTuple):
    """Our figures divided by those of another side, for one measure."""

    measure: str
    other: Side
    spread: Spread


def spread(side: Side, measure: str) -> Spread | None:
    """Return the spread of a side's figures for a measure; None if the side has none."""
    values = [run[measure] for run in side.runs if measure in run]
    return Spread.of(values) if values else None


def middle_of_ours(case: Case, measure: str) -> float | None:
    """Return the median of our figure in a case; None if it was not measured."""
    ours = next((side for side in case.sides if side.role is Role.OURS), None)
    found = spread(ours, measure) if ours else None
    return found.middle if found else None


def ratios(case: Case) -> Iterator[Ratio]:
    """Yield the ratios of our figures to those of the other sides, for measures that both have.

    Ours are those of our first side.
    """
    first = next((side for side in case.sides if side.role is Role.OURS), None)
    if first is None:
        return
    for measure, definition in MEASURES.items():
        for other in case.sides:
            values = _pairs(first, other, measure) if _compared(definition, other) else []
            if values:
                yield Ratio(measure, other, Spread.of(values))


def _compared(measure: Measure, other: Side) -> bool:
    match other.role:
        case Role.OURS:
            return False
        case Role.REFERENCE:
            return measure.compared and measure.least_known
        case _:
            return measure.compared


def _pairs(side: Side, other: Side, measure: str) -> list[float]:
    return [
        one[measure] / two[measure]
        for one, two in zip(side.runs, other.runs, strict=False)
        if measure in one and two.get(measure)
    ]
