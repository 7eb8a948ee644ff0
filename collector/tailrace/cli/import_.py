"""`tailrace import`: finished files and directories through the whole path, once."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailrace.cli import ExitCode
from tailrace.cli.options import config_option, load_config, store_option
from tailrace.config.chosen import file_formats

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailrace.figures import Status
    from tailrace.pipeline.importing import Progress


@click.command()
@config_option
@store_option
@click.option(
    "--format",
    "format_",
    metavar="NAME",
    type=click.Choice(file_formats()),
    help=f"What the files are; without it their names and first bytes tell: {', '.join(file_formats())}.",
)
@click.option("--dialect", metavar="NAME", default="auto", help="Dialect of the format.")
@click.option("--source", metavar="NAME", default="import", help="Name of the source in the table.")
@click.option("--again", is_flag=True, help="Also files that this source has imported before.")
@click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
def command(
    config: Path | None,
    store: str | None,
    format_: str | None,
    dialect: str,
    source: str,
    *,
    again: bool,
    paths: tuple[Path, ...],
) -> None:
    """Take in finished files, and all below directories; then say what came and what is missing.

    What was interrupted goes on where it stopped when the same command is given again. No daemon may
    be running on the same store.
    """
    loaded = load_config(config, store)

    from tailrace import log
    from tailrace.cli.serve import final_ledger
    from tailrace.pipeline import finding, importing

    log.configure(loaded.config.log, quiet=True)
    found, others = finding.find(paths, format_)
    if not again:
        found, known = importing.without_imported(loaded, source, found)
        if known:
            click.echo(f"{known} files are in the table already (--again takes them in once more)")
    if others:
        shown = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
        click.echo(f"{len(others)} files are no trace of any known format: {shown}")
    if not found:
        click.echo("nothing to import")
        return
    with ExitStack() as stack:
        done = importing.run(loaded, importing.sources(source, found, dialect), _bar(stack))
    click.echo(final_ledger(done.status))
    if done.signal:
        click.echo("interrupted: the same command goes on with it", err=True)
        raise SystemExit(128 + done.signal)
    if failed := _failed(done.status):
        click.echo(f"some of it could not be read: {failed}", err=True)
        raise SystemExit(ExitCode.FAILED)


def _failed(last: Status) -> str:
    """Calls for files that failed, by the error's name; none is tried again."""
    errors: Counter[str] = Counter()
    for source in last.sources.values():
        errors.update(source.errors)
    return ", ".join(f"{name} {count}" for name, count in sorted(errors.items()))


def _bar(stack: ExitStack) -> Callable[[Progress], None]:
    """Shows progress on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        return lambda _: None

    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress as Bar,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    bar = Bar(
        TextColumn("{task.fields[files]}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        TimeRemainingColumn(), TextColumn("{task.fields[rows]} rows"), console=Console(stderr=True),
    )  # fmt: skip
    task = stack.enter_context(bar).add_task("import", total=None, files="", rows=0)

    def show(progress: Progress) -> None:
        files = f"{progress.files}/{progress.files_total} files"
        bar.update(
            task,
            completed=progress.bytes,
            total=progress.bytes_total,
            files=files,
            rows=progress.rows,
        )

    return show
