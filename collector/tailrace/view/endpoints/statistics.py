"""Serve statistics of spans, and comparisons of two runs, as computed by `analysis`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import structs

from tailrace.analysis.blocks import MeasuredRun
from tailrace.analysis.comparison import FigureChange, changes, summary, verdict_counts
from tailrace.analysis.flame import flame as flame_graph
from tailrace.analysis.noise import judged
from tailrace.analysis.statistics import (
    FIGURES,
    GroupKey,
    SpanStatistics,
    heat_map,
    parse,
    statistics as of_spans,
)
from tailrace.errors import UnknownError
from tailrace.query.completeness import Window
from tailrace.query.output import FORMULA
from tailrace.view import wire
from tailrace.view.answers import (
    CSV,
    FileAnswer,
    cut,
    decimal,
    from_attributes,
    from_row,
    whole,
)
from tailrace.view.leases import LeasedSnapshot, SnapshotLease
from tailrace.view.questions import OfComparison, OfDurations, OfFlame, OfSelection, OfStatistics

HEADINGS = (
    "unit", "count", "open", "total", "self", "min", "p50", "p90", "p95", "p99", "max",
)  # fmt: skip


def statistics(lease: SnapshotLease, asked: OfStatistics) -> wire.Statistics | FileAnswer:
    snapshot = lease.snapshot()
    by = parse(asked.by)
    found = snapshot.whole(asked.window.scope)
    groups = of_spans(snapshot.engine, asked.window, found, by, self_time=asked.self_)
    words = [key.word for key in by]
    if asked.format == "csv":
        ends = [f"{figure} {end}" for figure in FIGURES for end in ("low", "high")]
        rows = ((*each.group, each.unit, *each.seen, *_ends(each)) for each in groups)
        return FileAnswer(table([*words, *HEADINGS, *ends], rows), CSV, "statistics.csv")
    return wire.Statistics(
        version=snapshot.version,
        whole=whole(found),
        by=words,
        total=len(groups),
        groups=[_group(each) for each in groups[: asked.limit]],
    )


def _ends(each: SpanStatistics) -> Iterator[int | None]:
    for interval in each.bounds.values():
        yield from interval or (None, None)


def _group(each: SpanStatistics) -> wire.Group:
    intervals = {
        figure: interval and from_row(wire.FigureInterval, interval)
        for figure, interval in each.bounds.items()
    }
    return from_row(wire.Group, (each.group, each.unit, *each.seen, intervals))


def table(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """Return rows as CSV, with a `'` before each text that a spreadsheet could take for a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows([_defused(value) for value in row] for row in rows)
    return text.getvalue().encode()


def _defused(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def flame(lease: SnapshotLease, asked: OfFlame) -> wire.Flame:
    snapshot = lease.snapshot()
    found = snapshot.whole(asked.window.scope)
    graph = flame_graph(snapshot.engine, asked.window, asked.unit)
    nodes, left_out = graph.pruned(asked.limit)
    return wire.Flame(
        version=snapshot.version,
        whole=whole(found),
        unit=graph.unit,
        nodes=[from_row(wire.ShownFlameNode, node) for node in nodes],
        left_out=left_out,
        open=graph.open,
    )


def durations(lease: SnapshotLease, asked: OfDurations) -> wire.HeatMapAnswer:
    snapshot = lease.snapshot()
    found = snapshot.whole(asked.window.scope)
    counted = heat_map(snapshot.engine, asked.window, asked.name, asked.columns)
    return wire.HeatMapAnswer(
        version=snapshot.version,
        whole=whole(found),
        from_=decimal(counted.since),
        width=str(counted.width),
        columns=[cell.column for cell in counted.cells],
        rows=[cell.row for cell in counted.cells],
        counts=[cell.spans for cell in counted.cells],
        open=counted.open,
    )


_MARKER = "SELECT min(time) FROM events WHERE name = ? AND kind NOT IN ('gap', 'heal') AND {}"


class ComparedRun(NamedTuple):
    store: int
    version: int
    marker: int | None
    measured: MeasuredRun


def compare(lease: SnapshotLease, asked: OfComparison) -> wire.Comparison | FileAnswer:
    by = parse(asked.by)
    a, b = (
        _run(lease, store, side, asked, by)
        for store, side in zip(asked.stores, asked.sides, strict=True)
    )
    one, other = a.measured, b.measured
    found = changes(one.statistics, other.statistics, asked.figure, (one.lacks, other.lacks))
    if not asked.exact:
        found = judged(found, one.evidence(), other.evidence())
    found.sort(
        key=lambda each: (
            each.before is not None,
            each.before is not None and each.after is not None,
        )
    )
    threshold = asked.threshold or 0.0
    if asked.format == "csv":
        return _csv(found, by, asked.figure, threshold)
    return wire.Comparison(
        version=lease.snapshot().version,
        a=_side(lease, a),
        b=_side(lease, b),
        by=[key.word for key in by],
        figure=asked.figure,
        total=len(found),
        verdicts=verdict_counts(found, threshold),
        summary=summary(found, threshold),
        differences=[_difference(each, threshold) for each in found[: asked.limit]],
    )


def _run(
    lease: SnapshotLease, store: int, side: OfSelection, asked: OfComparison, by: Sequence[GroupKey]
) -> ComparedRun:
    snapshot = lease.snapshot(store)
    if not side.session:
        side = structs.replace(side, session=lease.stores[store].sessions)
    window, marker = side.window, None
    if asked.align:
        marker = _marker(snapshot, window, asked.align)
        end = None if asked.length is None else marker + asked.length
        until = min((each for each in (window.until, end) if each is not None), default=None)
        window = window._replace(since=marker, until=until)
    found = snapshot.whole(window.scope)
    measured = MeasuredRun.read(snapshot.engine, window, by, asked.figure, found)
    return ComparedRun(store, snapshot.version, marker, measured)


def _marker(snapshot: LeasedSnapshot, window: Window, name: str) -> int:
    """Return the time (Unix ns) of the first event with a name. Raise UnknownError if no such event has a time."""
    rows = window.rows
    ((time,),) = snapshot.engine.rows(_MARKER.format(rows.sql), (name, *rows.values))
    if time is None:
        where = cut(snapshot.engine.table.root)
        raise UnknownError(f"{where}: no selected event with a wall time is called {name!r}")
    return int(time)


def _side(lease: SnapshotLease, run: ComparedRun) -> wire.Side:
    return wire.Side(
        store=cut(lease.stores[run.store].name),
        version=run.version,
        whole=whole(run.measured.whole),
        from_=decimal(run.measured.window.since),
        to=decimal(run.measured.window.until),
        marker=decimal(run.marker),
    )


def _difference(each: FigureChange, threshold: float) -> wire.Difference:
    a_bounds, b_bounds = (
        interval and from_row(wire.FigureInterval, interval) for interval in each.bounds
    )
    return from_attributes(  # JSON has no infinity, so infinite growth becomes null
        wire.Difference,
        each,
        count_a=None if each.before is None else each.before.ended,
        count_b=None if each.after is None else each.after.ended,
        a=each.from_,
        b=each.to,
        a_bounds=a_bounds,
        b_bounds=b_bounds,
        verdict=each.verdict(threshold),
        because=each.doubt(threshold),
    )


def _csv(
    found: Sequence[FigureChange], by: Sequence[GroupKey], figure: str, threshold: float
) -> FileAnswer:
    sides = [f"{figure} {side}" for side in ("a", "a low", "a high", "b", "b low", "b high")]
    heading = [*(key.word for key in by), "unit", *sides, "change", "verdict", "because"]
    rows = []
    for each in found:
        (a, b), (of_a, of_b) = (each.from_, each.to), (side or (None, None) for side in each.bounds)
        judgement = each.word, each.verdict(threshold), each.doubt(threshold)
        rows.append((*each.group, each.unit, a, *of_a, b, *of_b, *judgement))
    return FileAnswer(table(heading, rows), CSV, "comparison.csv")
