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
"""Minimum number of slow records that the ledger mentions: records that a decoder had to read one by one.

Fewer records take no noticeable time.
"""


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
        lines += _ledger(name, source, _in_words(names.get(name, 0)))
        if copies and name in copies:
            lines.append(_of_copies(copies[name]))
    uncommitted = status.spool.durable - status.spool.committed
    if uncommitted:
        lines.append(f"  left in the spool for the next start: {counted(uncommitted, 'byte')}")
    return "\n".join(lines)


def _in_words(names: int | None) -> str:
    """Return a phrase about the number of missing names, with which a sentence of the ledger ends."""
    if names == 0:
        return ""
    asked = "an unknown number of names" if names is None else counted(names, "name")
    return f", and {asked} missing that they ask for"


def _of_copies(copies: CopiedFiles | None) -> str:
    if copies is None:
        return (
            "    copies: it is unknown how many files in the store have the content of other files"
        )
    alone = copies.files == 1
    files = (
        "1 file in the store has the content of another file"
        if alone
        else f"{copies.files} files in the store have the content of other files"
    )
    whose = "its" if alone else "their"
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
        f"{source.duplicate_events} of them duplicates, {source.missing_events} missing{names}",
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
        TimeRemainingColumn(), TextColumn("{task.fields[rows]} rows"), console=Console(file=unguarded(sys.stderr)),
    )  # fmt: skip
    task = bar.add_task("import", total=None, files="", rows=0)

    def show(progress: ImportProgress) -> None:
        files = f"{progress.files}/{progress.files_total} files"
        bar.update(
            task,
            completed=progress.bytes,
            total=progress.bytes_total,
            files=files,
            rows=progress.rows,
        )

    with bar:
        yield show
