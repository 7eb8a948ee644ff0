"""The entrance to a local store that several collectors may share: who is alone in it, and may repair its table.

A repair takes versions out of the log and puts others back, so nobody may write meanwhile. Two kernel locks
in the store's directory see to that, and end with their process, however it ends:

- `writers.lock` is held by every collector from its start to its end, shared with the others. A start that
  gets it alone knows that no collector writes. The directory itself is locked in the same way, so that this holds
  after somebody has removed the file.
- `start.lock` is held by one start at a time, until its table is whole. So whoever finds others in the
  store knows that one of them began alone, and repaired what it found.

A start that is not alone repairs nothing, and need not: a killed process leaves a table whole. A power cut does
not, but it ends all collectors, and the first of the next ones is alone. Damage by the disk is left to upkeep,
which sets files aside beside collectors that write.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Self

from tailrace import owned
from tailrace.errors import StoreError
from tailrace.store.lock import DirectoryLock, locked, locked_again

WRITERS = "writers.lock"
START = "start.lock"


class Entrance:
    """A context manager, entered before anything of the store is read and left when the collector ends.

    Entering waits for another start to end, and raises StoreError where a lock cannot be had."""

    def __init__(self, store: Path) -> None:
        self.alone = False
        """Whether no other collector is in the store, nor enters it before `admit`."""
        self._store = store
        self._path = store / WRITERS
        self._start = DirectoryLock(store, name=START, wait=True)
        self._starting = False
        self._fds: list[int] = []
        """The descriptors of the directory and of the file."""

    def __enter__(self) -> Self:
        self._start.__enter__()
        self._starting = True
        try:
            self.alone = self._lock(fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self.alone:
                self._lock(fcntl.LOCK_SH)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._close()
        self._end_start()

    def check(self) -> None:
        """Make the file again if it was removed or replaced. Raise LostError or StoreError as `locked_again` does."""
        if owned.found(self._path) != owned.identity(self._fds[1]):
            before, self._fds[1] = self._fds[1], locked_again(self._path, fcntl.LOCK_SH)
            os.close(before)

    def admit(self) -> None:
        """Let other collectors in: the table is whole."""
        if self.alone:
            # Nobody else can take the locks in between: that needs the start's lock.
            for fd in self._fds:
                with suppress(OSError):  # a directory where directories are not locked
                    owned.lock(fd, fcntl.LOCK_SH)
            self.alone = False
        self._end_start()

    def _lock(self, operation: int) -> bool:
        """Return whether we have both locks now. Raise StoreError where there are no locks."""
        try:
            # Lock the directory first: another collector may be making a removed file again, and without the directory
            # a start could lock the new file alone although it is not alone in the store.
            self._fds.append(owned.lock_directory(self._store, operation))
            self._fds.append(locked(self._path, operation))
        except BlockingIOError:
            self._close()
            return False
        except OSError as error:
            raise StoreError(f"{self._store}: cannot be locked: {error.strerror}") from error
        return True

    def _close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()

    def _end_start(self) -> None:
        if self._starting:
            self._starting = False
            self._start.__exit__()
