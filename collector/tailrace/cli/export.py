"""`tailrace export`: write events in the formats of other tools."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from tailrace.cli.options import (
    GAPS,
    complete_option,
    config_option,
    json_option,
    load_config,
    store_option,
    window_options,
)
from tailrace.cli.store import open_store
from tailrace.export.formats import WRITERS
from tailrace.export.output import STANDARD_OUTPUT, Output
from tailrace.export.progress import RowCount
from tailrace.terminal import unguarded
from tailrace.units import Size, counted

MEMORY = Size.parse("1 GiB")
"""The memory that the database may take. If a sort needs more, the database sorts the rest on disk."""


@click.command()
@config_option
@store_option
@click.option(
    "--to",
    "format_",
    type=click.Choice(list(WRITERS)),
    required=True,
    help=f"Format to write: {'; '.join(f'{name}: {each.meaning}' for name, each in WRITERS.items())}.",
)
@click.option(
    "-o",
    "--output",
    "path",
    metavar="PATH",
    required=True,
    help='File to write, or "-" for standard output. It has its name once it is whole.',
)
@window_options
@json_option("Print what was written, and what it lacks, as one JSON object.")
@complete_option
def command(
    config: Path | None,
    store: str | None,
    format_: str,
    path: str,
    sources: tuple[str, ...],
    sessions: tuple[str, ...],
    streams: tuple[str, ...],
    since: int | None,
    until: int | None,
    *,
    as_json: bool,
    complete_only: bool,
) -> None:
    """Write events, and what is missing from them, for other tools.

    The last line says whether anything is missing from what was selected, or still awaited. In perfetto
    and chrome, gaps are slices named LOST, between the events around them; in otlp they are spans with an
    error; parquet, arrow, csv and jsonl have a file of gaps beside them (`trace.gaps.csv`). A name that
    does not exist is an error, and so is a selection without events. `docs/export.md` has the details."""
    writer = WRITERS[format_]
    output = Output(path)
    if output.pipe and not writer.pipes:
        raise click.UsageError(f"{format_} makes several files: name the first one with -o")
    if path == STANDARD_OUTPUT and sys.stdout.isatty():
        raise click.UsageError("-o - is not for a terminal: write to a file or a pipe")
    loaded = load_config(config, store)

    from tailrace.export.exporting import export
    from tailrace.export.selected import Selected
    from tailrace.query.limits import Limits
    from tailrace.query.patience import Patience
    from tailrace.reading.question import Filters

    filters = Filters(sources or None, sessions or None, streams or None, since, until)
    terminal = unguarded(sys.stderr) if sys.stderr.isatty() else None

    def select() -> Selected:
        limits = Limits(memory=MEMORY, spill=2**60)
        engine, live = open_store(loaded, filters.selection, limits=limits)
        selected = Selected(engine, filters, Patience(engine, terminal), live)
        if complete_only:
            selected.whole.demand(GAPS)
        return selected

    progress = RowCount(terminal)
    with output:
        exported = export(writer, select, output, progress)
    names = [str(name) for name in output.names] or [path]
    text = f"{', '.join(names)}: {counted(progress.rows, 'row')}; {exported.text}"
    if as_json:
        text = json.dumps({"files": names, "rows": progress.rows} | exported.words)
    click.echo(text, err=output.pipe)
