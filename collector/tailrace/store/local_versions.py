"""The versions of a table on a local disk: which of them are on disk, and which in the journal."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tailrace.errors import StoreError
from tailrace.store import durable
from tailrace.store.journal import Journal
from tailrace.store.log import DeltaLog

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
        durable.sync(self.root, self._synced, version)
        with suppress(OSError, StoreError):
            self._journal.note_rest(range(self._noted + 1, version + 1))
            self._noted = version
        self._synced = version

    def sync_newest(self) -> None:
        """Bring to disk all versions that may not be there. Note the newest ones that the journal lacks, as far as
        `recover` has read them. Raise SyncError."""
        self._noted = self._synced = durable.sync_newest(self.root)
        log = DeltaLog(self.root)
        self._checkpoint = max(log.checkpoints(), default=-1)
        oldest = self._synced - durable.unsynced_max(self.root)
        newest = [version for version in log.versions() if version > oldest]
        with suppress(OSError, StoreError):
            noted = self._journal.read().entries
            if missing := [version for version in newest if version not in noted]:
                self._journal.note(missing, merges=True)
