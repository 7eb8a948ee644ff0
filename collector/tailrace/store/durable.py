"""Make a table on a local disk durable across a power cut. An object store needs none of this.

The Delta library never syncs. So a data file is synced before a log entry names it (`data_files`), and each writer
syncs all versions up to its own before it acknowledges rows, because another writer may not have synced its version
yet. A checkpoint is synced before the log files that it replaces are deleted. A failed sync is a SyncError, and no
retry is made: the kernel may have dropped the pages, and would report success next time."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path

from deltalake import DeltaTable, PostCommitHookProperties
from deltalake.exceptions import DeltaError

from tailrace.config.load import COLLECTORS
from tailrace.errors import StoreError, SyncError
from tailrace.owned import fsync
from tailrace.store.log import DeltaLog, Journal, is_parquet
from tailrace.store.presence import DirectoryLock
from tailrace.store.refusal import syncing

NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Options that turn off the Delta library's own checkpoints and clean-up, because the library never syncs the files
that they write."""

UNSYNCED_MAX = 16
"""Number of newest versions that a starting collector syncs and validates. Each writer may leave one version unsynced,
and an upkeep (a process that merges and cleans up) two. For many collectors, `unsynced_max` returns a higher number."""

LOG_VERSIONS_KEPT = 800
"""Number of log files that are kept below a checkpoint of the Delta log, regardless of their age.

A merge fails if log files since its begin are deleted, so at 15 commits a second it must end within 50 s. A commit
takes 17 ms of CPU if the log has 200 files, and 21 ms if it has 600."""

LOG_LOCK = "log.lock"
"""Name of a lock file in the store. A process locks it while it repairs the table's log or removes log files."""


def sync(root: Path, after: int, upto: int) -> None:
    """Sync the files of the versions above `after`, up to and including `upto`. Raise SyncError if a sync fails, and
    DescriptorsError if no descriptor is free.

    Files of versions below `upto` may be missing, because another process may have merged and removed them."""
    log = DeltaLog(root)
    directories = {root}
    with syncing(f"{root}: version {upto}"):
        for version in range(after + 1, upto + 1):
            directories |= _sync_data(log, version, required=version == upto)
        for directory in sorted(directories):
            fsync(directory)
        for version in range(after + 1, upto + 1):
            _sync_file(log.path(version), required=version == upto)
        fsync(log.directory)


def sync_new(root: Path) -> None:
    """Sync version 0 of a new table, and the directories up to the store's parent. Raise SyncError if a sync fails."""
    sync(root, -1, 0)
    with syncing(f"{root}:"):
        fsync(root.parent)
        fsync(root.parent.parent)


def sync_newest(root: Path) -> int:
    """Sync the newest versions, which their writers may not have synced. Return the newest version, or raise SyncError."""
    versions = DeltaLog(root).versions()
    newest = versions[-1] if versions else -1
    sync(root, max(newest - unsynced_max(root), -1), newest)
    return newest


def unsynced_max(root: Path) -> int:
    """Return how many of the newest table versions may not be synced yet. The number is higher if the store has many
    collectors."""
    with suppress(OSError):
        return max(UNSYNCED_MAX, 3 + len([*(root.parent / COLLECTORS).iterdir()]))
    return UNSYNCED_MAX


def checkpoint(table: DeltaTable, root: Path, *, keep: int) -> None:
    """Write and sync a checkpoint of the Delta log, and then delete all but `keep` of the older log files.

    `table` must be open at a version whose files are synced. Raise SyncError if a sync fails, LockedError while another
    process changes the log, and the Delta library's exception if the checkpoint cannot be written."""
    log = DeltaLog(root)
    version = table.version()
    with DirectoryLock(root.parent, name=LOG_LOCK):
        table.create_checkpoint()
        with syncing(f"{root}: checkpoint {version}"):
            for part in log.checkpoints()[version]:
                if not is_parquet(part):
                    raise SyncError(f"{part}: was not written whole")
                fsync(part)
            # The file `_last_checkpoint` may be missing, because the Delta protocol does not require it.
            _sync_file(log.last_checkpoint_path, required=False)
            fsync(log.directory)
        table.cleanup_metadata()
        _trim(log, version, keep)
        journal = Journal(root)
        journal.note_files(log.checkpoints()[version])
        journal.prune()


def _sync_data(log: DeltaLog, version: int, *, required: bool) -> set[Path]:
    """Sync the data files that a version added, and return their directories. With `required`, all these files must
    exist."""
    paths: list[Path] = []
    with nullcontext() if required else suppress(FileNotFoundError):
        paths = [log.data_path(action.add) for action in log.read(version) if action.add]
    for path in paths:
        _sync_file(path, required=required)
    return {path.parent for path in paths if path.parent.exists()}


def _sync_file(path: Path, *, required: bool) -> None:
    with nullcontext() if required else suppress(FileNotFoundError):
        fsync(path)


def _trim(log: DeltaLog, checkpoint: int, keep: int) -> None:
    """Delete log files that are more than `keep` versions below the checkpoint `checkpoint`. Delete the oldest first.
    If the process is killed meanwhile, the remaining versions are still without a gap. Keep the previous checkpoint for
    readers that still use it."""
    checkpoints = log.checkpoints()
    below = min([checkpoint - keep, *list(checkpoints)[-2:]])
    entries = [log.path(version) for version in log.versions() if version < below]
    old = [part for version, parts in checkpoints.items() if version < below for part in parts]
    for path in (*entries, *old):
        path.unlink(missing_ok=True)


CHECKPOINT_EVERY = 20
"""Number of commits after which a collector writes a checkpoint of the log. Each commit reads all versions above the
newest checkpoint (0.4 ms of CPU each). A checkpoint takes 13 to 33 ms (D100)."""

CHECKPOINT_DUE = 100
"""If another collector has written the newest checkpoint, a collector writes the next one only after this number of
versions."""


def occupy_thread(directory: Path) -> None:
    """Let the Delta library try to open a table that does not exist. Each of the library's two runtimes then keeps a
    thread alive. A runtime without a thread would have to start a thread later, and would hang if no thread can be
    started (see `threads`)."""
    with suppress(DeltaError, OSError):
        DeltaTable.is_deltatable(str(directory))
        DeltaTable(str(directory))


class LocalVersions:
    """Records which versions of a table, including those of other processes, are synced, and which are in its journal."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._journal = Journal(root)
        self._synced = -1
        """The newest version that this process has synced."""
        self._noted = -1
        """The newest version that is known to be in the table's journal."""
        self._checkpoint = -1
        """The newest checkpoint of the log that this collector has written or found at its start."""

    def since_checkpoint(self) -> int:
        """Return the number of versions in the log above the newest checkpoint."""
        log = DeltaLog(self.root)
        newest = max(log.checkpoints(), default=-1)
        return sum(version > newest for version in log.versions())

    def checkpoint(self, table: DeltaTable, *, keep: int) -> bool:
        """Sync and shorten the log as `checkpoint` does. Return False if another collector has recently written a
        checkpoint."""
        newest = max(DeltaLog(self.root).checkpoints(), default=-1)
        if newest > self._checkpoint and self.since_checkpoint() < CHECKPOINT_DUE:
            return False
        self.sync(table.version())
        checkpoint(table, self.root, keep=keep)
        self._checkpoint = table.version()
        return True

    def sync(self, version: int) -> None:
        """Sync all versions up to `version`, and add them to the table's journal. Raise SyncError if a sync fails."""
        sync(self.root, self._synced, version)
        with suppress(OSError, StoreError):
            self._journal.note_rest(range(self._noted + 1, version + 1))
            self._noted = version
        self._synced = version

    def sync_newest(self) -> None:
        """Sync the newest versions, and add them to the table's journal. Raise SyncError if a sync fails."""
        self._noted = self._synced = sync_newest(self.root)
        log = DeltaLog(self.root)
        self._checkpoint = max(log.checkpoints(), default=-1)
        oldest = self._synced - unsynced_max(self.root)
        newest = [version for version in log.versions() if version > oldest]
        with suppress(OSError, StoreError):
            noted = self._journal.read().entries
            if missing := [version for version in newest if version not in noted]:
                self._journal.note(missing, merges=True)
