"""How many spans there are, and how long they took: `analysis` over HTTP."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from tailrace.analysis.flame import flame as flame_graph
from tailrace.analysis.statistics import SpanStatistics, heat_map, parse, statistics as of_spans
from tailrace.query.output import FORMULA
from tailrace.view import wire
from tailrace.view.answering import CSV, FileAnswer, decimal, shown, whole
from tailrace.view.desk import DeskTurn
from tailrace.view.questions import OfDurations, OfFlame, OfStatistics

HEADINGS = (
    "unit", "count", "open", "total", "self", "min", "p50", "p90", "p95", "p99", "max",
)  # fmt: skip


def statistics(turn: DeskTurn, asked: OfStatistics) -> wire.Statistics | FileAnswer:
    snapshot = turn.snapshot()
    by = parse(asked.by)
    found = snapshot.whole(asked.window.scope)
    groups = of_spans(snapshot.engine, asked.window, by, self_time=asked.self_)
    words = [key.word for key in by]
    if asked.format == "csv":
        rows = ((*each.group, *each[1:]) for each in groups)
        return FileAnswer(table([*words, *HEADINGS], rows), CSV, "statistics.csv")
    return wire.Statistics(
        version=snapshot.version,
        whole=whole(found),
        by=words,
        total=len(groups),
        groups=[_group(each) for each in groups[: asked.limit]],
    )


def table(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """Return CSV for a spreadsheet: a text that it would compute has a `'` before it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows([_defused(value) for value in row] for row in rows)
    return text.getvalue().encode()


def _defused(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _group(each: SpanStatistics) -> wire.Group:
    return wire.Group(
        group=[shown(value) for value in each.group],
        unit=each.unit,
        count=each.ended,
        open=each.open,
        total=decimal(each.total),
        self_=decimal(each.self_time),
        min=decimal(each.least),
        p50=decimal(each.p50),
        p90=decimal(each.p90),
        p95=decimal(each.p95),
        p99=decimal(each.p99),
        max=decimal(each.most),
    )


def flame(turn: DeskTurn, asked: OfFlame) -> wire.Flame:
    snapshot = turn.snapshot()
    found = snapshot.whole(asked.window.scope)
    graph = flame_graph(snapshot.engine, asked.window, asked.unit)
    nodes, left_out = graph.pruned(asked.limit)
    return wire.Flame(
        version=snapshot.version,
        whole=whole(found),
        unit=graph.unit,
        nodes=[
            wire.ShownFlameNode(
                parent=node.parent,
                name=shown(node.name),
                count=node.spans,
                total=str(node.total),
                self_=str(node.own),
            )
            for node in nodes
        ],
        left_out=left_out,
        open=graph.open,
    )


def durations(turn: DeskTurn, asked: OfDurations) -> wire.HeatMapAnswer:
    snapshot = turn.snapshot()
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
