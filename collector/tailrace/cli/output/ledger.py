"""Print what `tailrace serve` and `tailrace import` have received: the progress while files are read, and at the end a
ledger of received, stored and missing events."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tailrace.terminal import unguarded
from tailrace.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tailrace.figures import SourceStatus, Status
    from tailrace.importing.importing import ImportProgress
    from tailrace.query.completeness import CopiedFiles

SLOW_MIN = 1000
"""Minimum number of records read one by one that the ledger mentions. Fewer records take no noticeable time."""


def final_ledger(
    status: Status,
    names: Mapping[str, int | None],
    copies: Mapping[str, CopiedFiles | None] | None = None,
) -> str:
    """Return the final ledger as text: for each source, what was received, and which events are missing for which
    reasons. `names` has, by source, the number of names to which events refer and which no file contains. `copies` has
    the files that views leave out as copies. In `names` and `copies`, None stands for an unknown value."""
    lines = [f"final ledger: {counted(status.rows_committed, 'row')} committed since the start"]
    for name, source in status.sources.items():
        asked = names.get(name, 0)
        lacking = "an unknown number of names" if asked is None else counted(asked, "name")
        lines += _ledger(
            name, source, "" if asked == 0 else f", and {lacking} missing that they ask for"
        )
        if copies and name in copies:
            lines.append(_of_copies(copies[name]))
    uncommitted = status.spool.durable - status.spool.committed
    if uncommitted:
        lines.append(f"  left in the spool for the next start: {counted(uncommitted, 'byte')}")
    return "\n".join(lines)


def _of_copies(copies: CopiedFiles | None) -> str:
    if copies is None:
        unknown = "it is unknown how many files in the store have the content of other files"
        return f"    copies: {unknown}"
    files, whose = f"{copies.files} files in the store have the content of other files", "their"
    if copies.files == 1:
        files, whose = "1 file in the store has the content of another file", "its"
    return f"    copies: {files}; views leave out {whose} {counted(copies.events, 'event')}"


def _ledger(name: str, source: SourceStatus, names: str) -> list[str]:
    gaps = ", ".join(f"{reason} {count}" for reason, count in source.gap_events.items() if count)
    heals = sum(source.heal_events.values())
    lines = [
        f"  {name}: {counted(source.received_bytes, 'byte')} in"
        f" {counted(source.sessions_opened, 'session')}: "
        f"{source.decoded_bytes} decoded, {source.malformed_bytes} malformed, "
        f"{source.pending_bytes} pending",
        f"    events: {source.expected_events} expected, {source.seen_events} seen, "
        f"{counted(source.duplicate_events, 'of them a duplicate', 'of them duplicates')}, {source.missing_events} missing{names}",
    ]
    records = sum(source.records.values()) + sum(source.malformed_records.values())
    if source.slow_records > max(SLOW_MIN, records // 10):
        lines.append(
            f"    read one by one, which takes many times as long: {source.slow_records} of"
            f" {counted(records, 'record')}, whose shape is unusual"
        )
    if gaps:
        lines.append(f"    gaps found: {gaps}" + (f"; healed: {heals}" if heals else ""))
    if source.unknown_gaps:
        lines.append(f"    gaps of unknown size: {source.unknown_gaps}")
    if source.kernel_drops:
        lines.append(f"    datagrams dropped by the kernel: {source.kernel_drops}")
    return lines


@contextmanager
def progress_bar() -> Iterator[Callable[[ImportProgress], None]]:
    """Yield a function that shows the progress of reading on a terminal. Without a terminal, the function does nothing."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return

    from rich import progress as rich
    from rich.console import Console

    bar = rich.Progress(
        rich.TextColumn("{task.fields[files]}"), rich.BarColumn(), rich.DownloadColumn(),
        rich.TransferSpeedColumn(), rich.TimeRemainingColumn(), rich.TextColumn("{task.fields[rows]}"),
        console=Console(file=unguarded(sys.stderr)),
    )  # fmt: skip
    task = bar.add_task("import", total=None, files="", rows="")

    def show(progress: ImportProgress) -> None:
        files = f"{progress.files}/{counted(progress.files_total, 'file')}"
        done, total = progress.bytes, progress.bytes_total
        bar.update(
            task, completed=done, total=total, files=files, rows=counted(progress.rows, "row")
        )

    with bar:
        yield show
