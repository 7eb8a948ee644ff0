"""Keep a value that is built from files, and build it again when a file changes.

The files are checked at each request for the value, at most once a second. If building fails, the last value stays
in use, for example while only one of two files that belong together has been replaced.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from tailrace.clock import Clock

LOOK_EVERY = 1.0
"""Minimum time (seconds) between two checks whether the files of a `Kept` value have changed."""

SIZE_MAX = 2**20
"""Maximum size (bytes) of a file that is read. Certificates, keys and lists of tokens are smaller."""

T = TypeVar("T")


class UnusableError(Exception):
    """Raised for a file that cannot be used. `path` is the file, and `message` the reason."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


class Kept(Generic[T]):
    """A value that `make` builds from the current content of files or, if this cannot be used, from the last usable
    content."""

    def __init__(self, paths: Sequence[Path], make: Callable[[], T], clock: Clock) -> None:
        """Build the value from the files `paths`. Raise UnusableError if a file cannot be used."""
        self.problem: str | None = None
        """Why the current content of the files cannot be used; None if it is in use."""
        self._paths = paths
        self._make = make
        self._clock = clock
        self._looked = clock.monotonic()
        self._seen = self._state()
        self._value = make()

    def get(self) -> T:
        now = self._clock.monotonic()
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            self._look()
        return self._value

    def _look(self) -> None:
        """Build the value again if a file has changed. Also build it again after a failed attempt: a file that was
        incomplete then may be complete now, even with the same size and time."""
        state = self._state()
        if state == self._seen and self.problem is None:
            return
        self._seen = state
        try:
            self._value = self._make()
        except UnusableError as error:
            self.problem = f"{error}; the earlier content is still used"
        else:
            self.problem = None

    def _state(self) -> list[tuple[int, ...] | None]:
        return [_state(path) for path in self._paths]


def read(path: Path, *, secret: bool = False) -> bytes:
    """Return the content of a file. Raise UnusableError if it cannot be read, is too large, or is `secret` but
    readable by all users of the host."""
    try:
        with open(path, "rb", opener=_open) as file:
            found = os.fstat(file.fileno())
            content = file.read(SIZE_MAX + 1) if stat.S_ISREG(found.st_mode) else None
    except OSError as error:
        raise UnusableError(path, f"cannot be read: {error.strerror}") from error
    if content is None:
        raise UnusableError(path, "is not a file")
    if len(content) > SIZE_MAX:
        raise UnusableError(path, f"is larger than {SIZE_MAX} bytes")
    if secret and found.st_mode & stat.S_IROTH:
        raise UnusableError(path, f"can be read by every user of this host; run chmod o-r {path}")
    return content


def _open(path: str, flags: int) -> int:
    """Open a file. If it is a pipe, do not wait for a program that writes to it."""
    return os.open(path, flags | os.O_NONBLOCK)


def _state(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
