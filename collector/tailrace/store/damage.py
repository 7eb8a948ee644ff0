"""Replace damaged data files of the table by gap rows, which name the lost rows.

The lost rows are determined from the table's journal (for merged files), from what the file still contains, or from the
statistics in the Delta log. If these do not state the session, the gap gets the session `DAMAGED_SESSION`.

The library cannot remove files and add rows in one version of the table, so `set_aside` writes the log entry itself.
Damaged files move to `DIRECTORY`, where users can inspect them."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from deltalake.exceptions import DeltaError

from tailrace import owned
from tailrace.clock import Clock
from tailrace.config.schema import OWN_SOURCE
from tailrace.model.gap import DAMAGED_SESSION, Reason
from tailrace.model.record import Kind
from tailrace.rows.batch import Batch
from tailrace.rows.schema import ROW
from tailrace.store import durable, layout
from tailrace.store.data_files import to_arrow, write_rows
from tailrace.store.layout import DataFile, data_files, same_values
from tailrace.store.log import DeltaLog, Group, Journal
from tailrace.store.refusal import refusing
from tailrace.units import counted

DIRECTORY = "damaged"
"""Name of the directory, beside the table, into which damaged data files are moved."""

ENGINE = "tailrace"
"""Value of the field `engineInfo` in the log entries of this module."""

_WHO = ("source", "format", "session")

_EVENTS = frozenset({Kind.SPAN, Kind.INSTANT, Kind.COUNTER, Kind.ANNOTATION})

_UNKNOWN = ("unknown", "unknown")
"""Source and format of the gap for a damaged file if nothing in the table states a source."""


class Damaged(NamedTuple):
    """A data file of the table, and a description of its damage for users."""

    file: DataFile
    reason: str


class LostEvents(NamedTuple):
    """The number of events of one stream that are lost, or an estimate of it (`estimate`); 0 if the number is
    unknown."""

    source: str
    format: str
    session: str
    stream: str
    events: int
    estimate: bool = False


def counts_of(
    path: Path, columns: Sequence[str] = (*_WHO, "stream", "kind")
) -> Counter[Any] | None:
    """Count the rows of a data file by their values in `columns`. Return None if they are unreadable."""
    import pyarrow as pa  # type: ignore[import-untyped]  # noqa: PLC0415 - 40 MB that only damage needs
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # noqa: PLC0415

    counts: Counter[tuple[str, ...]] = Counter()
    try:
        with path.open("rb") as source:
            for batch in pq.ParquetFile(source).iter_batches(columns=list(columns)):
                groups = pa.table(batch).group_by(list(columns)).aggregate([([], "count_all")])
                *values, numbers = (groups[name].to_pylist() for name in (*columns, "count_all"))
                for *group, number in zip(*values, numbers, strict=True):
                    counts[tuple(group)] += number
    except (OSError, ValueError, pa.ArrowException):
        return None
    return None if any(None in group for group in counts) else counts


def _losses(
    root: Path,
    file: DataFile,
    noted: Counter[Group] | None,
    sessions: set[tuple[str, ...]],
    same: Mapping[str, str],
) -> list[LostEvents]:
    """Return the lost events of a damaged data file, by stream.

    `noted` has the file's numbers of rows by `Group` (source, format, session, stream and kind), from the table's
    journal, or is None. `sessions` are the sessions in the undamaged files. If all rows of the file have the same value
    in a column, `same` maps the column to this value."""
    if noted is not None:
        return list(_by_stream(noted))
    counts = counts_of(root / file.path)
    whole = {*sessions, tuple(same.get(column) for column in _WHO)}
    # A damaged file may contain wrong strings, so trust its rows only if other files or the Delta log name the same
    # sessions.
    if counts and sum(counts.values()) == file.rows and all(c[:3] in whole for c in counts):
        return list(_by_stream(counts))
    if "source" in same and "format" in same:
        session = same.get("session")
        stream = same.get("stream", "") if session else ""
        who = (same["source"], same["format"], session or DAMAGED_SESSION, stream)
        return [LostEvents(*who, file.rows, estimate=True)]
    sources = sorted({(source, format_) for source, format_, _ in sessions if source != OWN_SOURCE})
    one = len(sources) == 1
    return [
        LostEvents(source, format_, DAMAGED_SESSION, "", file.rows if one else 0, estimate=one)
        for source, format_ in sources or [_UNKNOWN]
    ]


def _by_stream(counts: Counter[Group]) -> Iterator[LostEvents]:
    streams: dict[tuple[str, str, str, str], Counter[str]] = {}
    for group, count in counts.items():
        streams.setdefault(group[:4], Counter())[group[4]] += count
    for stream, kinds in sorted(streams.items()):
        begun = max(kinds[Kind.BEGIN] - kinds[Kind.SPAN], 0)
        events = begun + sum(kinds[kind] for kind in _EVENTS)
        if events:
            yield LostEvents(*stream, events, estimate=begun > 0)
        if not events or kinds[Kind.GAP]:
            # A lost gap row or session row may stand for any number of events.
            yield LostEvents(*stream, 0)


def _gap_rows(file: DataFile, reason: str, lost: Sequence[LostEvents]) -> Batch:
    """Return the gap rows for the lost events of a damaged data file, with the day of the file as their day."""
    batch = Batch()
    batch.day = file.day
    for loss in lost:
        about: dict[str, object] = {"count": loss.events, "detail": "data_file"}
        about |= {"file": file.path, "file_rows": file.rows, "damage": reason}
        if loss.estimate:
            about["estimate"] = True
        row: dict[str, object] = {
            "stream": loss.stream,
            "kind": str(Kind.GAP),
            "name": str(Reason.DAMAGED),
            "missing": loss.events or None,
            "attributes": json.dumps(about, separators=(",", ":")),
            "offset": 0,
        }
        columns = [(row.get(name),) for name in ROW]
        batch.extend(loss.source, loss.format, loss.session, columns, 0)
    return batch


def set_aside(root: Path, damaged: Sequence[Damaged], clock: Clock) -> list[str]:
    """Replace damaged data files of the newest version of the table by gap rows. Return a message about each file.

    Ignore files that this version does not contain. The change is durable on return. Raise StoreError, FullError or
    SyncError if it fails; each file is then either still in the table or replaced."""
    with refusing(root, "set a damaged file aside", DeltaError):
        noted = Journal(root).read().rows
        while True:
            table = layout.open_table(str(root), {})
            live = {file.path: file for file in data_files(table)}
            bad = {each.file.path: each for each in damaged if each.file.path in live}
            if not bad:
                return []
            sessions = {
                who for path in live.keys() - bad for who in counts_of(root / path, _WHO) or ()
            }
            same = same_values(table, (*_WHO, "stream"))
            lost = {
                path: _losses(root, each.file, noted.get(path), sessions, same[path])
                for path, each in bad.items()
            }
            now, version = clock.wall_ns() // 10**6, table.version() + 1
            info = {"timestamp": now, "operation": "SET ASIDE", "engineInfo": ENGINE}
            actions = [{"commitInfo": info}, *(_remove(each.file, now) for each in bad.values())]
            for path, each in bad.items():
                gaps = to_arrow(_gap_rows(each.file, each.reason, lost[path]))
                actions += [{"add": write_rows(root, day_rows)} for day_rows in gaps]
            if _put(DeltaLog(root), version, actions):
                durable.sync(root, version - 1, version)
                Journal(root).note([version], merges=True)
                return [_moved(root, each, lost[path]) for path, each in bad.items()]


def _remove(file: DataFile, now: int) -> dict[str, Any]:
    removed = {
        "path": file.path,
        "deletionTimestamp": now,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": {"day": str(layout.date_of(file.day))},
        "size": file.size,
    }
    return {"remove": removed}


def _put(log: DeltaLog, version: int, actions: Sequence[dict[str, Any]]) -> bool:
    """Write the log entry for a version. Return False, and write nothing, if the version has an entry already."""
    new = log.path(version).with_name(f"{version:020}.json#{os.getpid()}")
    try:
        owned.write_new(new, b"\n".join(map(msgspec.json.encode, actions)))
        # Unlike a rename, a link fails if another writer has used the version.
        os.link(new, log.path(version))
    except FileExistsError:
        return False
    finally:
        new.unlink(missing_ok=True)
    return True


def _moved(root: Path, damaged: Damaged, lost: Sequence[LostEvents]) -> str:
    path = root / damaged.file.path
    place = root.parent / DIRECTORY / path.name
    there = os.path.lexists(path)
    if there:
        place.parent.mkdir(exist_ok=True)
        path.rename(place)
    where = f"moved to {place}" if there else "nothing is left of it"
    events = sum(loss.events for loss in lost)
    whose = ", ".join(sorted({f"source {loss.source}, session {loss.session}" for loss in lost}))
    return (
        f"{path}: {damaged.reason}: set aside ({where}); its {counted(damaged.file.rows, 'row is', 'rows are')} lost and"
        f" named by gaps of {whose} ({counted(events, 'event')})"
    )
