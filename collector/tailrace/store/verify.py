"""Verify that all files of a store are unchanged since they were written. Change nothing.

Files of a local table are compared with the journal's checksums. A data file without a checksum, as at a URL, counts as
*unverifiable*: reading it detects unreadable rows, but no changed values."""

from __future__ import annotations

import mmap
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tailrace.errors import StoreError
from tailrace.filesystem import is_local
from tailrace.model.quarantine import whole_size
from tailrace.store import layout
from tailrace.store.layout import DataFile, TableSnapshot
from tailrace.store.log import (
    Action,
    Add,
    Checksum,
    DeltaLog,
    Journal,
    JournalContent,
    checksum,
    is_parquet,
)
from tailrace.store.presence import quarantines
from tailrace.store.quarantine import SUFFIX
from tailrace.store.refusal import line, os_error, refusing
from tailrace.store.schema import SCHEMA, check_readable
from tailrace.units import counted

_ZEROS = bytes(1024)


def stat_damage(path: Path, size: int) -> str | None:
    """Return why a path is no regular file of `size` bytes, or None if it is one."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be opened: {error.strerror}"
    if not stat.S_ISREG(found.st_mode):
        return "is not a file"
    if found.st_size != size:
        return f"has {found.st_size} of {size} bytes"
    return None


def damage(root: Path, file: DataFile, noted: Checksum | None) -> str | None:
    """Return a description of the damage of a data file in the table `root`, or None if the file is undamaged.

    `noted` is the file's checksum in the table's journal, or None. Raise StoreError or OSError if the file cannot be
    read for another reason than damage."""
    path = root / file.path
    if reason := stat_damage(path, file.size):
        return reason
    if noted is not None:
        same = checksum(path) == noted
        return None if same else "has another checksum than when it was written"
    if not is_parquet(path):
        return "has no Parquet footer"
    with path.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        # A compressed file has no such number of zeros in a row, so this part of the file never reached the disk.
        if data.find(_ZEROS) >= 0:
            return "has a hole of zeros"
    return _undecodable(root, file)


def _undecodable(root: Path, file: DataFile) -> str | None:
    """Read all rows of a data file, in a temporary table that has only this file. Return its damage, or None."""
    add = Add(file.path, file.size, {"day": Path(file.path).parent.name.removeprefix("day=")})
    with tempfile.TemporaryDirectory(prefix="tailrace-") as scratch:
        table = DeltaTable.create(scratch, SCHEMA, partition_by=["day"])
        copy = DeltaLog(Path(scratch))
        link = copy.data_path(add)
        link.parent.mkdir(exist_ok=True)
        link.symlink_to((root / file.path).resolve())
        copy.path(1).write_bytes(msgspec.json.encode(Action(add=add)))
        table.update_incremental()
        try:
            rows = sum(batch.num_rows for batch in table.scan())
        except Exception as error:
            # Catch all exceptions, because the Delta library has no exception of its own for damaged data.
            if os_error(error) is not None:
                raise StoreError(f"{root / file.path}: cannot be read: {line(error)}") from error
            return f"does not decode: {line(error)}"
    return None if file.rows in (0, rows) else f"has {rows} of {counted(file.rows, 'row')}"


class FileDamage(msgspec.Struct):
    """A damaged file of the store, with a description of the damage and of the lost data."""

    path: str
    reason: str
    lost: str


class StoreVerification(msgspec.Struct):
    """The result of the verification of a store, as numbers of data files. `verified` files have the checksum in the
    table's journal. `unverifiable` files are readable but have no checksum there."""

    files: int = 0
    verified: int = 0
    unverifiable: int = 0
    damage: list[FileDamage] = []


def verify(store: str, options: dict[str, str]) -> StoreVerification:
    """Verify that all files of a store, a directory or URL, are unchanged since they were written. Raise StoreError if
    the store has no table or is not readable."""
    root = layout.table_root(store)
    with refusing(root, "verify the table", DeltaError):
        return _local(Path(root)) if is_local(root) else _remote(root, options)


def _local(root: Path) -> StoreVerification:
    found, log, journal = StoreVerification(), DeltaLog(root), Journal(root)
    noted = journal.read()

    def add(path: Path, reason: str, lost: str) -> None:
        found.damage.append(FileDamage(str(path), reason, lost))

    if log.directory.is_dir() or noted.entries:
        found.damage += [*_entries(log, noted), *_checkpoints(log, noted)]
    log_is_damaged = bool(found.damage)
    if noted.damaged:
        add(journal.path, f"has {noted.damaged} damaged lines", "only checksums")
    for path in (p for place in quarantines(root.parent) for p in sorted(place.glob(f"*{SUFFIX}"))):
        data = path.read_bytes() if path.is_file() else b""
        whole = whole_size(data)
        if whole != len(data) or not data:
            lost = f"{counted(len(data) - whole, 'byte')} that could not be decoded"
            add(path, "does not consist of whole frames", lost)
    if log_is_damaged:
        lost = "nothing yet: data files are not verified before a start has repaired the log"
        add(log.directory, "has damaged files", lost)
        return found
    snapshot = TableSnapshot(layout.open_table(str(root), {}, check_readable))
    for file in snapshot.files():
        known = noted.files.get(file.path)
        reason = damage(root, file, known)
        if reason is None:
            found.verified += known is not None
            found.unverifiable += known is None
        elif snapshot.refresh() and file.path not in {each.path for each in snapshot.files()}:
            # Do not count the file, because an upkeep has merged it into another one during the verification.
            continue
        else:
            rows = counted(file.rows, "row") if file.rows else "an unknown number of rows"
            add(root / file.path, reason, rows)
        found.files += 1
    return found


def _entries(log: DeltaLog, noted: JournalContent) -> Iterator[FileDamage]:
    """Yield the damage of log entries. The file of an entry may be missing if a checkpoint replaced it meanwhile."""
    versions = log.versions() if log.directory.is_dir() else []
    first = versions[0] if versions else 0
    for version in sorted({*versions, *(v for v in noted.entries if v >= first)}):
        path = log.path(version)
        try:
            log.read(version)
            same = path.read_bytes() == noted.entries.get(version, path.read_bytes())
            reason = None if same else "is not what was written"
        except FileNotFoundError:
            if version < min(log.versions(), default=0):
                continue
            reason = "is missing"
        except (ValueError, OSError) as error:
            reason = f"cannot be read: {error}"
        if reason and version in noted.entries:
            yield FileDamage(str(path), reason, "nothing: a start restores it from the journal")
        elif reason:
            yield FileDamage(str(path), reason, "the log entry: a start says what can be had")


def _checkpoints(log: DeltaLog, noted: JournalContent) -> Iterator[FileDamage]:
    parts = log.checkpoints() if log.directory.is_dir() else {}
    for path in (path for paths in parts.values() for path in paths):
        known = noted.files.get(str(path.relative_to(log.root)))
        if not path.is_file() or (known is not None and checksum(path) != known):
            yield FileDamage(str(path), "is not what was written", "a checkpoint of the log")


def _remote(root: str, options: dict[str, str]) -> StoreVerification:
    found = StoreVerification()
    table = layout.open_table(root, options, check_readable)
    stated = {Path(file.path).name: file.rows for file in TableSnapshot(table).files()}
    for fragment in table.to_pyarrow_dataset().get_fragments():
        found.files += 1
        rows = stated.get(Path(fragment.path).name, 0)
        try:
            read = sum(batch.num_rows for batch in fragment.to_batches())
            reason = None if rows in (0, read) else f"has {read} of {counted(rows, 'row')}"
        except (OSError, ValueError) as error:
            reason = f"cannot be read: {line(error)}"
        if reason is None:
            found.unverifiable += 1
        else:
            found.damage.append(FileDamage(fragment.path, reason, counted(rows, "row")))
    return found
