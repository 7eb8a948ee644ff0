"""Define `tailrace export`, which writes events in the formats of other tools."""

from __future__ import annotations

import json
import sys
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import click

from tailrace.cli import options
from tailrace.cli.commands import examples
from tailrace.config.load import shared_path
from tailrace.export import DIRECTORIES, ORIGINAL, WRITERS
from tailrace.export.output import STANDARD_OUTPUT, Directory, Output, RowCount
from tailrace.store.presence import quarantines
from tailrace.terminal import unguarded
from tailrace.units import Size, counted

if TYPE_CHECKING:
    from tailrace.config.load import Loaded
    from tailrace.export import Write
    from tailrace.export.selected import Selected
    from tailrace.reading.question import Filters

_FORMATS = {name: each.meaning for name, each in WRITERS.items()} | DIRECTORIES

MEMORY = Size.parse("1 GiB")
"""Maximum memory of the database during an export. If a sort needs more memory, the database writes temporary files."""


@click.command(
    epilog=examples(
        "tailrace export --store ./store --to perfetto -o trace.pftrace",
        "tailrace export --store ./store --to csv -o -",
    )
)
@options.reading_options
@click.option(
    "--to",
    "format_",
    type=click.Choice(list(_FORMATS)),
    required=True,
    help=f"Format to write: {'; '.join(f'{name}: {meaning}' for name, meaning in _FORMATS.items())}.",
)
@click.option(
    "-o",
    "--output",
    "path",
    metavar="PATH",
    required=True,
    help='File to write, or "-" for standard output; for original and otf2, a directory. The file gets its name when it is complete.',
)
@click.option(
    "--repair",
    is_flag=True,
    help="With original: leave out bytes that could not be decoded, and close records and streams that a killed program left open.",
)
@click.option(
    "--csv-safe",
    is_flag=True,
    help="With csv: put a ' before texts that a spreadsheet would take for formulas.",
)
@options.window_options
@options.json_option("Print what was written, and what it lacks, as one JSON object.")
@options.complete_option
def export_command(
    format_: str,
    path: str,
    *,
    loaded: Loaded,
    filters: Filters,
    repair: bool,
    csv_safe: bool,
    as_json: bool,
    complete_only: bool,
) -> None:
    """Write events, and what is missing from them, for other tools.

    The last line states whether any of the selected events are missing, or may still arrive. In perfetto and chrome,
    gaps are slices named LOST, between the events around them; in otlp, gaps are spans with an error; for parquet,
    arrow, csv and jsonl, a second file has the gaps (`trace.gaps.csv`), and a third one the names of processes and
    threads (`trace.programs.csv`). All formats contain the notes that users saved
    in `tailrace view`. A source, session or stream that does not exist is an error, and so is a selection without
    events. `docs/export.md` has the details."""
    for given, option, of in ((repair, "--repair", ORIGINAL), (csv_safe, "--csv-safe", "csv")):
        if given and format_ != of:
            raise click.UsageError(f"{option} is for --to {of}")
    output = _place(format_, path)

    from tailrace.export.selected import Selected, export
    from tailrace.query.limits import Limits
    from tailrace.query.patience import Patience

    terminal = unguarded(sys.stderr) if sys.stderr.isatty() else None

    def select() -> Selected:
        limits = Limits(memory=MEMORY, spill=2**60)
        engine, live = options.open_store(loaded, filters.selection, limits=limits)
        selected = Selected(engine, filters, Patience(engine, terminal), live)
        if complete_only:
            selected.whole.demand(options.GAPS)
        return selected

    progress = RowCount(terminal)
    added: Counter[str] = Counter()
    with output:
        if isinstance(output, Output):
            exported = export(_writer(format_, csv_safe=csv_safe), select, output, progress)
        elif format_ != ORIGINAL:
            from tailrace.export.otf2_archive import write as write_otf2

            exported = export(write_otf2, select, output, progress)
        else:
            from tailrace.export.original import write

            kept = quarantines(shared_path(loaded.config))
            original = partial(write, quarantine=kept, added=added if repair else None)
            exported = export(original, select, output, progress)
    names = [str(name) for name in output.names] or [path]
    text = f"{', '.join(names)}: {counted(progress.rows, 'row')}; {exported.text}"
    if repair:
        listed = ", ".join(f"{count} x {what}" for what, count in sorted(added.items()))
        text += f"; added: {listed or 'nothing'}"
    if as_json:
        words = {"files": names, "rows": progress.rows} | exported.words
        text = json.dumps(words | ({"added": dict(added)} if repair else {}))
    click.echo(text, err=output.pipe)


def _writer(format_: str, *, csv_safe: bool) -> Write:
    if not csv_safe:
        return WRITERS[format_].load()
    from tailrace.export.tables import write_csv

    return partial(write_csv, safe=True)


def _place(format_: str, path: str) -> Output | Directory:
    """Return the file or directory to which an export writes. Raise UsageError if the format cannot be written there."""
    if format_ in DIRECTORIES:
        if path == STANDARD_OUTPUT:
            raise click.UsageError(f"{format_} makes several files: name a directory with -o")
        return Directory(path)
    output = Output(path)
    if output.pipe and not WRITERS[format_].pipes:
        raise click.UsageError(f"{format_} makes several files: name the first one with -o")
    if path == STANDARD_OUTPUT and sys.stdout.isatty():
        raise click.UsageError("-o - is not for a terminal: write to a file or a pipe")
    return output
