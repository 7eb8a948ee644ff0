"""Durability of a table on a local disk across a power cut. This module implements rules 2 and 3.

The library never syncs, so all syncs of the table follow these rules:
1. The library's own checkpoints and clean-up are off (`NO_HOOKS`).
2. A data file and its name are on disk before a log entry names the file (`data_files`). After a commit, `sync` syncs
   the log file, the directories, and all other files of the version, because another writer may not have synced the
   files. The collector acknowledges data only after `sync`.
3. `checkpoint` syncs a checkpoint before deleting the log files that the checkpoint replaces.
4. The files written by a merge are synced before the merged files may be deleted (`upkeep`).
5. A start without other processes in the store (`presence`) validates the newest versions, and repairs damage
   (`recovery`) with the journal (`log`).

An object store keeps accepted data, so this module is not used for a table at a URL.

A failed sync is a SyncError and final: the kernel may have dropped the pages, and would report success next time.
Several collectors and an upkeep may write at the same time. Each writer syncs all lower versions before acknowledging
its own version, so a missing version is always above every acknowledged version.

`LocalVersions` has the newest version on disk and the newest version in the journal.
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
"""Options for rule 1, for every operation on the table."""

UNSYNCED_MAX = 16
"""Minimum number of newest versions that may not be synced: one of each writer, and at most two of an upkeep. An
upkeep syncs after each step, and a vacuum adds two versions. A start validates the same number of newest
versions."""

LOG_VERSIONS_KEPT = 800
"""Number of log files kept below a checkpoint, regardless of age.

With the 20 commits between checkpoints the log stays below 1,000 files at any rate of commits. A commit takes 17 ms
of CPU beside 200 log files, and 21 ms beside 600. A merge must end before as many versions have passed: within 50 s
at the highest rate of commits, which is 15 a second.
"""

LOG_LOCK = "log.lock"
"""Name of a lock file in the store. A process holds the lock while it repairs the log or removes log files."""


def sync(root: Path, after: int, upto: int) -> None:
    """Apply rule 2 to the versions above `after`, up to `upto`. Raise SyncError.

    All files of `upto` must exist. Files of lower versions may be missing, because another process may have merged,
    synced and vacuumed the files.
    """
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
    """Apply rule 2 to all versions that may not be synced. Return the newest version. Raise SyncError."""
    versions = DeltaLog(root).versions()
    newest = versions[-1] if versions else -1
    sync(root, max(newest - unsynced_max(root), -1), newest)
    return newest


def unsynced_max(root: Path) -> int:
    """Return the maximum number of newest versions that may not be synced, based on the number of collectors."""
    with suppress(OSError):
        return max(UNSYNCED_MAX, 3 + len([*(root.parent / COLLECTORS).iterdir()]))
    return UNSYNCED_MAX


def checkpoint(table: DeltaTable, root: Path, *, keep: int) -> None:
    """Apply rule 3 and shorten the log. `table` must be at a synced version.

    Raise SyncError. Raise LockedError while another process shortens or repairs the log. Raise the library's
    exceptions, after which the log is unchanged.
    """
    log = DeltaLog(root)
    version = table.version()
    with DirectoryLock(root.parent, name=LOG_LOCK):
        table.create_checkpoint()
        try:
            for part in log.checkpoints()[version]:
                if not is_parquet(part):
                    raise SyncError(f"{part}: was not written whole")
                fsync(part)
            _sync_file(log.last_checkpoint_path, required=False)  # `_last_checkpoint` is optional
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
    """Sync a file or directory. Raise OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_data(log: DeltaLog, version: int, *, required: bool) -> set[Path]:
    """Sync the files that a version added. Return the directories of these files."""
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
    """Delete log files more than `keep` versions below `checkpoint`, oldest first, so that the log has no missing
    version.

    Keep the previous checkpoint, because a reader may be using that checkpoint.
    """
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
"""Number of commits of one collector between two of its checkpoints of the log.

At each commit the library reads every version above the newest checkpoint (0.4 ms of CPU each). A checkpoint takes 13
to 33 ms of CPU (D100).
"""

CHECKPOINT_DUE = 100
"""Number of versions since the last checkpoint after which any collector makes a checkpoint."""


def occupy_thread(directory: Path) -> None:
    """Make the library search a directory without a table.

    The call uses one thread in each of the library's two runtimes (computing and I/O), which keeps both threads alive
    (see `threads`).
    """
    with suppress(DeltaError, OSError):
        DeltaTable.is_deltatable(str(directory))
        DeltaTable(str(directory))


class LocalVersions:
    """The versions of the table in `root`, written by this collector and by others."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._journal = Journal(root)
        self._synced = -1
        """Number of the newest version that is synced to disk."""
        self._noted = -1
        """Number of the newest version in the journal."""
        self._checkpoint = -1
        """Newest checkpoint made by this collector or found at the start."""

    def since_checkpoint(self) -> int:
        """Return the number of versions in the log above the newest checkpoint."""
        log = DeltaLog(self.root)
        newest = max(log.checkpoints(), default=-1)
        return sum(version > newest for version in log.versions())

    def shortened_by_another(self) -> bool:
        """Return whether another collector has recently made a checkpoint, so that none is due."""
        newest = max(DeltaLog(self.root).checkpoints(), default=-1)
        return newest > self._checkpoint and self.since_checkpoint() < CHECKPOINT_DUE

    def checkpointed(self, version: int) -> None:
        """Record that this collector has made a checkpoint of `version`."""
        self._checkpoint = version

    def sync(self, version: int) -> None:
        """Sync all versions up to `version`, and add the versions to the journal. Raise SyncError.

        A failed write to the journal is ignored and retried by the next call.
        """
        sync(self.root, self._synced, version)
        with suppress(OSError, StoreError):
            self._journal.note_rest(range(self._noted + 1, version + 1))
            self._noted = version
        self._synced = version

    def sync_newest(self) -> None:
        """Sync all versions that may not be synced, and add the newest ones to the journal if missing. Raise
        SyncError.

        Call `recover` first, which validates the versions.
        """
        self._noted = self._synced = sync_newest(self.root)
        log = DeltaLog(self.root)
        self._checkpoint = max(log.checkpoints(), default=-1)
        oldest = self._synced - unsynced_max(self.root)
        newest = [version for version in log.versions() if version > oldest]
        with suppress(OSError, StoreError):
            noted = self._journal.read().entries
            if missing := [version for version in newest if version not in noted]:
                self._journal.note(missing, merges=True)
