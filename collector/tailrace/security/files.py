"""Values built from files, rebuilt when a file changes. The last valid value is kept while a rebuild fails.

A request for the value checks the files, at most once a second, so changes need no notification. While a pair of
files is half-written, the rebuild fails and the last valid value is used.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from tailrace.clock import Clock

LOOK_EVERY = 1.0
"""Minimum interval (seconds) between two checks of the files."""

SIZE_MAX = 2**20
"""Maximum size (bytes) of a file. Certificates, keys and lists of tokens are smaller."""

T = TypeVar("T")


class UnusableError(Exception):
    """A file is unusable. `message` has the reason."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


class Kept(Generic[T]):
    """The last value that was built from the files."""

    def __init__(self, paths: Sequence[Path], make: Callable[[], T], clock: Clock) -> None:
        """Build the first value from the files. Raise UnusableError."""
        self.problem: str | None = None
        """The reason why the current files are not used, or None."""
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
        """Rebuild the value if a file changed or the last rebuild failed. A file may be complete now without a
        visible change."""
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
    """Return a file's content. A secret file must not be readable by all users of the host. Raise UnusableError."""
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
    """Open a file. For a pipe, do not wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _state(path: Path) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
