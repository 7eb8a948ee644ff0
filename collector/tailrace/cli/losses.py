"""Define `tailrace gaps` and `tailrace streams`.

`gaps` lists missing events, with the reasons. It also lists events that may still arrive. `streams` lists the streams.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

import click

from tailrace.cli import options
from tailrace.cli.commands import examples
from tailrace.config.load import Loaded
from tailrace.query import views
from tailrace.query.completeness import Completeness, Scope, completeness
from tailrace.query.filters import Selection
from tailrace.query.live import Live
from tailrace.units import counted

if TYPE_CHECKING:
    from tailrace.query.answer import Page


GAP_COLUMNS = (
    "source", "session", "stream", "reason", "detail", "first", "last", "count", "remaining", "id", "peer",
)  # fmt: skip
SPARE_OF_GAPS = ("count", "detail", "last", "first", "id", "peer")
REASON, REMAINING = GAP_COLUMNS.index("reason"), GAP_COLUMNS.index("remaining")


@click.command(epilog=examples("tailrace gaps --store ./store"))
@options.reading_options
@options.json_option("Print one JSON object for each gap, with all columns.")
@options.selection_options
@click.option("--all", "everything", is_flag=True, help="Also show gaps that were healed.")
def gaps_command(*, loaded: Loaded, as_json: bool, selection: Selection, everything: bool) -> None:
    """List what is missing: one line for each gap, without the events that arrived later.

    `peer` is the file or the address from which the session came. `detail` states how the collector detected the gap.
    `first` and `last` are the numbers that the producer gave to the first and the last missing event, if it numbers its
    events. A dash as `count` means that the number of missing events is unknown.

    A connection that a collector refused is not a gap, because most clients connect again. The metric
    tailrace_source_refused and /status count refused connections, and so does the certificate of `tailrace run` where
    the collector had no room.

    If a collector runs on the store, the command asks it which events it still waits for, before they count as missing.
    These events get one line for each stream, with the reason `awaited`. In such a line, a dash as `count` means that
    the collector did not answer; `detail` has the reason."""
    from tailrace.cli.output.console import Console

    engine, live = options.open_store(loaded, selection)
    view = "all_gaps" if everything else "gaps"
    condition = selection.condition
    asked = f"FROM {view} LEFT JOIN part.origins USING (source, session) WHERE {condition.sql} ORDER BY {views.GAPS.order}"
    whole = completeness(engine, Scope.of(selection), live)
    console = Console(engine)
    if as_json:
        more = gap_rows([*(column.name for column in views.GAPS.columns), "peer"], live, selection)
        console.json(f"SELECT {view}.*, peer {asked}", condition.values, more)
        if not whole.selected:
            options.warn_incomplete(whole)
        return
    columns = (*GAP_COLUMNS[:-1], "healed", "peer") if everything else GAP_COLUMNS
    answer, pages = console.ask(f"SELECT {', '.join(columns)} {asked}", condition.values)
    totals = GapTotals()
    lines = chain(map(totals.add, pages), filter(None, [gap_rows(columns, live, selection)]))
    if (first := next(lines, None)) is not None:
        console.table(answer.columns, chain([first], lines), spare=SPARE_OF_GAPS)
    summed = Completeness(totals.missing, totals.unknown, *whole[2:])
    gaps = counted(totals.gaps, "gap") if totals.gaps else "no gaps"
    console.line(f"{gaps}: {summed.text}")


def gap_rows(columns: Sequence[str], live: Live, selection: Selection) -> Page:
    """Return the rows that `tailrace gaps` prints after the gaps, with the columns `columns`. The rows show the events
    that may still arrive, or the reason why a collector did not report these events."""
    nothing = dict.fromkeys(columns) | {"reason": "awaited", "healed": 0}
    found = [
        nothing | each._asdict() | {"count": each.events, "remaining": each.events}
        for each in live.of(selection)
    ]
    if live.unasked:
        found.append(nothing | {"healed": None, "detail": live.unasked})
    return [tuple(row[column] for column in columns) for row in found]


class GapTotals:
    """Sums over the rows that `tailrace gaps` prints: numbers of gaps and of missing events."""

    def __init__(self) -> None:
        self.gaps = self.unknown = 0
        self.missing: Counter[str] = Counter()

    def add(self, page: Page) -> Page:
        """Add the rows of a page to the sums, and return the page."""
        for row in page:
            self.gaps += 1
            self.unknown += row[REMAINING] is None
            self.missing[row[REASON]] += row[REMAINING] or 0
        return page


# Round percentages down, so that only a complete stream shows 100 %.
STREAM_COLUMNS = """
SELECT source, format, session, stream, events, missing,
  format('{:.4f} %', floor(completeness * 1e6) / 1e4) AS complete,
  state, open_spans AS open,
  strftime(part.readable(first_time), '%Y-%m-%d %H:%M:%S') AS first,
  strftime(part.readable(last_time), '%Y-%m-%d %H:%M:%S') AS last,
  strftime(part.readable(silent_since), '%Y-%m-%d %H:%M:%S') AS "silent since", peer
FROM streams LEFT JOIN part.origins USING (source, session)
"""
SPARE_OF_STREAMS = ("first", "last", "silent since", "format", "open", "peer")


@click.command(epilog=examples("tailrace streams --store ./store"))
@options.reading_options
@options.json_option("Print one JSON object for each stream, with all columns.")
@options.selection_options
@options.complete_option
def streams_command(
    *, loaded: Loaded, as_json: bool, selection: Selection, complete_only: bool
) -> None:
    """List the streams, and how complete each is.

    `peer` is the file or the address from which the stream came. `complete` is the number of events in the table
    divided by the number of events that are known to exist. It is a dash if an unknown number of events is or may be
    missing. Times are UTC.

    `state` is `open` while a collector receives events, and `ended` after the end of the stream. It is `silent` if the
    stream's file has not been written for a while, `unwatched` if its collector does not run, and `unfollowed` if no
    source follows its file any more. It is `unfinished?` if its format has an end mark that has not arrived, although
    the process has ended, the file is silent or the collector does not run.

    The last line also says for how many events the running collector still waits; with --json, this is printed on
    standard error."""
    from tailrace.cli.output.console import Console

    engine, live = options.open_store(loaded, selection)
    whole = completeness(engine, Scope.of(selection), live)
    if complete_only:
        whole.demand(options.GAPS)
    console = Console(engine)
    condition = selection.condition
    chosen = f"WHERE {condition.sql} ORDER BY {views.STREAMS.order}"
    if as_json:
        every = "SELECT streams.*, peer FROM streams LEFT JOIN part.origins USING (source, session)"
        console.json(f"{every} {chosen}", condition.values)
        if whole.awaited or whole.unasked or not whole.selected:
            options.warn_incomplete(whole)
        return
    answer, pages = console.ask(f"{STREAM_COLUMNS} {chosen}", condition.values)
    totals = StreamTotals(whole)
    console.table(answer.columns, map(totals.add, pages), spare=SPARE_OF_STREAMS)
    console.line(totals.text())


class StreamTotals:
    """Sums over the rows that `tailrace streams` prints."""

    def __init__(self, whole: Completeness) -> None:
        self.streams = self.events = self.missing = self.open = 0
        self.unknown = False
        self._whole = whole

    def add(self, page: Page) -> Page:
        """Add the rows of a page to the sums, and return the page."""
        for _, _, _, _, events, missing, complete, _, open_spans, *_ in page:
            self.streams += 1
            self.events += events
            self.missing += missing
            self.open += open_spans
            self.unknown |= complete is None
        return page

    def text(self) -> str:
        awaited, unasked = self._whole.awaited, self._whole.unasked
        text = f"{counted(self.streams, 'stream')}: {counted(self.events, 'event')}, {self.missing} missing"
        if awaited:
            text += f", {awaited} still awaited"
        if self.unknown:
            text += " and an unknown number more"
        elif (known := self.events + self.missing + awaited) and not unasked:
            text += f", {self.events * 10**6 // known / 10**4:.4f} % complete"
        text += f", {counted(self.open, 'open span')}"
        if not (self._whole.selected or self.missing or self.unknown or awaited or unasked):
            text += f"; {self._whole.text}"
        return f"{text}; pending events cannot be determined: {unasked}" if unasked else text
