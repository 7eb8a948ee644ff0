"""The files that may be read: those within the roots of the configured patterns, wherever links lead.

Somebody who may write below a root could replace a file or a directory by a link at any moment. So
the kernel is asked what it has reached, and only that is judged and opened. Nothing outside a root is
ever opened, and neither a pipe nor a device.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from posixpath import dirname, join, normpath

from tailrace.sources.tail.system import SYSTEM, System

OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class OutsideError(OSError):
    """A path leads out of all roots."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EXDEV, "leads out of the configured paths", path)


class Roots:
    """The roots of one source. `documents` returns the files beside the stream at a path, relative to
    its directory. All modules that look at files ask the `system`."""

    def __init__(
        self, documents: Callable[[str], tuple[str, ...]], system: System = SYSTEM
    ) -> None:
        self.system = system
        self._documents = documents
        self._places: dict[str, set[str]] = {}
        self._all: Counter[str] = Counter()

    def add(self, root: str, *, is_file: bool) -> str | None:
        """Add a root, which may be a link; return where it really is now. With a file, add the
        documents that the format has beside it. Return None, and add nothing, if the link changed
        meanwhile."""
        real = followed(root)
        if real is None:
            return None
        places = {real}
        if is_file:
            places.update(normpath(join(dirname(real), name)) for name in self._documents(real))
        before = self._places.get(root, set())
        self._places[root] = places
        self._all.update(places - before)
        for place in before - places:
            self._all[place] -= 1
            if not self._all[place]:
                del self._all[place]
        return real

    def contain(self, real: str) -> bool:
        """Return whether a path without links is within a root."""
        while real not in self._all:
            if real in {"/", ""}:
                return False
            real = dirname(real)
        return True

    def look(self, path: str) -> tuple[os.stat_result, int]:
        """Return what the system says of the file that a path leads to within a root, and the file's
        birth (Unix ns, or 0). Raise OSError."""
        with self._reached(path) as fd:
            return self.system.fstat(fd), self.system.birth(fd)

    def open(self, path: str) -> int:
        """Return a descriptor of a file within a root. Raise OSError."""
        with self._reached(path) as fd:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "is no file", path)
            return os.open(f"/proc/self/fd/{fd}", OPEN)

    @contextmanager
    def _reached(self, path: str) -> Iterator[int]:
        """Yield a descriptor of what a path leads to, which cannot be read from. Raise OSError."""
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not self.contain(_place(fd)):
                raise OutsideError(path)
            yield fd
        finally:
            os.close(fd)


def followed(path: str) -> str | None:
    """Return where a path leads, or None if a link on the way was replaced or deleted meanwhile."""
    try:
        return os.path.realpath(path)
    except OSError:
        return None


def _place(fd: int) -> str:
    """Return the path at which the kernel says a descriptor's file is. Raise OSError."""
    try:
        place = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - three times as fast
    except OSError as error:
        raise OSError(errno.ENOSYS, "/proc is needed to follow files") from error
    return place.removesuffix(" (deleted)") if not os.fstat(fd).st_nlink else place
