"""Define `tailrace import`, which stores finished trace files and the files of directories in the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tailrace import heaps, log
from tailrace.cli.commands import ExitCode, examples
from tailrace.cli.options import json_option, table_options
from tailrace.cli.output.ledger import final_ledger, progress_bar
from tailrace.config.load import Loaded
from tailrace.decoding.formats import FORMATS, REFUSED
from tailrace.units import counted

if TYPE_CHECKING:
    from tailrace.importing.discover import LeftOut, Why
    from tailrace.importing.summary import Summary

SHOWN = 10
"""Maximum number of files that each list of the output names: the files of which events are missing, and the files that
were left out for one reason. --json lists all."""


class _FormatChoice(click.Choice[str]):
    """A choice of a format. The error about an invalid choice also lists the formats that are installed, but that
    Tailrace refuses to use."""

    def get_invalid_choice_message(self, value: object, ctx: click.Context | None) -> str:
        return "\n".join([super().get_invalid_choice_message(value, ctx), *map(str, REFUSED)])


@click.command(epilog=examples("tailrace import --store ./store ./traces"))
@table_options
@click.option(
    "--format",
    "format_",
    metavar="NAME",
    type=_FormatChoice(list(FORMATS)),
    help=f"Format of the files; by default it is detected from names and first bytes: {', '.join(FORMATS)}.",
)
@click.option("--dialect", metavar="NAME", default="auto", help="Dialect of the format.")
@click.option("--source", metavar="NAME", default="import", help="Name of the source in the table.")
@click.option(
    "--again", is_flag=True, help="Also import files that this source has imported before."
)
@click.option(
    "--max-loss",
    metavar="N",
    type=click.IntRange(min=0),
    help="Exit with 4 if more events than this are missing from the files, or an unknown number is missing.",
)
@json_option("Print one JSON object with the same facts.")
@click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
def import_command(
    format_: str | None,
    dialect: str,
    source: str,
    max_loss: int | None,
    *,
    loaded: Loaded,
    again: bool,
    as_json: bool,
    paths: tuple[Path, ...],
) -> None:
    """Import finished files, and all files below directories; then print what was stored and what is missing.

    The import recognises traces by their first bytes; names and directories do not matter. If you repeat a command,
    nothing is stored twice, and new files are imported. The command skips files that the table has already and copies
    of other files, and names them. A file that has grown since an earlier import is read again, and its new session
    replaces the earlier one. An interrupted import continues where it stopped. Beside a running collector, the import
    is a collector of its own, with the name `import`.

    Files of equal content are copies, wherever they are. A DFTracer file is a copy, too, if other given files have all
    its lines, and it looks like the output of a tool: dftracer_split may have written it, or it begins with the record
    of another given file, as a merged file does. At most 4 million different lines are compared.

    In any format, a file is a copy, too, if it is a piece of a longer file: the last piece, if both files are
    uncompressed, or one of several pieces that follow one another from the beginning of the longer file. The first
    piece alone is a copy only if it states when its run began (Heph and DFTracer). In other formats, a killed run of
    the same program may have written it. If more than 16 files begin or end alike, these files are not compared.

    A file whose name is derived from another file in its directory (NAME~, NAME.part, NAME.1) is a copy, too, if it
    holds only the beginning of that file, and at least 256 bytes. A file of several gzip members is a copy only beside
    the original (NAME and NAME.gz, say), or if another given file has the same compressed bytes.

    Exits with 1 if a file could not be read, if a file that was named is not a trace, or if none of the files has an
    event.

    With --json: `files` are the imported files, each with its `session`, its number of `events` and its number of
    `missing` events by reason. `unknown` is true if an unknown number is missing as well. `events`, `missing` and
    `unknown` beside `files` are the sums over all files. `missing_names` has, by source, the number of missing names to
    which events refer, or null if the number is unknown. `left_out` are the files that were not imported, each with the
    reason (`why`). For a copy, `of` is the file of which it is a copy. For a file that cannot be read, `content`
    describes what the file contains. A file has a false `trace` if nothing shows that it was meant to be a trace.
    `imported_before` lists what the table had of the given files before.

    Links in a directory are followed only if their targets are in that directory."""
    heaps.load_arrow()

    from tailrace.importing.importing import Wanted, take

    log.configure(loaded.config.log, quiet=True)
    for refused in REFUSED:
        click.echo(f"tailrace: {refused}", err=True)
    wanted = Wanted(paths, source, format_, dialect, again=again)
    summary, done = take(loaded, wanted, progress_bar)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(summary), indent=2))
    else:
        click.echo(final_ledger(done.status, summary.names) if done else "nothing to import")
        for line in (*_stored(summary), *_left_out(summary.left_out, format_)):
            click.echo(line)
    for problem in _problems(summary, max_loss):
        click.echo(problem, err=True)
    if done and done.signal:
        raise SystemExit(128 + done.signal)
    if max_loss is not None and summary.exceeds(max_loss):
        raise SystemExit(ExitCode.LOSS)
    if summary.failed:
        raise SystemExit(ExitCode.FAILED)


def _stored(summary: Summary) -> Iterator[str]:
    """Yield lines that state where the files are stored, and which files lack events."""
    sessions = [*summary.files, *summary.earlier]
    if not sessions:
        return
    paths: dict[str, tuple[int, Counter[str], bool]] = {}
    for each in sessions:
        events, missing, unknown = paths.get(each.path, (0, Counter(), False))
        missing.update(each.missing)
        paths[each.path] = events + each.events, missing, unknown or each.unknown
    events = sum(events for events, _, _ in paths.values())
    sources = sorted({each.source for each in sessions})
    yield (
        f"stored in {summary.store} as {', '.join(sources)}: {counted(events, 'event')} of"
        f" {counted(len(paths), 'file')}"
    )
    lacking = [(path, +missing, unknown) for path, (_, missing, unknown) in paths.items()]
    lacking = [each for each in lacking if each[1] or each[2]]
    if lacking:
        yield f"{counted(len(lacking), 'file')} {'lacks' if len(lacking) == 1 else 'lack'} events:"
    for path, missing, unknown in lacking[:SHOWN]:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(missing.items()))
        amounts = [f"{missing.total()} ({reasons})"] * bool(reasons)
        amounts += ["an unknown number more" if reasons else "an unknown number"] * unknown
        yield f"  {path}: {' and '.join(amounts)} missing"
    if len(lacking) > SHOWN:
        yield f"  and {len(lacking) - SHOWN} more (--json lists all)"


def _left_out(files: list[LeftOut], format_: str | None) -> Iterator[str]:
    reasons: dict[Why, list[LeftOut]] = {}
    for file in files:
        reasons.setdefault(file.why, []).append(file)
    for why, left in sorted(reasons.items()):
        yield f"{_counted(why, len(left), format_)}:"
        for file in left[:SHOWN]:
            content = f"its content is in {file.of}" if file.of else file.content
            text = f"  {file.path}" + (f": {content}" if content else "")
            yield text + (f", imported as {file.format}" if file.format else "")
        if len(left) > SHOWN:
            yield f"  and {len(left) - SHOWN} more (--json lists all)"


def _counted(why: Why, count: int, format_: str | None) -> str:
    """Return a sentence with the number of files that were not imported for the reason `why`."""
    this = "list the file itself on the command line to import"
    these = "list the files themselves on the command line to import"
    one, several = {
        "imported": ("is in the table already", "are in the table already"),
        "copy": ("is a copy of another file, or of a part of others", "are copies of other files, or of parts of others"),
        "outside": (
            "is a link out of the directory, and is not followed; give it by name",
            "are links out of the directory, and are not followed; give them by name",
        ),
        "empty": ("has no content", "have no content"),
        "other_format": (
            f"is left out: its content is not of {format_}; {this} it all the same",
            f"are left out: their contents are not of {format_}; {these} them all the same",
        ),
        "foreign": ("cannot be read as it is", "cannot be read as they are"),
        "absent": ("does not exist, although a link or a document names it", "do not exist, although links or documents name them"),
        "unreadable": ("cannot be read", "cannot be read"),
        "special": ("is a pipe, a socket or a device", "are pipes, sockets or devices"),
        "gone": ("was gone before it could be read", "were gone before they could be read"),
        "changed": (
            "was emptied or replaced before it could be read; repeat the command",
            "were emptied or replaced before they could be read; repeat the command",
        ),
        "unrecognised": (
            f"is left out: neither the file name nor the content is of {format_}; {this} it all the same",
            f"are left out: neither their names nor their contents are of {format_}; {these} them all the same",
        ) if format_ else ("is not a trace of any known format", "are not traces of any known format"),
    }[why]  # fmt: skip
    text, them = (f"1 file {one}", "it") if count == 1 else (f"{count} files {several}", "them")
    return text + (f" (--again imports {them} once more)" if why == "imported" else "")


def _problems(summary: Summary, max_loss: int | None) -> Iterator[str]:
    if summary.interrupted:
        yield "interrupted: repeat the same command to continue"
        return
    if summary.errors:
        errors = ", ".join(f"{name} {count}" for name, count in summary.errors.items())
        yield f"some files could not be read: {errors}"
    if not (summary.files or summary.earlier or summary.left_out):
        yield "there is no file in the directories that were given"
    elif summary.without_events:
        yield "no file contains an event"
    if max_loss is not None and summary.exceeds(max_loss):
        yield f"more than {counted(max_loss, 'event is', 'events are')} missing, or an unknown number is (`tailrace gaps` lists them)"
