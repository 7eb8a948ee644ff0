"""One process at a time in a directory.

The lock is the kernel's (flock) on a file in it, so it ends with the process that holds it, however
that ends. The file stays: removing it would let two processes lock two files of one name.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Self

from tailrace.errors import LockedError, StoreError


class DirectoryLock:
    """A context manager; entering raises LockedError when another process is inside.

    Who enters with `wait` waits for it instead: only for locks that are held for seconds.
    """

    def __init__(self, directory: Path, *, name: str = "lock", wait: bool = False) -> None:
        self.path = directory / name
        self._wait = wait
        self._fd = -1

    def __enter__(self) -> Self:
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if self._wait else fcntl.LOCK_NB))
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

    def _write_pid(self) -> None:
        """For the message of who is refused; a full disk must not keep us from starting."""
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            return
