"""The versions of a table on a local disk: which of them are on disk, and which in the journal."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tailrace.errors import StoreError
from tailrace.store import durable
from tailrace.store.journal import Journal
from tailrace.store.log import DeltaLog


class LocalVersions:
    """The versions of the table in `root`, as one collector writes them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._synced = -1
        """The newest version that is on disk."""
        self._noted = -1
        """The newest version that is in the journal."""

    def since_checkpoint(self) -> int:
        """Return how many versions the log has above its newest checkpoint."""
        log = DeltaLog(self.root)
        newest = max(log.checkpoints(), default=-1)
        return sum(version > newest for version in log.versions())

    def sync(self, version: int) -> None:
        """Bring the versions up to this one to disk and into the journal. Raise SyncError.

        If the journal cannot be written, the rows are stored all the same, and the next call tries again."""
        durable.sync(self.root, self._synced, version)
        with suppress(OSError, StoreError):
            Journal(self.root).note(range(self._noted + 1, version + 1), merges=False)
            self._noted = version
        self._synced = version

    def sync_newest(self) -> None:
        """Bring to disk all versions that may not be there. Note the newest ones that the journal lacks, as far as
        `recover` has read them. Raise SyncError."""
        self._noted = self._synced = durable.sync_newest(self.root)
        oldest = self._synced - durable.UNSYNCED_MAX
        newest = [version for version in DeltaLog(self.root).versions() if version > oldest]
        with suppress(OSError, StoreError):
            journal = Journal(self.root)
            noted = journal.read().entries
            if missing := [version for version in newest if version not in noted]:
                journal.note(missing, merges=True)
