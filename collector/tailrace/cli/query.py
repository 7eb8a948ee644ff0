"""`tailrace query`: SQL over what was collected."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tailrace.cli.options import GAPS, complete_option, config_option, load_config, store_option
from tailrace.cli.store import open_store, say_incomplete


@click.command()
@config_option
@store_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a row.")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated, with a heading.")
@click.option("--arrow", "as_arrow", is_flag=True, help="An Arrow IPC stream.")
@click.option("--source", metavar="NAME", help="Show only the rows of this source in all views.")
@complete_option
@click.argument("sql")
def command(
    config: Path | None,
    store: str | None,
    source: str | None,
    sql: str,
    *,
    as_json: bool,
    as_csv: bool,
    as_arrow: bool,
    complete_only: bool,
) -> None:
    """Ask in DuckDB's SQL; "-" reads it from standard input.

    There are the views events, spans, gaps, sessions and streams; `DESCRIBE spans` says what is in
    one. All of them show the table as it was when the command began. When anything of the table, or
    of the source, is missing or still awaited, whatever is asked, standard error says what.
    """
    if as_json + as_csv + as_arrow > 1:
        raise click.UsageError("--json, --csv and --arrow exclude one another: give one of them")
    if as_arrow and sys.stdout.isatty():
        raise click.UsageError("--arrow is not for a terminal: write it to a file, or pipe it on")
    loaded = load_config(config, store)
    statement = sys.stdin.read() if sql == "-" else sql

    from tailrace.query.completeness import Scope, completeness
    from tailrace.query.console import Console
    from tailrace.query.filters import Selection

    selection = Selection.of_options(source)
    engine, live = open_store(loaded, selection)
    if source is not None:
        engine.restrict(source)
    whole = completeness(engine, Scope.of(selection), live)
    if complete_only:
        whole.demand(GAPS)
    console = Console(engine)
    if as_json:
        console.json(statement)
    elif as_csv:
        console.csv(statement)
    elif as_arrow:
        console.arrow(statement)
    else:
        answer, pages = console.ask(statement)
        console.rows(answer.columns, pages)
    say_incomplete(whole)
