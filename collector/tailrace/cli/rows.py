"""Define `tailrace query`, which runs SQL over rows, and `tailrace follow`, which shows rows as they arrive."""

from __future__ import annotations

import shutil
import sys
import time

import click

from tailrace import heaps
from tailrace.cli import options
from tailrace.cli.commands import examples
from tailrace.config.load import Loaded
from tailrace.errors import IncompleteError
from tailrace.query.completeness import Scope, completeness
from tailrace.query.filters import Selection
from tailrace.query.limits import Limits, bound_memory, go_apart, memory_limit_named
from tailrace.standard import STDERR, never_wait
from tailrace.units import Duration, Size


@click.command(
    epilog=examples('tailrace query --store ./store "SELECT DISTINCT name FROM spans ORDER BY 1"')
)
@options.config_option
@options.store_option
@options.json_option("Print one JSON object for each row.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values with a heading.")
@click.option(
    "--csv-safe",
    "as_safe_csv",
    is_flag=True,
    help="Print CSV for a spreadsheet, with a ' before texts that it would take for formulas.",
)
@click.option("--arrow", "as_arrow", is_flag=True, help="Print an Arrow IPC stream.")
@click.option("--source", metavar="NAME", help="Show only the rows of this source in all views.")
@click.option(
    "--timeout",
    type=options.Quantity(Duration),
    help="End the command after this time, even if nobody reads its output: '30 s'.",
)
@click.option(
    "--memory",
    type=options.Quantity(Size),
    help="End the statement when it needs more memory: '2 GiB'. By default 80 % of the machine's.",
)
@options.complete_option
@click.argument("sql")
@options.store_argument
@options.received_as("loaded", options.load_config, ("config", "store"))
def query_command(
    source: str | None,
    sql: str,
    timeout: Duration | None,
    memory: Size | None,
    *,
    loaded: Loaded,
    as_json: bool,
    as_csv: bool,
    as_safe_csv: bool,
    as_arrow: bool,
    complete_only: bool,
) -> None:
    """Run an SQL statement of DuckDB; "-" reads the statement from standard input.

    The views are events, spans, counters, gaps, sessions, streams, programs, labels and nesting; `DESCRIBE spans` lists
    the columns of the view spans. All views show the table as it was when the command began. If any event of the table
    (or of the source given by --source) is missing or may still arrive, the command prints a warning on standard error,
    whatever the statement selects.

    The statement runs in a process of its own. It can read the views, but no file of this host. If it crashes or
    reaches a limit, the command reports an error."""
    if as_json + as_csv + as_safe_csv + as_arrow > 1:
        raise click.UsageError(
            "--json, --csv, --csv-safe and --arrow cannot be combined: give one of them"
        )
    if as_arrow and sys.stdout.isatty():
        raise click.UsageError("--arrow is not for a terminal: write it to a file or a pipe")
    statement = _read_statement() if sql == "-" else sql

    limits = Limits(seconds=timeout, memory=memory)
    room = go_apart(limits)

    from tailrace.cli.output.console import Console

    selection = Selection.of_options(source)
    engine, live = options.open_store(loaded, selection, limits=limits, room=room)
    if source is not None:
        engine.restrict(source)
    whole = completeness(engine, Scope.of(selection), live)
    if complete_only:
        whole.demand(options.GAPS)
    bound_memory(limits)
    console = Console(engine)
    with memory_limit_named(limits):
        if as_json:
            console.json(statement)
        elif as_csv or as_safe_csv:
            console.csv(statement, safe=as_safe_csv)
        elif as_arrow:
            console.arrow(statement)
        else:
            answer, pages = console.ask(statement)
            console.rows(answer.columns, pages)
    options.warn_incomplete(whole)


def _read_statement() -> str:
    try:
        return sys.stdin.read().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise click.UsageError("the statement on standard input is not UTF-8") from error


QUICK_SECONDS, SLOW_SECONDS = 0.1, 1.0
"""Minimum and maximum pause (seconds) between two checks for new rows. The pause grows while there are none."""


@click.command(epilog=examples("tailrace follow --store ./store --from-start --lines 10"))
@options.reading_options
@options.json_option("Print one JSON object for each row, with all columns.")
@click.option(
    "--source",
    metavar="NAME",
    help="Show only this source, which must have rows or belong to the running collector.",
)
@click.option("--from-start", is_flag=True, help="First show all rows that exist already.")
@click.option(
    "--complete-only", is_flag=True, help="Exit with 3 when a shown row reports missing events."
)
@click.option("--lines", type=click.IntRange(min=1), metavar="N", help="Stop after this many rows.")
def follow_command(
    *, loaded: Loaded, as_json: bool, source: str | None, from_start: bool, complete_only: bool,
    lines: int | None,
) -> None:  # fmt: skip
    """Show rows as they are committed, each once, until Ctrl-C.

    A row whose wall time was not known at its commit is shown with its ticks (@)."""
    never_wait(STDERR)
    heaps.load_arrow()

    from tailrace.cli.output.lines import KIND, SOURCE, RowPrinter
    from tailrace.query.follow import Follower

    if source is not None:
        options.open_store(loaded, Selection.of_options(source))[0].close()
    follower = Follower(*loaded.store, from_start=from_start)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    printer = RowPrinter(sys.stdout.buffer, as_json=as_json, width=width)
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
