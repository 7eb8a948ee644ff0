"""Rule 5 of `durable`: a start repairs the table after a power cut or damage.

After a power cut an unsynced version may be there in part, and a disk may damage what was synced. Both
look alike. So recovery changes nothing before it knows what can be restored, from the best source:

1. A *log entry* that is missing, unreadable or changed is restored from the journal.
2. A *checkpoint* that is not whole is removed, if older ones and log entries replace it.
3. A version with an entry that nothing restores, or with a damaged file, is taken out with all versions
   above it, **if the spools of all that wrote them still have their rows**: the entries become `N.json.bad`,
   the collectors' positions go back with them, and each decodes its rows from its spool again.
4. Otherwise a damaged *file* is set aside and its rows become gaps (`aside`): all other rows stay.
   For an entry that nothing restores, a StoreError says what to do, and nothing is changed.

A start reads the files of the newest versions, which may be unsynced, and `READ_MAX` bytes of others. It
checks the size and marks of the rest. `upkeep` verifies a file before it merges it, and all files once a
day. If the process is killed at any step, the next start continues from what that step left.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from deltalake import DeltaTable
from deltalake.exceptions import DeltaProtocolError

from tailrace import owned
from tailrace.away import is_obstacle, move_away
from tailrace.clock import Clock
from tailrace.errors import StoreError, SyncError
from tailrace.store import layout, schema
from tailrace.store.aside import Damaged, set_aside
from tailrace.store.durable import LOG_LOCK, fsync
from tailrace.store.end_of_log import EndOfLog, Others, Refills
from tailrace.store.examine import damage, place_damage
from tailrace.store.journal import Journal, Notes, checksum
from tailrace.store.lock import DirectoryLock
from tailrace.store.log import DeltaLog, is_parquet
from tailrace.store.refusal import line, os_error, refusal
from tailrace.store.snapshot import data_files

READ_MAX = 32 * 2**20
"""How many bytes of older files a start compares with their checksums before it receives: 0.03 s of
CPU, and the time of the disk."""


class TableRecovery(msgspec.Struct):
    """The repairs of a start. `reasons` are sentences for people; empty when everything was whole."""

    versions: list[int] = []
    """Versions that the recovery took out of the log."""
    restored: list[int] = []
    """Versions whose log entries the recovery restored from the journal."""
    checkpoints: list[int] = []
    """Versions whose checkpoints the recovery removed."""
    aside: list[str] = []
    """Paths of the data files that were set aside."""
    reasons: list[str] = []


def recover(
    root: Path, *, collector: str, refills: Refills, others: Others, clock: Clock
) -> TableRecovery:
    """Validate and repair the table in `root`, which need not exist, for the collector of this name.

    No other collector may write to it (see `entrance`). Raise StoreError, with nothing changed, when the damage cannot be repaired."""
    log = DeltaLog(root)
    if not os.path.lexists(root):
        return TableRecovery()
    with DirectoryLock(root.parent, name=LOG_LOCK, wait=True):
        try:
            return _Repair(
                log, EndOfLog(log, Journal(root), collector, refills, others), clock
            ).run()
        except OSError as error:
            raise refusal(error, str(root), "validate the table") from error


class _Repair:
    def __init__(self, log: DeltaLog, end: EndOfLog, clock: Clock) -> None:
        self.log = log
        self.done = TableRecovery()
        self._journal = Journal(log.root)
        self._end = end
        self._clock = clock

    def run(self) -> TableRecovery:
        notes = self._journal.read()
        if not self.log.directory.is_dir():
            if not notes.entries and not any(self.log.root.glob("day=*/*.parquet")):
                return self.done
            _make_directory(self.log.directory)
        self._restore_entries(notes)
        base = self._whole_checkpoint(notes)
        versions = self.log.versions()
        if not versions and base < 0:
            raise self._lost("has no log any more")
        if base < 0 and versions[0] != 0:
            raise self._lost(f"has no log entry below version {versions[0]} and no checkpoint")
        above = [version for version in versions if version > base]
        taken = self._end.repair(above, base, notes)
        self.done.versions += reversed(taken.versions)
        self.done.reasons += taken.reasons
        self._set_aside(taken.damaged)
        self._set_damaged_aside(notes)
        if self.done.reasons:
            _sync_repair(self.log.directory)
        return self.done

    def _lost(self, what: str) -> StoreError:
        return StoreError(
            f"{self.log.root}: the table {what}, and the journal cannot replace it: restore the directory"
            " from a copy, or move it away to begin a new table"
        )

    # 1. Log entries

    def _restore_entries(self, notes: Notes) -> None:
        there = self.log.versions()
        floor = there[0] if there and self.log.checkpoints() else 0
        for version in sorted(notes.entries):
            if version < floor:
                continue
            path, copy = self.log.path(version), notes.entries[version]
            if path.is_file() and path.read_bytes() == copy:
                continue
            _replace(path, copy)
            self.done.restored.append(version)
            self.done.reasons.append(
                f"version {version}: its log entry was damaged or gone: restored from the journal"
            )

    # 2. Checkpoints

    def _whole_checkpoint(self, notes: Notes) -> int:
        """Remove damaged checkpoints above the newest whole one; return its version, or -1 if none is whole."""
        whole = -1
        if is_obstacle(self.log.last_checkpoint_path):
            move_away(self.log.last_checkpoint_path)
            self.done.reasons.append("_last_checkpoint was not a file: moved away")
        parts = self.log.checkpoints()
        for version in sorted(parts, reverse=True):
            reason = self._checkpoint_damage(version, parts[version], notes)
            if reason is None:
                whole = version
                break
            self._remove_checkpoint(version, parts, reason)
        last = self.log.last_checkpoint()
        if os.path.lexists(self.log.last_checkpoint_path) and (
            last is None or last.version not in self.log.checkpoints()
        ):
            move_away(self.log.last_checkpoint_path)
            self.done.reasons.append("_last_checkpoint named no checkpoint: moved away")
        return whole

    def _checkpoint_damage(self, version: int, parts: list[Path], notes: Notes) -> str | None:
        if not all(path.is_file() and is_parquet(path) for path in parts):
            return "is not whole"
        for path in parts:
            noted = notes.files.get(str(path.relative_to(self.log.root)))
            if noted is not None and checksum(path) != noted:
                return "has another checksum than when it was written"
        try:
            DeltaTable(str(self.log.root), version=version).transaction_version("")
        except Exception as error:
            if os_error(error) is not None or isinstance(error, DeltaProtocolError):
                raise refusal(error, str(self.log.root), f"read checkpoint {version}") from error
            return f"cannot be read: {line(error)}"
        return None

    def _remove_checkpoint(self, version: int, parts: dict[int, list[Path]], reason: str) -> None:
        """Move a checkpoint away, if the log files that it stands for are all there. Raise StoreError."""
        versions = set(self.log.versions())
        first = version
        while first in versions and first - 1 not in parts:
            first -= 1
        if first not in versions and first != -1:
            raise self._lost(f"has a damaged checkpoint {version} ({reason}), and no entry {first}")
        for path in parts[version]:
            move_away(path)
        self.done.checkpoints.append(version)
        self.done.reasons.append(f"checkpoint {version} {reason}: moved away")

    # 4. All other files

    def _set_damaged_aside(self, notes: Notes) -> None:
        """Set aside the files of the table that are missing or visibly damaged."""
        table = layout.open_or_none(str(self.log.root), {})
        if table is None:
            return
        schema.check_writable(table)
        left = READ_MAX
        bad: list[Damaged] = []
        for file in reversed(data_files(table)):
            path = self.log.root / file.path
            reason = place_damage(path, file.size)
            noted = notes.files.get(file.path)
            if reason is None and not is_parquet(path):
                reason = "has no Parquet footer"
            if reason is None and noted is not None and 0 < file.size <= left:
                left -= file.size
                reason = damage(self.log.root, file, noted)
            if reason is not None:
                bad.append(Damaged(file, reason))
        self._set_aside(bad)

    def _set_aside(self, damaged: list[Damaged]) -> None:
        if damaged:
            self.done.reasons += set_aside(self.log.root, damaged, self._clock)
            self.done.aside += [each.file.path for each in damaged]


def _replace(path: Path, data: bytes) -> None:
    """Replace a log entry; what stood in its place stays as `N.json.bad`."""
    new = path.with_name(f"{path.name}#{os.getpid()}")
    owned.write_new(new, data)
    if os.path.lexists(path):
        move_away(path)
    new.replace(path)


def _make_directory(directory: Path) -> None:
    if os.path.lexists(directory):
        move_away(directory)
    directory.mkdir()
    fsync(directory.parent)


def _sync_repair(directory: Path) -> None:
    try:
        fsync(directory)
    except OSError as error:
        raise SyncError(f"{directory}: the repair cannot be brought to disk: {error}") from error
