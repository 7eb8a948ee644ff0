"""`tailrace follow`: show rows as they arrive."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import click

from tailrace.cli.options import config_option, json_option, load_config, store_option
from tailrace.cli.store import open_store
from tailrace.config.load import store_path
from tailrace.errors import IncompleteError
from tailrace.standard import STDERR, never_wait

QUICK_SECONDS, SLOW_SECONDS = 0.1, 1.0
"""Seconds between two looks: the first after new rows, growing to the second while there are none."""


@click.command()
@config_option
@store_option
@json_option("Print one JSON object for each row, with all columns.")
@click.option(
    "--source",
    metavar="NAME",
    help="Show only this source, which must have rows or belong to the running collector.",
)
@click.option("--from-start", is_flag=True, help="First show all rows that exist already.")
@click.option(
    "--complete-only", is_flag=True, help="Exit with 3 once a row says that something is missing."
)
@click.option("--lines", type=click.IntRange(min=1), metavar="N", help="Stop after this many rows.")
def command(
    config: Path | None,
    store: str | None,
    *,
    as_json: bool,
    source: str | None,
    from_start: bool,
    complete_only: bool,
    lines: int | None,
) -> None:
    """Show rows as they are committed, each once, until Ctrl-C.

    Rows are shown as they are stored, with ticks (@) if the wall time was not known at commit."""
    loaded = load_config(config, store)
    never_wait(STDERR)

    from tailrace.cli.output.lines import KIND, SOURCE, RowPrinter
    from tailrace.query.filters import Selection
    from tailrace.query.follow import Follower

    if source is not None:
        open_store(loaded, Selection.of_options(source))[0].close()
    follower = Follower(
        store_path(loaded.config), loaded.config.store.options, from_start=from_start
    )
    printer = RowPrinter(
        sys.stdout.buffer,
        as_json=as_json,
        width=shutil.get_terminal_size().columns if sys.stdout.isatty() else None,
    )
    delay = QUICK_SECONDS
    while True:
        news = False
        for page in follower.poll():
            news = True
            rows = [row for row in page if source is None or row[SOURCE] == source][:lines]
            printer.print(rows)
            if complete_only and any(row[KIND] == "gap" for row in rows):
                raise IncompleteError(
                    "something is missing from the rows shown: see their gap rows"
                )
            if lines is not None:
                lines -= len(rows)
                if not lines:
                    return
        while follower.notices:
            click.echo(f"tailrace: {follower.notices.pop(0)}", err=True)
        delay = QUICK_SECONDS if news else min(1.5 * delay, SLOW_SECONDS)
        time.sleep(delay)
