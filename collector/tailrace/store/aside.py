"""Set damaged data files aside: one new version removes them from the table and names what is lost.

One log entry removes the files and adds their gap rows. A reader sees either the file or the gaps, and
so it stays if the process is killed. The library cannot commit both at once, so we write the log entry
here, with a hard link, which fails if another writer took the version number. The damaged files are
moved to `DIRECTORY` for people to look at; no code reads or removes them there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from deltalake.exceptions import DeltaError

from tailrace import owned
from tailrace.clock import Clock
from tailrace.store import durable, layout
from tailrace.store.arrow import to_arrow
from tailrace.store.data_files import write_rows
from tailrace.store.journal import Journal
from tailrace.store.log import DeltaLog
from tailrace.store.losses import LostEvents, gap_rows, known, losses
from tailrace.store.refusal import refusal
from tailrace.store.snapshot import DataFile, data_files, same_values

DIRECTORY = "damaged"
"""Name of the directory for damaged files, in the store's directory."""


ENGINE = "tailrace"
"""The engine that log entries written here name."""


class Damaged(NamedTuple):
    """A data file of the table, and what is wrong with it."""

    file: DataFile
    reason: str


def set_aside(root: Path, damaged: Sequence[Damaged], clock: Clock) -> list[str]:
    """Remove damaged files from the table in `root`, as far as its newest version still has them.

    Return a sentence about each file. Durable on return. Raise StoreError, FullError or SyncError; each
    file is then either in the table as before, or removed and named by gaps."""
    try:
        return _set_aside(root, damaged, clock)
    except (DeltaError, OSError) as error:
        raise refusal(error, str(root), "set a damaged file aside") from error


def _set_aside(root: Path, damaged: Sequence[Damaged], clock: Clock) -> list[str]:
    noted = Journal(root).read().rows
    while True:
        table = layout.open_table(str(root), {})
        live = {file.path: file for file in data_files(table)}
        wanted = [each for each in damaged if each.file.path in live]
        if not wanted:
            return []
        bad = {each.file.path for each in wanted}
        sessions = known(root, [file for path, file in live.items() if path not in bad])
        same = same_values(table, ("source", "format", "session", "stream"))
        lost = {
            each.file.path: losses(
                root, each.file, noted.get(each.file.path), sessions, same[each.file.path]
            )
            for each in wanted
        }
        now = clock.wall_ns() // 10**6
        actions = [_commit_info(now), *(_remove(each.file, now) for each in wanted)]
        actions += _added_gap_rows(root, wanted, lost)
        version = table.version() + 1
        if _put(DeltaLog(root), version, actions):
            durable.sync(root, version - 1, version)
            Journal(root).note([version], merges=True)
            return [_moved(root, each, lost[each.file.path]) for each in wanted]


def _commit_info(now: int) -> dict[str, Any]:
    return {"commitInfo": {"timestamp": now, "operation": "SET ASIDE", "engineInfo": ENGINE}}


def _remove(file: DataFile, now: int) -> dict[str, Any]:
    """Return the log action that removes a file at `now` (Unix milliseconds)."""
    return {
        "remove": {
            "path": file.path,
            "deletionTimestamp": now,
            "dataChange": True,
            "extendedFileMetadata": True,
            "partitionValues": {"day": str(layout.date_of(file.day))},
            "size": file.size,
        }
    }


def _added_gap_rows(
    root: Path, damaged: Sequence[Damaged], lost: dict[str, list[LostEvents]]
) -> list[dict[str, Any]]:
    """Write the gap rows into files of the table; return the log actions that add these files."""
    rows = [gap_rows(each.file, each.reason, lost[each.file.path]) for each in damaged]
    return [{"add": write_rows(root, day_rows)} for batch in rows for day_rows in to_arrow(batch)]


def _put(log: DeltaLog, version: int, actions: Sequence[dict[str, Any]]) -> bool:
    """Write a whole log entry unless that version exists; return whether it was written."""
    new = log.path(version).with_name(f"{version:020}.json#{os.getpid()}")
    try:
        owned.write_new(new, b"\n".join(map(msgspec.json.encode, actions)))
        os.link(new, log.path(version))
    except FileExistsError:
        return False
    finally:
        new.unlink(missing_ok=True)
    return True


def _moved(root: Path, damaged: Damaged, lost: Sequence[LostEvents]) -> str:
    """Move the file out of the table's directory, if it is there; return the sentence about it."""
    path = root / damaged.file.path
    place = root.parent / DIRECTORY / path.name
    there = os.path.lexists(path)
    if there:
        place.parent.mkdir(exist_ok=True)
        path.rename(place)
    where = f"moved to {place}" if there else "nothing is left of it"
    events = sum(loss.events for loss in lost)
    whose = ", ".join(sorted({_name(loss) for loss in lost}))
    return (
        f"{path}: {damaged.reason}: set aside ({where}); its {damaged.file.rows} rows are lost and"
        f" named by gaps of {whose} ({events} events)"
    )


def _name(loss: LostEvents) -> str:
    return f"source {loss.source}, session {loss.session}"
