"""`tailrace ranks`: a map of rank and time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailrace.cli.options import config_option, job_options, json_option, load_config, store_option
from tailrace.cli.store import open_store
from tailrace.errors import StoreError
from tailrace.filesystem import refusal_text

if TYPE_CHECKING:
    from tailrace.query.filters import JobFilter

COLUMNS_MAX = 10_000


@click.command()
@config_option
@store_option
@json_option("Print one JSON object.")
@click.option(
    "--columns",
    metavar="N",
    type=click.IntRange(1, COLUMNS_MAX),
    default=60,
    show_default=True,
    help="Divide the time into so many parts.",
)
@click.option(
    "--svg",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Also draw the map as a picture into FILE.",
)
@job_options
def command(
    config: Path | None,
    store: str | None,
    job: JobFilter,
    columns: int,
    svg: Path | None,
    *,
    as_json: bool,
) -> None:
    """Show for each rank of a job when it has events, and where some are missing.

    A line is a rank: a shade for how many of its events begin in each part of the time, and an x where
    some are missing: behind the event before them or, where nobody knows how many, behind the rank's last
    event. The figures are its events with a time, and those missing, with a + where more may be. Ranks that
    were killed say so, and in a merged store also those that never came.

    With --json: `begin` and `end` of the map (Unix ns), its `columns`, and the `ranks`: `job`, `rank`, `node`
    and `state`, and for each column how many `events` begin there, how many are `missing`, and whether an
    `unknown` number is. In no column are `untimed` events, and missing ones that are `unplaced`."""
    loaded = load_config(config, store)

    from tailrace.config.load import store_path
    from tailrace.job import rank_map
    from tailrace.job.merging import RANKS_DIRECTORY, rank_logs
    from tailrace.job.presence import presence
    from tailrace.job.rank_map import drawn
    from tailrace.query.filters import Selection
    from tailrace.run.ranks import read

    directory = Path(store_path(loaded.config))
    engine, _ = open_store(loaded, Selection())
    merged = (directory / RANKS_DIRECTORY).is_dir()
    there = presence((read(path) for path in rank_logs(directory)), whole=merged)
    found = drawn(engine, there, job, columns)
    if not found.ranks:
        raise StoreError(f"{store_path(loaded.config)}: no session of it has such a rank")
    if svg is not None:
        try:
            svg.write_text(rank_map.svg(found))
        except OSError as error:
            raise StoreError(f"{svg}: {refusal_text(error.errno, svg)}") from error
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(found).decode())
        return
    for line in rank_map.text(found):
        click.echo(line)
