"""Values built from files: rebuilt when a file has changed, and kept as they were while that fails.

The files are checked when somebody asks for the value, at most once a second, so that nobody has to
announce a change. A half-written pair of files is bad for a moment; until it is whole, the last good
value is used.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from tailrace.clock import Clock

LOOK_EVERY = 1.0
"""Seconds."""

SIZE_MAX = 2**20
"""Bytes of a file that are read. No certificate, key or list of tokens is larger."""

T = TypeVar("T")


class UnusableError(Exception):
    """A file that cannot be used. `message` says what is wrong with it."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


class Kept(Generic[T]):
    """The last value that could be built from the files."""

    def __init__(self, paths: Sequence[Path], make: Callable[[], T], clock: Clock) -> None:
        """Build the first value. Raise UnusableError when that fails."""
        self.problem: str | None = None
        """Why the current files are not used."""
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
        """Rebuild the value if the files changed, or if the last attempt failed: files may be whole now
        and look the same."""
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
    """Return a file's content. A file with secrets must not be readable by every user of this host.

    Raise UnusableError."""
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
    """Open a file. If it is a pipe, do not wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _state(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
