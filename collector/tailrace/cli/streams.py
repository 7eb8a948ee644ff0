"""`tailrace streams`: list the streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailrace.cli.options import (
    GAPS,
    complete_option,
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
    from tailrace.query.completeness import Completeness
    from tailrace.query.filters import JobFilter, RunLabel

# Shares are rounded down, so that only a complete stream shows 100 %.
TABLE = """
SELECT source, format, session, stream, events, missing,
  format('{:.4f} %', floor(completeness * 1e6) / 1e4) AS complete,
  state, open_spans AS open,
  strftime(part.readable(first_time), '%Y-%m-%d %H:%M:%S') AS first,
  strftime(part.readable(last_time), '%Y-%m-%d %H:%M:%S') AS last,
  strftime(part.readable(silent_since), '%Y-%m-%d %H:%M:%S') AS "silent since", peer
FROM streams LEFT JOIN part.origins USING (source, session)
"""
SPARE = ("first", "last", "silent since", "format", "open")


@click.command()
@config_option
@store_option
@json_option("Print one JSON object for each stream, with all columns.")
@source_option
@session_option
@label_option
@job_options
@complete_option
def command(
    config: Path | None,
    store: str | None,
    *,
    as_json: bool,
    source: str | None,
    session: str | None,
    labels: tuple[RunLabel, ...],
    job: JobFilter,
    complete_only: bool,
) -> None:
    """List the streams, and how complete each is.

    `peer` is the file or the address that the stream came from.
    `complete` is the share of the events known to exist that are in the table, or a dash if an unknown
    number is or may be missing. `state` is `open` while a collector receives events, `silent` when the
    file rests, `unwatched` when its collector does not run, `unfollowed` when no source follows its file any
    more, `ended`, or `unfinished?` when the stream has not said its end and its process is gone, its file rests or
    its collector does not run. Times are UTC. The last line also says how many events the running collector still waits for; with --json, standard error
    says it."""
    loaded = load_config(config, store)

    from tailrace.cli.output.console import Console
    from tailrace.query.completeness import Scope, completeness
    from tailrace.query.filters import Selection
    from tailrace.query.views import STREAMS

    selection = Selection.of_options(source, session, labels, job)
    engine, live = open_store(loaded, selection)
    whole = completeness(engine, Scope.of(selection), live)
    if complete_only:
        whole.demand(GAPS)
    console = Console(engine)
    condition = selection.condition
    chosen = f"WHERE {condition.sql} ORDER BY {STREAMS.order}"
    if as_json:
        every = "SELECT streams.*, peer FROM streams LEFT JOIN part.origins USING (source, session)"
        console.json(f"{every} {chosen}", condition.values)
        if whole.awaited or whole.unasked or not whole.selected:
            say_incomplete(whole)
        return
    answer, pages = console.ask(f"{TABLE} {chosen}", condition.values)
    totals = StreamTotals(whole)
    console.table(answer.columns, totals.adding(pages), spare=SPARE)
    console.line(totals.text())


class StreamTotals:
    """Sums over the lines of the table, added while they are printed."""

    def __init__(self, whole: Completeness) -> None:
        self.streams = self.events = self.missing = self.open = 0
        self.unknown = False
        self._whole = whole

    def adding(self, pages: Iterable[Page]) -> Iterator[Page]:
        for page in pages:
            for _, _, _, _, events, missing, complete, _, open_spans, *_ in page:
                self.streams += 1
                self.events += events
                self.missing += missing
                self.open += open_spans
                self.unknown |= complete is None
            yield page

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
        return f"{text}; nobody knows what is still awaited: {unasked}" if unasked else text
