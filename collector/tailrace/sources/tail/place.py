"""Where a file is: its path, its inode, its descriptor."""

from __future__ import annotations

import errno
import os

from tailrace.clock import Clock
from tailrace.sources.tail.descriptors import Descriptors


class AnotherFileError(FileNotFoundError):
    """A path leads to another file than before, which may have the inode of the former one."""


class Located:
    """A file that may lose its path and get another one. One that lost it stays open if it was."""

    def __init__(
        self,
        descriptors: Descriptors,
        clock: Clock,
        path: str,
        device: int,
        inode: int,
        birth: int,
    ) -> None:
        self.path = path
        self.device = device
        self.inode = inode
        self.birth = birth
        """When it was made (Unix ns); 0 where the system does not say."""
        self.gone: str | None = None
        """Why its path does not lead to it any more."""
        self.gone_at = 0.0
        self.changed_at = 0.0
        """When a change of it was seen last."""
        self._clock = clock
        self._descriptors = descriptors
        self._system = descriptors.roots.system

    @property
    def node(self) -> tuple[int, int]:
        return self.device, self.inode

    @property
    def is_open(self) -> bool:
        return self in self._descriptors

    @property
    def is_readable(self) -> bool:
        """Its path leads to it, or it is open."""
        return self.gone is None or self.is_open

    @property
    def is_unlinked(self) -> bool:
        """It is open, and no name leads to it."""
        fd = self._descriptors.get(self)
        return fd is not None and self._system.fstat(fd).st_nlink == 0

    @property
    def is_missing(self) -> bool:
        """It is not open, and its file system is not there as far as can be told."""
        place = "/" if self.is_open else self.path
        while place != "/":
            place = os.path.dirname(place)  # noqa: PTH120 - as fast as it can be
            try:
                return self._system.stat(place).st_dev != self.device
            except OSError:
                continue
        return False

    def find(self, now: float) -> tuple[os.stat_result | None, bool]:
        """What the system says of it, None if it cannot be asked; whether another file is at its
        path. Raise OSError."""
        try:
            found = self._system.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            found = None
        replaced = found is not None and not self._leads_here(found)
        if found is None or replaced:
            if self.gone is None:
                self.lose_path("replaced" if replaced else "deleted", now)
            fd = self._descriptors.get(self)
            return None if fd is None else self._system.fstat(fd), replaced
        return found, False

    def _leads_here(self, found: os.stat_result) -> bool:
        """Whether this file is at its path, where the system has found one; open it if there is a
        descriptor to spare, so that it can be read to its end should it be deleted. Raise OSError."""
        if (found.st_dev, found.st_ino) != self.node:
            return False
        # The inode of a file that is gone may be another one's.
        if not self.is_open and (self._descriptors.spare or self.gone is not None):
            try:
                self.open()
            except AnotherFileError:
                return False
        return True

    def is_succeeded(self, now: float) -> bool:
        """Return whether a later file has its path and its inode; then it loses its path. Raise OSError.

        While it is open, its inode is its own."""
        if self.is_open:
            return False
        try:
            found, birth = self._descriptors.roots.look(self.path)
        except FileNotFoundError:
            return False  # deleted since it was found there
        if (found.st_dev, found.st_ino) == self.node and not self._is_later(birth):
            return False
        self.lose_path("replaced", now)
        return True

    def _is_later(self, birth: int) -> bool:
        """Return whether a file with its inode that was made then is another one."""
        return bool(self.birth and birth) and birth != self.birth

    def lose_path(self, reason: str, now: float) -> None:
        self.gone, self.gone_at = reason, now
        self.changed_at = now
        self._descriptors.pin(self)

    def find_again(self, path: str) -> bool:
        """It is at this path now; whether that is another one than before."""
        self.gone = None
        self._descriptors.unpin(self)
        before, self.path = self.path, path
        return path != before

    def open(self) -> int:
        """Its descriptor. Raise OSError."""
        fd = self._descriptors.get(self)
        if fd is not None:
            return fd
        fd = self._descriptors.open(self, self.path)
        found, birth = self._system.fstat(fd), self._system.birth(fd)
        if (found.st_dev, found.st_ino) != self.node or self._is_later(birth):
            self._descriptors.close(self)
            if self.gone is None:
                self.lose_path("replaced", self._clock.monotonic())
            raise AnotherFileError(errno.ENOENT, "another file has its path by now", self.path)
        if self.gone is not None:
            self._descriptors.pin(self)
        self.birth = birth or self.birth
        return fd
