"""Rules that let a table on a local disk survive a power cut. Rules 2 and 3 are implemented here.

The library never syncs, so every sync of the table happens by these rules:

1. The library's own checkpoints and clean-up are off (`NO_HOOKS`).
2. A data file and its name are on disk before the log names it (`data_files`). After a commit `sync` brings
   its log file and the directories to disk, and whatever else it added, as other writers may not have
   synced theirs. Only then may anything be acknowledged.
3. `checkpoint` syncs a checkpoint before it deletes the log files that the checkpoint replaces.
4. The files that a merge wrote are synced before the files they replace may be deleted (`upkeep`).
5. A start that is alone in the store (`presence`) validates the newest versions and repairs damage (`recovery`)
   with the help of the journal (`log`).

An object store keeps what it has accepted; nothing here is called for one.

A failed sync is a SyncError and final: the kernel may have dropped the pages and would report success
the next time. Several collectors and an upkeep may write at the same time. Each of them syncs all lower
versions before it acknowledges its own, so a hole can only be above every acknowledged version.

`LocalVersions` knows which versions of a table are on disk, and which in the journal.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.exceptions import DeltaError

from tailrace.config.load import COLLECTORS
from tailrace.errors import StoreError, SyncError
from tailrace.store.log import DeltaLog, Journal, is_parquet
from tailrace.store.presence import DirectoryLock

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


CHECKPOINT_EVERY = 20
"""Commits of one collector between two of its checkpoints of the log. At each commit the library reads every version
above the newest checkpoint (0.4 ms of CPU each). A checkpoint takes 13 to 33 ms of CPU (D100)."""

CHECKPOINT_DUE = 100
"""A checkpoint is due, whoever makes it, when the last one is this many versions back."""


def occupy_thread(directory: Path) -> None:
    """Make the library look for a table in a local directory that has none. The call uses one thread of each of the
    library's two runtimes (one computes, the other reads and writes), and so keeps both threads alive (see
    `threads`)."""
    with suppress(DeltaError, OSError):
        DeltaTable.is_deltatable(str(directory))
        DeltaTable(str(directory))


class LocalVersions:
    """The versions of the table in `root`, as one collector sees them: its own, and those of others in between."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._journal = Journal(root)
        self._synced = -1
        """The newest version that is on disk."""
        self._noted = -1
        """The newest version that is in the journal."""
        self._checkpoint = -1
        """The newest checkpoint that we made or found at the start."""

    def since_checkpoint(self) -> int:
        """Return how many versions the log has above its newest checkpoint."""
        log = DeltaLog(self.root)
        newest = max(log.checkpoints(), default=-1)
        return sum(version > newest for version in log.versions())

    def shortened_by_another(self) -> bool:
        """Return whether another collector has made a checkpoint so lately that none is due."""
        newest = max(DeltaLog(self.root).checkpoints(), default=-1)
        return newest > self._checkpoint and self.since_checkpoint() < CHECKPOINT_DUE

    def checkpointed(self, version: int) -> None:
        """Note that we have made a checkpoint of this version."""
        self._checkpoint = version

    def sync(self, version: int) -> None:
        """Bring the versions up to this one to disk and into the journal, whoever wrote them. Raise SyncError.

        If the journal cannot be written, the rows are stored all the same, and the next call tries again."""
        sync(self.root, self._synced, version)
        with suppress(OSError, StoreError):
            self._journal.note_rest(range(self._noted + 1, version + 1))
            self._noted = version
        self._synced = version

    def sync_newest(self) -> None:
        """Bring to disk all versions that may not be there. Note the newest ones that the journal lacks, as far as
        `recover` has read them. Raise SyncError."""
        self._noted = self._synced = sync_newest(self.root)
        log = DeltaLog(self.root)
        self._checkpoint = max(log.checkpoints(), default=-1)
        oldest = self._synced - unsynced_max(self.root)
        newest = [version for version in log.versions() if version > oldest]
        with suppress(OSError, StoreError):
            noted = self._journal.read().entries
            if missing := [version for version in newest if version not in noted]:
                self._journal.note(missing, merges=True)
