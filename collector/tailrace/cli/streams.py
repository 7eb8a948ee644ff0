"""`tailrace streams`: what is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailrace.cli.options import GAPS, complete_option, config_option, load_config, store_option
from tailrace.config.load import store_path

if TYPE_CHECKING:
    from tailrace.query.answer import Page

# 100 % is only what is complete: shares are rounded down.
TABLE = """
SELECT source, format, session, stream, events, missing,
  format('{:.4f} %', floor(completeness * 1e6) / 1e4) AS complete,
  open_spans AS open,
  strftime(part.readable(first_time), '%Y-%m-%d %H:%M:%S') AS first,
  strftime(part.readable(last_time), '%Y-%m-%d %H:%M:%S') AS last
FROM streams
"""


@click.command()
@config_option
@store_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a stream, all columns.")
@click.option("--source", metavar="NAME", help="Only this source.")
@click.option("--session", metavar="ID", help="Only sessions whose id begins so.")
@complete_option
def command(
    config: Path | None,
    store: str | None,
    *,
    as_json: bool,
    source: str | None,
    session: str | None,
    complete_only: bool,
) -> None:
    """What is there: one line a stream, and how complete it is.

    `complete` is the share of the events known to exist that are here; a dash, when something of
    unknown size is missing. Times are UTC.
    """
    loaded = load_config(config, store)

    from tailrace.query.completeness import completeness
    from tailrace.query.console import Console
    from tailrace.query.engine import Engine
    from tailrace.query.filters import chosen
    from tailrace.query.views import STREAMS

    condition = chosen(source=source, session=session)
    engine = Engine(store_path(loaded.config), loaded.config.store.options)
    if complete_only:
        completeness(engine, condition).demand(GAPS)
    console = Console(engine)
    selection = f"WHERE {condition.sql} ORDER BY {STREAMS.order}"
    if as_json:
        console.json(f"FROM streams {selection}", condition.values)
        return
    answer, pages = console.ask(f"{TABLE} {selection}", condition.values)
    totals = Totals()
    console.table(answer.columns, totals.adding(pages))
    console.line(totals.text())


class Totals:
    """Sums over the lines of the table, as they go by."""

    def __init__(self) -> None:
        self.streams = self.events = self.missing = self.open = 0
        self.unknown = False

    def adding(self, pages: Iterable[Page]) -> Iterator[Page]:
        for page in pages:
            for _, _, _, _, events, missing, complete, open_spans, *_ in page:
                self.streams += 1
                self.events += events
                self.missing += missing
                self.open += open_spans
                self.unknown |= complete is None
            yield page

    def text(self) -> str:
        text = f"{self.streams} streams: {self.events} events, {self.missing} missing"
        if self.unknown:
            text += " and an unknown number more"
        elif self.events or self.missing:
            share = self.events * 10**6 // (self.events + self.missing)
            text += f", {share / 10**4:.4f} % complete"
        return f"{text}, {self.open} open spans"
