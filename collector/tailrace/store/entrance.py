"""The entrance to a local store that several collectors may share: who is alone in it, and may repair its table.

A repair takes versions out of the log and puts others back, so nobody may write meanwhile. Two kernel locks
in the store's directory see to that, and end with their process, however it ends:

- `writers.lock` is held by every collector from its start to its end, shared with the others. A start that
  gets it alone knows that no collector writes.
- `start.lock` is held by one start at a time, until its table is whole. So whoever finds others in the
  store knows that one of them began alone, and repaired what it found.

A start that is not alone repairs nothing, and need not: a killed process leaves a table whole. A power cut does
not, but it ends all collectors, and the first of the next ones is alone. Damage by the disk is left to upkeep,
which sets files aside beside collectors that write.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Self

from tailrace.errors import StoreError
from tailrace.store.lock import DirectoryLock, opened

WRITERS = "writers.lock"
START = "start.lock"


class Entrance:
    """A context manager, entered before anything of the store is read and left when the collector ends.

    Entering waits for another start to end, and raises StoreError where a lock cannot be had."""

    def __init__(self, store: Path) -> None:
        self.alone = False
        """Whether no other collector is in the store, nor enters it before `admit`."""
        self._path = store / WRITERS
        self._start = DirectoryLock(store, name=START, wait=True)
        self._starting = False
        self._fd = -1

    def __enter__(self) -> Self:
        self._start.__enter__()
        self._starting = True
        try:
            self._fd = opened(self._path)
            self.alone = self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self.alone:
                self._lock(fcntl.LOCK_SH)
        except StoreError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._end_start()

    def admit(self) -> None:
        """Let other collectors in: the table is whole."""
        if self.alone:
            # Nobody else can take the lock in between: that needs the start's lock.
            self._lock(fcntl.LOCK_SH)
            self.alone = False
        self._end_start()

    def _lock(self, operation: int) -> bool:
        """Return whether we have the lock now. Raise StoreError where there are no locks."""
        try:
            fcntl.flock(self._fd, operation)
        except BlockingIOError:
            return False
        except OSError as error:
            raise StoreError(f"{self._path}: cannot be locked: {error.strerror}") from error
        return True

    def _end_start(self) -> None:
        if self._starting:
            self._starting = False
            self._start.__exit__()
