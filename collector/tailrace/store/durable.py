"""Rules that let a table on a local disk survive a power cut. Rules 2 and 3 are implemented here.

The library never syncs, so every sync of the table happens by these rules:

1. The library's own checkpoints and clean-up are off (`NO_HOOKS`).
2. A data file and its name are on disk before the log names it (`data_files`). After a commit `sync` brings
   its log file and the directories to disk, and whatever else it added, as other writers may not have
   synced theirs. Only then may anything be acknowledged.
3. `checkpoint` syncs a checkpoint before it deletes the log files that the checkpoint replaces.
4. The files that a merge wrote are synced before the files they replace may be deleted (`upkeep`).
5. A start that is alone in the store (`entrance`) validates the newest versions and repairs damage (`recovery`)
   with the help of the `journal`.

An object store keeps what it has accepted; nothing here is called for one.

A failed sync is a SyncError and final: the kernel may have dropped the pages and would report success
the next time. Several collectors and an upkeep may write at the same time. Each of them syncs all lower
versions before it acknowledges its own, so a hole can only be above every acknowledged version.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from deltalake import DeltaTable, PostCommitHookProperties

from tailrace.config.load import COLLECTORS
from tailrace.errors import SyncError
from tailrace.store.journal import Journal
from tailrace.store.lock import DirectoryLock
from tailrace.store.log import DeltaLog, is_parquet

NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Rule 1: pass it to every operation on the table."""

UNSYNCED_MAX = 16
"""How many of the newest versions may not be synced yet, at least: one of each writer, and at most two of an upkeep
(it syncs after each of its steps; a vacuum is two versions). A start doubts as many."""

LOG_VERSIONS_KEPT = 800
"""Log files kept below a checkpoint, whatever their age. With the 20 commits between checkpoints
the log stays below 1,000 files at any rate of commits. A commit takes 17 ms of CPU beside 200 log
files, 21 ms beside 600. A merge must end before as many versions have passed: within 50 s at the
highest rate of commits, some 15 a second."""

LOG_LOCK = "log.lock"
"""Name of a lock file in the store. A process holds the lock while it repairs the log or removes log files."""


def sync(root: Path, after: int, upto: int) -> None:
    """Follow rule 2 for the versions above `after`, up to `upto`. Raise SyncError.

    All files of `upto` must be there. Files of lower versions may be gone: another process has merged,
    synced and vacuumed them away since."""
    log = DeltaLog(root)
    directories = {root}
    try:
        for version in range(after + 1, upto + 1):
            directories |= _sync_data(log, version, required=version == upto)
        for directory in sorted(directories):
            fsync(directory)
        for version in range(after + 1, upto + 1):
            _sync_file(log.path(version), required=version == upto)
        fsync(log.directory)
    except (OSError, ValueError) as error:
        raise SyncError(f"{root}: version {upto} cannot be brought to disk: {error}") from error


def sync_new(root: Path) -> None:
    """Sync version 0 of a new table, and the directories up to the store's parent. Raise SyncError."""
    sync(root, -1, 0)
    try:
        for directory in (root.parent, root.parent.parent):
            fsync(directory)
    except OSError as error:
        raise SyncError(f"{root}: cannot be brought to disk: {error}") from error


def sync_newest(root: Path) -> int:
    """Follow rule 2 for all versions that may be unsynced; return the newest one. Raise SyncError."""
    versions = DeltaLog(root).versions()
    newest = versions[-1] if versions else -1
    sync(root, max(newest - unsynced_max(root), -1), newest)
    return newest


def unsynced_max(root: Path) -> int:
    """Return how many of the newest versions may not be synced yet, for as many collectors as the store has."""
    with suppress(OSError):
        return max(UNSYNCED_MAX, 3 + len([*(root.parent / COLLECTORS).iterdir()]))
    return UNSYNCED_MAX


def checkpoint(table: DeltaTable, root: Path, *, keep: int) -> None:
    """Follow rule 3 and shorten the log. `table` must stand at a version that is synced.

    Raise SyncError; LockedError while another process shortens or repairs the log; and the library's own
    errors, after which the log is as long as before."""
    log = DeltaLog(root)
    version = table.version()
    with DirectoryLock(root.parent, name=LOG_LOCK):
        table.create_checkpoint()
        try:
            for part in log.checkpoints()[version]:
                if not is_parquet(part):
                    raise SyncError(f"{part}: was not written whole")
                fsync(part)
            _sync_file(log.last_checkpoint_path, required=False)  # only a hint
            fsync(log.directory)
        except (OSError, KeyError) as error:
            raise SyncError(
                f"{root}: checkpoint {version} cannot be brought to disk: {error}"
            ) from error
        table.cleanup_metadata()
        _trim(log, version, keep)
        journal = Journal(root)
        journal.note_files(log.checkpoints()[version])
        journal.prune()


def fsync(path: Path) -> None:
    """Return once a file or directory is on disk. Raise OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_data(log: DeltaLog, version: int, *, required: bool) -> set[Path]:
    """Sync the files that a version added; return their directories."""
    try:
        actions = log.read(version)
    except FileNotFoundError:
        if required:
            raise
        return set()
    paths = [log.data_path(action.add) for action in actions if action.add]
    for path in paths:
        _sync_file(path, required=required)
    return {path.parent for path in paths if path.parent.exists()}


def _sync_file(path: Path, *, required: bool) -> None:
    try:
        fsync(path)
    except FileNotFoundError:
        if required:
            raise


def _trim(log: DeltaLog, checkpoint: int, keep: int) -> None:
    """Delete what is more than `keep` versions below `checkpoint`, oldest first, so that no hole is left.

    The checkpoint before it stays, since a reader may be using it."""
    checkpoints = log.checkpoints()
    below = min([checkpoint - keep, *list(checkpoints)[-2:]])
    _delete(log.path(version) for version in log.versions() if version < below)
    for version, parts in checkpoints.items():
        if version < below:
            _delete(parts)


def _delete(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
