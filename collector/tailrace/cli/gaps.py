"""`tailrace gaps`: list what is missing, and why, and what may still arrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailrace.cli.options import (
    config_option,
    job_options,
    json_option,
    label_option,
    load_config,
    session_option,
    source_option,
    store_option,
)
from tailrace.cli.store import open_store, say_incomplete
from tailrace.units import counted

if TYPE_CHECKING:
    from tailrace.query.answer import Page
    from tailrace.query.filters import JobFilter, RunLabel, Selection
    from tailrace.query.live import Live

COLUMNS = (
    "source", "session", "stream", "reason", "detail", "first", "last", "count", "remaining", "id", "peer",
)  # fmt: skip
SPARE = ("count", "detail", "last")
REASON, REMAINING = COLUMNS.index("reason"), COLUMNS.index("remaining")


AWAITED = "awaited"
"""The reason that is shown for events which the running collector still waits for."""


@click.command()
@config_option
@store_option
@json_option("Print one JSON object for each gap, with all columns.")
@source_option
@session_option
@label_option
@job_options
@click.option("--all", "everything", is_flag=True, help="Also show gaps that were healed.")
def command(
    config: Path | None,
    store: str | None,
    *,
    as_json: bool,
    source: str | None,
    session: str | None,
    labels: tuple[RunLabel, ...],
    job: JobFilter,
    everything: bool,
) -> None:
    """List what is missing: one line for each gap, without the events that arrived later.

    `peer` is the file or the address that the session came from. `detail` is how the collector knows. `first` and `last` are the producer's own numbers, if it has any.
    A dash as `count` means that nobody knows how much is missing.

    A connection that a collector refused is no gap, because most clients come back. The metric
    tailrace_source_refused and /status count refused connections, and so does the certificate of `tailrace run`
    where the collector had no room.

    If a collector runs on the store, the command asks it which events it still waits for, before they
    count as missing. They get one line for each stream, with the reason `awaited`. A dash as their
    `count` means that the collector could not be asked; `detail` says why."""
    loaded = load_config(config, store)

    from tailrace.cli.output.console import Console
    from tailrace.query.completeness import Completeness, Scope, completeness
    from tailrace.query.filters import Selection
    from tailrace.query.views import GAPS

    selection = Selection.of_options(source, session, labels, job)
    engine, live = open_store(loaded, selection)
    view = "all_gaps" if everything else "gaps"
    condition = selection.condition
    asked = f"FROM {view} LEFT JOIN part.origins USING (source, session) WHERE {condition.sql} ORDER BY {GAPS.order}"
    whole = completeness(engine, Scope.of(selection), live)
    console = Console(engine)
    if as_json:
        more = rows([*(column.name for column in GAPS.columns), "peer"], live, selection)
        console.json(f"SELECT {view}.*, peer {asked}", condition.values, more)
        if not whole.selected:
            say_incomplete(whole)
        return
    columns = (*COLUMNS[:-1], "healed", "peer") if everything else COLUMNS
    answer, pages = console.ask(f"SELECT {', '.join(columns)} {asked}", condition.values)
    totals = GapTotals()
    lines = chain(totals.adding(pages), filter(None, [rows(columns, live, selection)]))
    if (first := next(lines, None)) is not None:
        console.table(answer.columns, chain([first], lines), spare=SPARE)
    summed = Completeness(totals.missing, totals.unknown, *whole[2:])
    gaps = counted(totals.gaps, "gap") if totals.gaps else "no gaps"
    console.line(f"{gaps}: {summed.text}")


def rows(columns: Sequence[str], live: Live, selection: Selection) -> Page:
    """Return awaited events, or why they are not known, as rows like those of the gaps."""
    nothing = dict.fromkeys(columns) | {"reason": AWAITED, "healed": 0}
    found = [
        nothing | each._asdict() | {"count": each.events, "remaining": each.events}
        for each in live.of(selection)
    ]
    if live.unasked:
        found.append(nothing | {"healed": None, "detail": live.unasked})
    return [tuple(row[column] for column in columns) for row in found]


class GapTotals:
    """Sums over the lines of the table, added while they are printed."""

    def __init__(self) -> None:
        self.gaps = self.unknown = 0
        self.missing: Counter[str] = Counter()

    def adding(self, pages: Iterable[Page]) -> Iterator[Page]:
        for page in pages:
            for row in page:
                self.gaps += 1
                self.unknown += row[REMAINING] is None
                self.missing[row[REASON]] += row[REMAINING] or 0
            yield page
