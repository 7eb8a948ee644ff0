"""Rows of a commit, made ready to land while the commit before still lands.

To make a commit ready takes most of its time, and needs nothing of the table: meanwhile the commit before it
is brought to disk.
"""

from __future__ import annotations

import os
from collections.abc import Sized
from contextlib import suppress
from pathlib import Path

from tailrace.clock import Clock
from tailrace.errors import SyncError
from tailrace.store import data_files, layout
from tailrace.store.arrow import DayRows
from tailrace.store.log import Add, DeltaLog
from tailrace.store.refusal import refusal

SAFE_NS = layout.REMOVED_HOURS * 3600 * 10**9 // 2
"""An upkeep removes files that the log does not name once they are `REMOVED_HOURS` old. It may have listed an older file
than this, and remove it after the log names it."""


class PreparedRows(Sized):
    """Rows of one commit, ready to land. For a local table they are in files that the log does not name yet, and no longer
    in memory; for a table at a URL they are Arrow."""

    def __init__(self, rows: list[DayRows], root: Path | None, clock: Clock) -> None:
        """Write files if the table is in a directory `root`. Raise FullError or StoreError, and leave no file; raise SyncError."""
        self.rows = rows if root is None else []
        self._count: int = sum(each.rows.num_rows for each in rows)
        self._root = root
        self._clock = clock
        self._added = [] if root is None else data_files.write(root, rows)
        self._old = False

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._count

    def keep(self) -> None:
        """Make the files young, so that no upkeep removes them. Do nothing about those that are gone."""
        with suppress(OSError):
            self._touch()

    def on_disk(self) -> list[Add]:
        """Return the log actions that add the files, which are on disk then. Call this only if it is known that the
        log names none of them.

        Raise FullError or StoreError: repeat the call. Raise SyncError, also if a file was removed."""
        if self._root is None:
            return []
        try:
            self._touch()
            if self._old:
                for number, add in enumerate(self._added):
                    self._added[number] = data_files.renamed(self._root, add)
                self._old = False
            data_files.sync(self._root, self._added)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and DeltaLog(self._root).directory.is_dir():
                raise SyncError(
                    f"{self._root}: a file of a commit was removed before it: {error}"
                ) from error
            raise refusal(error, str(self._root), "commit") from error
        except SyncError:
            self.discard()
            raise
        return self._added

    def discard(self) -> None:
        """Remove the files. Call this only if it is known that the log names none of them."""
        if self._root is not None:
            data_files.discard(self._root, self._added)
            self._added = []

    def _touch(self) -> None:
        """Make the files young, and note whether one was old. Raise OSError."""
        for add in self._added:
            path = (self._root or Path()) / add.path
            if self._clock.wall_ns() - path.stat().st_mtime_ns >= SAFE_NS:
                self._old = True
            os.utime(path)
