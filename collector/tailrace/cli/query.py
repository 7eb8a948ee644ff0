"""`tailrace query`: SQL over what was collected."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tailrace.cli.options import GAPS, complete_option, config_option, load_config, store_option
from tailrace.config.load import store_path


@click.command()
@config_option
@store_option
@click.option("--json", "form", flag_value="json", help="One JSON object a row.")
@click.option("--csv", "form", flag_value="csv", help="Comma-separated, with a heading.")
@click.option("--arrow", "form", flag_value="arrow", help="An Arrow IPC stream.")
@complete_option
@click.argument("sql")
def command(
    config: Path | None, store: str | None, form: str | None, sql: str, *, complete_only: bool
) -> None:
    """Ask in DuckDB's SQL; "-" reads it from standard input.

    There are the views events, spans, gaps, sessions and streams; `DESCRIBE spans` says what is in
    one. All of them show the table as it was when the command began. When anything of the table is
    missing, whatever is asked, standard error says what.
    """
    if form == "arrow" and sys.stdout.isatty():
        raise click.UsageError("--arrow is not for a terminal: write it to a file, or pipe it on")
    loaded = load_config(config, store)
    statement = sys.stdin.read() if sql == "-" else sql

    from tailrace.query.completeness import completeness
    from tailrace.query.console import Console
    from tailrace.query.engine import Engine

    engine = Engine(store_path(loaded.config), loaded.config.store.options)
    whole = completeness(engine)
    if complete_only:
        whole.demand(GAPS)
    console = Console(engine)
    match form:
        case "json":
            console.json(statement)
        case "csv":
            console.csv(statement)
        case "arrow":
            console.arrow(statement)
        case _:
            answer, pages = console.ask(statement)
            console.table(answer.columns, pages)
    if not whole.complete:
        click.echo(f"tailrace: {whole.text}; {GAPS} says which", err=True)
