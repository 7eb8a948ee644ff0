"""Make a table on a local disk durable across a power cut.

The Delta library never syncs, so the following rules apply to all syncs of the table. This module implements rules 2
and 3:

1. The library's own checkpoints and clean-up are off (`NO_HOOKS`).

2. A data file and its name are on disk before a log entry names the file (`data_files`). After a commit, `sync` syncs
   the log file, the directories, and all files of this version and of earlier versions, which their writers may not
   have synced yet. The collector acknowledges data only after `sync`.

3. `checkpoint` syncs a checkpoint before it deletes the log files that the checkpoint replaces.

4. The files written by a merge are synced before the merged files may be deleted (`upkeep`).

5. If no other process uses the store (`presence`), a start validates the newest versions. It repairs damage
(`recovery`) with the journal (`log`).

An object store keeps accepted data, so this module is not used for a table at a URL. A failed sync is a SyncError, and
no retry is made: the kernel may have dropped the pages, and would report success next time.

Several collectors and an upkeep may write at the same time. Each writer syncs all lower versions before it acknowledges
its own version. So a power cut can only remove versions that are newer than all acknowledged ones.
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
"""Options that turn off the Delta library's own checkpoints and clean-up, for every operation on the table. The
library never syncs the files that it writes."""

UNSYNCED_MAX = 16
"""Number of newest versions that a starting collector syncs and validates, because their writers may not have synced
them yet.

A writer may leave one version unsynced, and an upkeep (a process that merges and cleans up) two, as it
syncs after each step and a vacuum adds two versions. For a store with many
collectors, `unsynced_max` returns a higher number.
"""

LOG_VERSIONS_KEPT = 800
"""Number of log files that are kept below a checkpoint of the Delta log, regardless of their age.

A merge fails if log files of versions since its begin are deleted meanwhile. At the highest rate, 15 commits a second,
a merge must therefore end within 50 s. A commit takes 17 ms of CPU if the log has 200 files, and 21 ms if it has 600.
"""

LOG_LOCK = "log.lock"
"""Name of a lock file in the store. A process locks it while it repairs the table's log or removes log files."""


def sync(root: Path, after: int, upto: int) -> None:
    """Sync the files of the versions above `after`, up to and including `upto`. Raise SyncError if a sync fails.

    All files of `upto` must exist; another process may have merged, synced and vacuumed those of lower versions.
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
    """Sync version 0 of a new table, and the directories up to the store's parent. Raise SyncError if a sync
    fails."""
    sync(root, -1, 0)
    try:
        for directory in (root.parent, root.parent.parent):
            fsync(directory)
    except OSError as error:
        raise SyncError(f"{root}: cannot be brought to disk: {error}") from error


def sync_newest(root: Path) -> int:
    """Sync the newest versions, because other writers may not have synced them yet. Return the newest version.

    Raise SyncError if a sync fails."""
    versions = DeltaLog(root).versions()
    newest = versions[-1] if versions else -1
    sync(root, max(newest - unsynced_max(root), -1), newest)
    return newest


def unsynced_max(root: Path) -> int:
    """Return how many of the newest table versions may still lack a sync.

    The number grows with the number of collectors on the store.
    """
    with suppress(OSError):
        return max(UNSYNCED_MAX, 3 + len([*(root.parent / COLLECTORS).iterdir()]))
    return UNSYNCED_MAX


def checkpoint(table: DeltaTable, root: Path, *, keep: int) -> None:
    """Write a checkpoint of the Delta log, sync it, and then delete old log files. Keep `keep` log files below the
    checkpoint.

    `table` must be open at a version whose files are synced. Raise SyncError if a sync fails, and LockedError while
    another process shortens or repairs the log. Raise the Delta library's exception if the checkpoint cannot be
    written; the log is unchanged then.
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
            # The file `_last_checkpoint` may be missing, because the Delta protocol does not require it.
            _sync_file(log.last_checkpoint_path, required=False)
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
    """Sync a file or directory. Raise OSError if that fails."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_data(log: DeltaLog, version: int, *, required: bool) -> set[Path]:
    """Sync the data files that a version added. Return the directories of these files.

    With `required`, raise FileNotFoundError if a file is missing. Otherwise ignore missing files.
    """
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
    """Delete log files that are more than `keep` versions below the checkpoint `checkpoint`. Delete the oldest ones
    first, so that a kill leaves no missing version in between. Keep the previous checkpoint and all later files for
    readers that still use them."""
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
"""Number of commits after which a collector writes a checkpoint of the log.

At each commit the library reads every version above the newest checkpoint (0.4 ms of CPU each). A checkpoint takes 13
to 33 ms of CPU (D100).
"""

CHECKPOINT_DUE = 100
"""Number of versions in the log since the last checkpoint. From this number on, a collector writes a checkpoint even if
another collector wrote the last one.
"""


def occupy_thread(directory: Path) -> None:
    """Make the Delta library look for a table in a directory without a table. This starts a thread in each of the
    library's two runtimes (computing and I/O).

    Regular calls keep both threads alive. This is necessary because the library hangs if it cannot start a thread (see
    `threads`).
    """
    with suppress(DeltaError, OSError):
        DeltaTable.is_deltatable(str(directory))
        DeltaTable(str(directory))


class LocalVersions:
    """Records which versions of the table in `root` are synced, and which are in the journal (the second record of
    the table's versions and checksums). Versions of other processes count, too."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._journal = Journal(root)
        self._synced = -1
        """The newest version that this process has synced to disk."""
        self._noted = -1
        """The newest version that this process knows to be in the journal (the second record of the table's versions
        and checksums)."""
        self._checkpoint = -1
        """The newest checkpoint of the log that this collector has written.

        Until it writes one, this is the newest checkpoint that existed when it started.
        """

    def since_checkpoint(self) -> int:
        """Return the number of versions in the log above the newest checkpoint."""
        log = DeltaLog(self.root)
        newest = max(log.checkpoints(), default=-1)
        return sum(version > newest for version in log.versions())

    def shortened_by_another(self) -> bool:
        """Return whether another collector has written a checkpoint so recently that this collector need not write one."""
        newest = max(DeltaLog(self.root).checkpoints(), default=-1)
        return newest > self._checkpoint and self.since_checkpoint() < CHECKPOINT_DUE

    def checkpointed(self, version: int) -> None:
        """Record that this collector has written a checkpoint of `version`."""
        self._checkpoint = version

    def sync(self, version: int) -> None:
        """Sync all versions up to `version`, and add them to the table's journal. Raise SyncError if a sync fails.

        If the journal cannot be written, the next call tries again.
        """
        sync(self.root, self._synced, version)
        with suppress(OSError, StoreError):
            self._journal.note_rest(range(self._noted + 1, version + 1))
            self._noted = version
        self._synced = version

    def sync_newest(self) -> None:
        """Sync the newest versions, which their writers may not have synced yet. Add them to the journal (the second
        record of the table's versions and checksums), if it lacks them.

        Call `recover` first, which validates these versions. Raise SyncError if a sync fails.
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
