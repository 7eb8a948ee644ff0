"""Draw the plots of the page: ratios of all benchmarks, and the curves of each sweep."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.comparisons import Spread, ratios, spread
from benchmarks.measures import MEASURES
from benchmarks.report.svg import COLOURS, Bar, Point, Series, bars, curves
from benchmarks.results import Result, Results, Role

_COLOURS = {Role.PEER: COLOURS[0], Role.REFERENCE: COLOURS[1]}


def of_ratios(results: Results, measure: str) -> str | None:
    """Draw the ratios of one measure. Return None if there are none."""
    found = [
        Bar(f"{case.label} / {ratio.other.name}", ratio.spread, _COLOURS[ratio.other.role])
        for result in results.found.values()
        if not result.axis
        for case in result.cases
        for ratio in ratios(case)
        if ratio.measure == measure
    ]
    title = f"{MEASURES[measure].title}: Tailrace over others (blue: peers, red: references)"
    return bars(title, found) if found else None


def of_sweep(result: Result) -> Iterator[tuple[str, str]]:
    """Yield each plotted measure of a sweep with a drawing of it."""
    for measure in result.plotted:
        series = list(_series(result, measure))
        if series:
            definition = MEASURES[measure]
            up = f"{definition.title}, {definition.unit}" if definition.unit else definition.title
            yield measure, curves(result.title, result.axis, up, series)


def _series(result: Result, measure: str) -> Iterator[Series]:
    names = dict.fromkeys(side.name for case in result.cases for side in case.sides)
    size = MEASURES[measure].unit_size
    for name in names:
        points = [
            Point(case.at or 0.0, Spread(*(value / size for value in found)))
            for case in result.cases
            for side in case.sides
            if side.name == name and (found := spread(side, measure))
        ]
        if points:
            yield Series(name, points)
