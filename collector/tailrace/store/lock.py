"""A lock that lets one process at a time into a directory.

It is a kernel lock (flock) on a file in the directory, so it ends with its process, however that
ends. The file stays. If somebody removes it, the holder notices (`DirectoryLock.check`) and makes it again; meanwhile
a lock on a whole directory, where there is one that has no other use, keeps other processes out.
"""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path
from typing import Self

from tailrace import owned
from tailrace.away import is_obstacle, make_way
from tailrace.errors import LockedError, LostError, StoreError
from tailrace.filesystem import refusal_text

NAME = "lock"

logger = logging.getLogger(__name__)


def is_held(directory: Path, name: str = NAME) -> bool:
    """Return whether a process holds a directory's lock; true when that cannot be told."""
    try:
        fd = os.open(directory / name, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def locked(path: Path, operation: int) -> int:
    """Return a descriptor of a lock's file, which is made if it is missing, once it is locked. Raise StoreError, and
    BlockingIOError if another process keeps the lock."""
    try:
        return owned.lock_file(path, operation)
    except BlockingIOError:
        raise
    except OSError as error:
        advice = ": it is not a file; remove it" if is_obstacle(path) else ""
        raise StoreError(
            f"{path}: cannot be locked: {refusal_text(error.errno, path)}{advice}"
        ) from error


def locked_again(path: Path, operation: int) -> int:
    """Make and lock the file again, for a lock that this process holds and whose file was removed or replaced. Raise
    LostError if the directory is gone; raise StoreError if the file cannot be made, or another process has it: often
    a start that will be refused, as the spool is locked too."""
    try:
        make_way(path)
        fd = owned.lock_file(path, operation | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StoreError(f"{path} was removed, and another process has it by now") from error
    except OSError as error:
        text = f"{path} was removed and cannot be made again: {refusal_text(error.errno, path)}"
        raise (LostError if error.errno in owned.GONE else StoreError)(text) from error
    logger.warning("%s was removed or replaced; it is made again", path)
    return fd


class DirectoryLock:
    """A context manager; entering raises LockedError when another process holds the lock.

    With `wait`, entering waits for the lock: only for locks that are held for seconds. `whole` is a directory to lock
    as well, which nobody locks for another purpose.
    """

    def __init__(
        self, directory: Path, *, name: str = NAME, wait: bool = False, whole: Path | None = None
    ) -> None:
        self.path = directory / name
        self._operation = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        self._whole = whole
        self._whole_fd = -1
        self._fd = -1

    def __enter__(self) -> Self:
        owned.refuse_foreign(self.path.parent)
        try:
            if self._whole is not None:
                self._whole_fd = owned.lock_directory(self._whole, self._operation)
            self._fd = locked(self.path, self._operation)
        except BlockingIOError as error:
            self.__exit__()
            raise LockedError(
                f"{self.path.parent} is in use by process {self._holder()}, which holds {self.path}"
            ) from error
        except OSError as error:
            self.__exit__()
            raise StoreError(f"{self._whole}: cannot be locked: {error.strerror}") from error
        self._write_pid()
        return self

    def __exit__(self, *exc_info: object) -> None:
        for fd in (self._fd, self._whole_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._whole_fd = -1

    def check(self) -> None:
        """Make the file again if it was removed or replaced. Raise LostError or StoreError as `locked_again` does."""
        if owned.found(self.path) != owned.identity(self._fd):
            before, self._fd = self._fd, locked_again(self.path, fcntl.LOCK_EX)
            os.close(before)
            self._write_pid()

    def _holder(self) -> str:
        try:
            return self.path.read_text(errors="replace").strip() or "(unknown)"
        except OSError:
            return "(unknown)"

    def _write_pid(self) -> None:
        """Write our pid for the error message of other processes; a full disk must not stop us."""
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            return
