"""Serve statistics of spans, and comparisons of two runs, as computed by `analysis`, and define these answers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import msgspec
from msgspec import structs

from tailrace.analysis.blocks import MeasuredRun
from tailrace.analysis.comparison import FigureChange, changes, summary, verdict_counts
from tailrace.analysis.flame import flame as flame_graph
from tailrace.analysis.noise import judged
from tailrace.analysis.statistics import (
    FIGURES,
    GroupKey,
    HeatMap,
    SpanStatistics,
    heat_map,
    parse,
    statistics as of_spans,
)
from tailrace.errors import UnknownError
from tailrace.query.output import FORMULA
from tailrace.rollups.snapshot import WALL
from tailrace.view import wire
from tailrace.view.answers import (
    CSV,
    EncodedAnswer,
    cut,
    decimal,
    from_attributes,
    from_row,
    whole,
)
from tailrace.view.endpoints.timeline import gaps_within
from tailrace.view.leases import SnapshotLease
from tailrace.view.questions import OfComparison, OfDurations, OfFlame, OfSelection, OfStatistics
from tailrace.view.wire import DecimalText, Ns


class FigureInterval(msgspec.Struct, kw_only=True):
    """Lower and upper bound of a figure that is not exact, because spans are missing; null where no bound is known."""

    low: DecimalText | None
    high: DecimalText | None


class Group(msgspec.Struct, kw_only=True):
    """All selected spans with the same values of the keys.

    `unit` is the unit of their durations: `ns` or `ticks`. Only spans that have ended have a duration. If none has
    ended, the durations are null. `self` is null unless the request asks for self times. The figures are computed from
    the spans in the table. If spans are missing, `bounds` contains for each figure the interval in which its true value
    lies, or null without a figure."""

    group: list[str | None]
    unit: str
    count: int
    open: int
    total: DecimalText | None
    self_: DecimalText | None = msgspec.field(name="self")
    min: DecimalText | None
    p50: DecimalText | None
    p90: DecimalText | None
    p95: DecimalText | None
    p99: DecimalText | None
    max: DecimalText | None
    bounds: dict[str, FigureInterval | None]


class Statistics(wire.WholeAnswer, kw_only=True):
    """The first groups of spans, with the longest total duration first. `total` counts all groups."""

    by: list[str]
    total: int
    groups: list[Group]


class Side(msgspec.Struct, kw_only=True):
    """One of the two compared runs.

    `marker` is the time of the event at which this run begins if the request aligns the runs (`align`), or null."""

    store: str
    version: int
    whole: wire.Whole
    from_: Ns | None = msgspec.field(name="from")
    to: Ns | None
    marker: Ns | None


class Difference(msgspec.Struct, kw_only=True):
    """A group of spans in both runs or in one of them. `a` and `b` are the group's figures in the two runs, from the
    stored spans. If spans are missing, the true figures lie in `a_bounds` and `b_bounds`.

    `growth` is a share (0.1 means 10 percent more); null if `a` or `b` is null or `a` is 0. `word` is the interval of
    the true growth as text. `verdict` is the verdict of `tailrace diff`; if it is `undecided`, `because` has the
    reason."""

    group: list[str | None]
    unit: str
    count_a: int | None
    count_b: int | None
    a: DecimalText | None
    b: DecimalText | None
    a_bounds: FigureInterval | None
    b_bounds: FigureInterval | None
    growth: float | None
    word: str
    verdict: str
    because: str | None


class Comparison(msgspec.Struct, kw_only=True):
    """The compared groups of spans: first those that only the second run has, then those that only the first run has,
    then all others, the greatest growth first.

    `total` counts all groups. `verdicts` counts them by verdict, and `summary` does so in words, with the reasons of
    undecided ones. `differences` may list fewer groups."""

    version: int
    a: Side
    b: Side
    by: list[str]
    figure: str
    total: int
    verdicts: dict[str, int]
    summary: str
    differences: list[Difference]


class ShownFlameNode(msgspec.Struct, kw_only=True):
    """A node of a flame graph: all spans with the same name whose enclosing spans have the same names, too.

    `parent` is the index of the enclosing node in the list, or null. `self` is the time during which a span of this
    node is the innermost open span of its lane. `total` also includes the time of all nodes inside this node."""

    parent: int | None
    name: str | None
    count: int
    total: DecimalText
    self_: DecimalText = msgspec.field(name="self")


class Flame(wire.WholeAnswer, kw_only=True):
    """The nodes of a flame graph, each after its parent. `unit` is `ns`, or `ticks` for clocks without a known rate.

    `left_out` counts small nodes that are not listed; their time is part of the nodes that enclose them. `open` counts
    spans without an end, whose time is not part of any node."""

    unit: str
    nodes: list[ShownFlameNode]
    left_out: int
    open: int


class HeatMapAnswer(wire.WholeAnswer, kw_only=True):
    """A heat map: how many spans began in which range of time, and how long they took.

    Columns are ranges of time, each `width` ns wide, from `from` to `to`. Rows are ranges of durations: row n is from
    `edges[n]` to less than `edges[n + 1]` ns. `columns`, `rows` and `counts` are lists with one item for each cell that
    is not empty. `open` counts spans without an end. `lossy` lists the columns in which events may be missing.
    `elsewhere` counts the gaps that lie in none of the columns, or at an unknown time."""

    from_: Ns | None = msgspec.field(name="from")
    to: Ns | None
    width: Ns
    edges: list[Ns]
    columns: list[int]
    rows: list[int]
    counts: list[int]
    open: int
    lossy: list[int]
    elsewhere: int


HEADINGS = (
    "unit", "count", "open", "total", "self", "min", "p50", "p90", "p95", "p99", "max",
)  # fmt: skip


def statistics(lease: SnapshotLease, asked: OfStatistics) -> Statistics | EncodedAnswer:
    snapshot = lease.snapshot()
    by = parse(asked.by)
    found = snapshot.whole(asked.window.scope)
    groups = of_spans(snapshot.engine, asked.window, found, by, self_time=asked.self_)
    words = [key.word for key in by]
    if asked.format == "csv":
        ends = [f"{figure} {end}" for figure in FIGURES for end in ("low", "high")]
        rows = ((*each.group, each.unit, *each.seen, *_ends(each)) for each in groups)
        return EncodedAnswer(table([*words, *HEADINGS, *ends], rows), CSV, "statistics.csv")
    return Statistics(
        version=snapshot.version,
        whole=whole(found),
        by=words,
        total=len(groups),
        groups=[_group(each) for each in groups[: asked.limit]],
    )


def _ends(each: SpanStatistics) -> Iterator[int | None]:
    for interval in each.bounds.values():
        yield from interval or (None, None)


def _group(each: SpanStatistics) -> Group:
    intervals = {
        figure: interval and from_row(FigureInterval, interval)
        for figure, interval in each.bounds.items()
    }
    return from_row(Group, (each.group, each.unit, *each.seen, intervals))


def table(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """Return rows as CSV, with a `'` before each text that a spreadsheet could take for a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows([_defused(value) for value in row] for row in rows)
    return text.getvalue().encode()


def _defused(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def flame(lease: SnapshotLease, asked: OfFlame) -> Flame:
    snapshot = lease.snapshot()
    found = snapshot.whole(asked.window.scope)
    graph = flame_graph(snapshot.engine, asked.window, asked.unit)
    nodes, left_out = graph.pruned(asked.limit)
    return Flame(
        version=snapshot.version,
        whole=whole(found),
        unit=graph.unit,
        nodes=[from_row(ShownFlameNode, node) for node in nodes],
        left_out=left_out,
        open=graph.open,
    )


def durations(lease: SnapshotLease, asked: OfDurations) -> HeatMapAnswer:
    snapshot = lease.snapshot()
    found = snapshot.whole(asked.window.scope)
    counted = heat_map(snapshot.engine, asked.window, asked.name, asked.columns)
    lacking = found.unknown or any(found.missing.values())
    lossy, elsewhere = _losses(lease, asked, counted) if lacking else ([], 0)
    since = counted.since
    return HeatMapAnswer(
        version=snapshot.version,
        whole=whole(found),
        from_=decimal(since),
        to=decimal(None if since is None else since + counted.width * counted.columns),
        width=str(counted.width),
        edges=[str(edge) for edge in counted.edges],
        columns=[cell.column for cell in counted.cells],
        rows=[cell.row for cell in counted.cells],
        counts=[cell.spans for cell in counted.cells],
        open=counted.open,
        lossy=lossy,
        elsewhere=elsewhere,
    )


def _losses(lease: SnapshotLease, asked: OfDurations, counted: HeatMap) -> tuple[list[int], int]:
    """Return the columns of a heat map that overlap gaps, and the number of gaps that overlap none."""
    timed = lease.timeline().on(WALL)
    steps, elsewhere = [0] * (counted.columns + 1), 0
    for gap, begin, end, _ in gaps_within(lease, asked):
        if gap.remaining == 0:
            continue
        columns = counted.overlapped(begin, end) if gap.place[:2] in timed else range(0)
        if columns:
            steps[columns.start] += 1
            steps[columns.stop] -= 1
        else:
            elsewhere += 1
    return [column for column, gaps in enumerate(accumulate(steps)) if gaps], elsewhere


_MARKER = "SELECT min(time) FROM events WHERE name = ? AND kind NOT IN ('gap', 'heal') AND {}"


def compare(lease: SnapshotLease, asked: OfComparison) -> Comparison | EncodedAnswer:
    by = parse(asked.by)
    (one, a), (other, b) = (
        _run(lease, store, side, asked, by)
        for store, side in zip(asked.stores, asked.sides, strict=True)
    )
    found = changes(one.statistics, other.statistics, asked.figure, (one.lacks, other.lacks))
    if not asked.exact:
        found = judged(found, one.evidence(), other.evidence())
    found.sort(key=lambda each: (each.before is not None, each.after is not None))
    threshold = asked.threshold or 0.0
    if asked.format == "csv":
        return _csv(found, by, asked.figure, threshold)
    return Comparison(
        version=lease.snapshot().version,
        a=a,
        b=b,
        by=[key.word for key in by],
        figure=asked.figure,
        total=len(found),
        verdicts=verdict_counts(found, threshold),
        summary=summary(found, threshold),
        differences=[_difference(each, threshold) for each in found[: asked.limit]],
    )


def _run(
    lease: SnapshotLease, store: int, side: OfSelection, asked: OfComparison, by: Sequence[GroupKey]
) -> tuple[MeasuredRun, Side]:
    """Return the measured spans of one run, and the description of its selection. If the request aligns the runs by the
    event `align`, raise UnknownError unless a selected event of this name has a wall time."""
    snapshot = lease.snapshot(store)
    if not side.session:
        side = structs.replace(side, session=lease.stores[store].sessions)
    window, marker = side.window, None
    if asked.align:
        rows = window.rows
        ((marker,),) = snapshot.engine.rows(_MARKER.format(rows.sql), (asked.align, *rows.values))
        if marker is None:
            where = cut(snapshot.engine.table.root)
            raise UnknownError(
                f"{where}: no selected event with a wall time is called {asked.align!r}"
            )
        end = None if asked.length is None else marker + asked.length
        until = min((each for each in (window.until, end) if each is not None), default=None)
        window = window._replace(since=marker, until=until)
    found = snapshot.whole(window.scope)
    measured = MeasuredRun.read(snapshot.engine, window, by, asked.figure, found)
    return measured, Side(
        store=cut(lease.stores[store].name),
        version=snapshot.version,
        whole=whole(found),
        from_=decimal(window.since),
        to=decimal(window.until),
        marker=decimal(marker),
    )


def _difference(each: FigureChange, threshold: float) -> Difference:
    a_bounds, b_bounds = (
        interval and from_row(FigureInterval, interval) for interval in each.bounds
    )
    return from_attributes(  # JSON has no infinity, so infinite growth becomes null
        Difference,
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
) -> EncodedAnswer:
    sides = [f"{figure} {side}" for side in ("a", "a low", "a high", "b", "b low", "b high")]
    heading = [*(key.word for key in by), "unit", *sides, "change", "verdict", "because"]
    rows = []
    for each in found:
        (a, b), (of_a, of_b) = (each.from_, each.to), (side or (None, None) for side in each.bounds)
        judgement = each.word, each.verdict(threshold), each.doubt(threshold)
        rows.append((*each.group, each.unit, a, *of_a, b, *of_b, *judgement))
    return EncodedAnswer(table(heading, rows), CSV, "comparison.csv")
