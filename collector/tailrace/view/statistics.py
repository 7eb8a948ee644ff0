"""How many spans there are, and how long they took: `analysis` over HTTP."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from tailrace.analysis.statistics import SpanStatistics, parse, statistics as of_spans
from tailrace.query.output import FORMULA
from tailrace.view import wire
from tailrace.view.answering import CSV, FileAnswer, shown
from tailrace.view.converting import decimal, whole
from tailrace.view.desk import DeskTurn
from tailrace.view.questions import OfStatistics

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
