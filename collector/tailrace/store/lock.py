"""A lock that lets one process at a time into a directory.

It is a kernel lock (flock) on a file in the directory, so it ends with its process, however that
ends. The file stays: after a removal two processes could lock two files of the same name.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Self

from tailrace.away import is_obstacle
from tailrace.errors import LockedError, StoreError
from tailrace.filesystem import refusal_text

NAME = "lock"

PATIENCE_SECONDS = 0.2
"""How long to retry a taken lock: another process's `is_held` takes it for a moment."""


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


def opened(path: Path) -> int:
    """Return a descriptor of a lock's file, which is made if it is missing. Raise StoreError."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        advice = ": it is not a file; remove it" if is_obstacle(path) else ""
        raise StoreError(
            f"{path}: cannot be opened: {refusal_text(error.errno, path)}{advice}"
        ) from error


class DirectoryLock:
    """A context manager; entering raises LockedError when another process holds the lock.

    With `wait`, entering waits for the lock: only for locks that are held for seconds.
    """

    def __init__(self, directory: Path, *, name: str = NAME, wait: bool = False) -> None:
        self.path = directory / name
        self._wait = wait
        self._fd = -1

    def __enter__(self) -> Self:
        fd = opened(self.path)
        try:
            self._take(fd)
        except BlockingIOError as error:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
            os.close(fd)
            raise LockedError(
                f"{self.path.parent} is in use by process {holder or '(unknown)'}, which holds"
                f" {self.path}"
            ) from error
        except OSError as error:
            os.close(fd)
            raise StoreError(f"{self.path}: cannot be locked: {error.strerror}") from error
        self._fd = fd
        self._write_pid()
        return self

    def __exit__(self, *exc_info: object) -> None:
        os.close(self._fd)
        self._fd = -1

    def _take(self, fd: int) -> None:
        """Lock the file. Raise BlockingIOError when another process keeps the lock."""
        if self._wait:
            fcntl.flock(fd, fcntl.LOCK_EX)
            return
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(PATIENCE_SECONDS / 20)
            else:
                return

    def _write_pid(self) -> None:
        """Write our pid for the error message of other processes; a full disk must not stop us."""
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            return
