"""Create the tables of the page: ratios of all benchmarks, and the figures of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from benchmarks.comparisons import Spread, ratios, spread
from benchmarks.measures import MEASURES, Better, Measure
from benchmarks.results import Result, Results, Side

_WISHED = {Better.MORE: "above 1", Better.LESS: "below 1", Better.NEITHER: ""}


def of_ratios(results: Results) -> Iterator[str]:
    """Yield the table with the ratios of all benchmarks."""
    rows = []
    for key, result in results.found.items():
        for case in result.cases:
            for ratio in ratios(case):
                measure = MEASURES[ratio.measure]
                cells = [f"`{key}`", case.label, measure.title, ratio.other.name]
                rows.append([*cells, *map(number, ratio.spread), _WISHED[measure.better]])
    yield from table(
        ["benchmark", "input", "figure", "Tailrace over", "min", "median", "max", "better"], rows
    )


def of_figures(result: Result) -> Iterator[str]:
    """Yield a table with the figures of one benchmark: minimum, median and maximum of the runs."""
    shown = _shown(result)
    what = result.axis or "input"
    rows = []
    for case in result.cases:
        for side in case.sides:
            if not side.absent:
                figures = [_cell(MEASURES[name], spread(side, name)) for name in shown]
                rows.append([case.label, side.name, *figures, str(len(side.runs))])
    yield from table([what, "side", *(_title(MEASURES[name]) for name in shown), "runs"], rows)


def of_sides(result: Result) -> Iterator[str]:
    """Yield a list of the sides that were measured: what each did, its version and its configuration."""
    seen: set[tuple[str, str]] = set()
    for case in result.cases:
        for side in case.sides:
            if (side.name, side.does) not in seen:
                seen.add((side.name, side.does))
                yield f"- {_named(side)}: {side.does}.{_absence(side)}"


def number(value: float) -> str:
    """Return a figure with three significant digits, without an exponent."""
    if 0 < value < 0.0001:
        return "<0.0001"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _shown(result: Result) -> list[str]:
    measured = {name for case in result.cases for side in case.sides for run in side.runs for name in run}  # fmt: skip
    return [name for name in MEASURES if name in measured]


def _title(measure: Measure) -> str:
    return f"{measure.title}, {measure.unit}" if measure.unit else measure.title


def _cell(measure: Measure, found: Spread | None) -> str:
    if found is None:
        return ""
    return " / ".join(number(value / measure.unit_size) for value in found)


def _named(side: Side) -> str:
    words = f"**{side.name}**"
    if side.version:
        words += f" {side.version}"
    if side.configuration:
        words += f" ([configuration](../benchmarks/peers/{side.configuration}))"
    return words


def _absence(side: Side) -> str:
    return f" **Absent** when this was measured: `{side.absent}` installs it." if side.absent else ""  # fmt: skip


def table(head: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield _row(head)
    yield "|" + "---|" * len(head)
    yield from map(_row, rows)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
