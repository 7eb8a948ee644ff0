"""`tailrace upkeep`: one run of the table's upkeep, in a process that ends."""

from __future__ import annotations

from pathlib import Path

import click

from tailrace.cli.options import config_option, load_config, store_option
from tailrace.clock import SystemClock
from tailrace.config.load import store_path
from tailrace.store import upkeep


@click.command()
@config_option
@store_option
@click.option("--all", "everything", is_flag=True, help="Merge and vacuum now, due or not.")
def command(config: Path | None, store: str | None, *, everything: bool) -> None:
    """Merge small files, delete days beyond the retention, remove files nobody needs.

    The daemon runs this by itself; it is safe beside it and beside readers."""
    loaded = load_config(config, store)
    report = upkeep.run(
        store_path(loaded.config),
        loaded.config.store,
        clock=SystemClock(),
        everything=everything,
    )
    for day in report.deleted_days:
        click.echo(f"deleted {day}")
    click.echo(f"merged {report.merged_files} files into {report.made_files}")
    click.echo(f"removed {report.vacuumed_files} files that no version needs")
    for step in report.skipped:
        click.echo(f"left to the next run: {step}")
