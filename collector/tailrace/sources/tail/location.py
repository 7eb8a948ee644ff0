"""Where one file is: its path, its inode, its descriptor."""

from __future__ import annotations

import errno
import os

from tailrace.clock import Clock
from tailrace.sources.tail.descriptors import TailDescriptors
from tailrace.sources.tail.roots import OutsideError

Signature = tuple[int, int, int]
"""Size and times of a file."""


def signature(found: os.stat_result) -> Signature:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


class AnotherFileError(FileNotFoundError):
    """A path leads to another file than before, which may have the inode of the former one."""


class Location:
    """The path, inode and descriptor of one file. The file may lose its path and get another one;
    meanwhile it stays open if it was."""

    def __init__(
        self,
        descriptors: TailDescriptors,
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
        """When the file was made (Unix ns); 0 where the system does not say."""
        self.gone: str | None = None
        """Why the path does not lead to the file any more; None while it does."""
        self.gone_at = 0.0
        self.changed_at = 0.0
        """When a change of the file was last seen."""
        self._closed_as: Signature | None = None
        """Size and times of the file when it was closed because it rested; None while it may be open."""
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
        """Return whether the path leads to the file, or the file is open."""
        return self.gone is None or self.is_open

    @property
    def is_unlinked(self) -> bool:
        """Return whether the file is open and no name leads to it."""
        fd = self._descriptors.get(self)
        return fd is not None and self._system.fstat(fd).st_nlink == 0

    @property
    def stands(self) -> bool:
        """Return whether the path leads to the file, and not to a later one with its inode, as far as may be looked."""
        try:
            try:
                found, birth = self._descriptors.roots.look(self.path)
            except OutsideError:  # the source has other patterns by now
                found, birth = self._system.stat(self.path), 0
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self.node and not self._is_later(birth)

    @property
    def is_missing(self) -> bool:
        """Return whether the file is not open, and its file system seems not to be mounted."""
        place = "/" if self.is_open else self.path
        while place != "/":
            place = os.path.dirname(place)  # noqa: PTH120 - as fast as it can be
            try:
                return self._system.stat(place).st_dev != self.device
            except OSError:
                continue
        return False

    def find(self, now: float) -> tuple[os.stat_result | None, bool]:
        """Return what the system says of the file, None if it cannot be asked, and whether another
        file is at its path. Raise OSError."""
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
        """Return whether what the system has found at the path is this file. Open the file if a
        descriptor is spare, so that it can be read to its end should it be deleted. Raise OSError."""
        if (found.st_dev, found.st_ino) != self.node:
            return False
        if self.gone is None and self._closed_as == signature(found):
            return True
        # Another file may have the inode of one that is gone.
        if not self.is_open and (self._descriptors.spare or self.gone is not None):
            try:
                self.open()
            except AnotherFileError:
                return False
        return True

    def is_succeeded(self, now: float) -> bool:
        """Return whether a later file has the path, be it with the same inode, and lose the path then.
        Raise OSError.

        No other file has the inode of an open one."""
        if self.is_open:
            return False
        try:
            found, birth = self._descriptors.roots.look(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False  # deleted since the system found it
        if (found.st_dev, found.st_ino) == self.node and not self._is_later(birth):
            return False
        self.lose_path("replaced", now)
        return True

    def _is_later(self, birth: int) -> bool:
        """Return whether a file with the same inode that was born then is a later file."""
        return bool(self.birth and birth) and birth != self.birth

    def lose_path(self, reason: str, now: float) -> None:
        self.gone, self.gone_at = reason, now
        self.changed_at = now
        self._descriptors.pin(self)

    def find_again(self, path: str) -> bool:
        """Note that the file is at this path; return whether its path was another one before."""
        self.gone = None
        self._descriptors.unpin(self)
        before, self.path = self.path, path
        return path != before

    def close(self) -> None:
        self._descriptors.close(self)

    def close_until(self, change: Signature) -> None:
        """Close the file until its size or times differ from these, so that its file system can be unmounted."""
        self._closed_as = change
        self.close()

    def open(self) -> int:
        """Return the descriptor, which is opened if need be. Raise OSError."""
        fd = self._descriptors.get(self)
        if fd is not None:
            return fd
        self._closed_as = None
        fd = self._descriptors.open(self, self.path)
        found, birth = self._system.fstat(fd), self._system.birth(fd)
        if (found.st_dev, found.st_ino) != self.node or self._is_later(birth):
            self.close()
            if self.gone is None:
                self.lose_path("replaced", self._clock.monotonic())
            raise AnotherFileError(errno.ENOENT, "another file has its path by now", self.path)
        if self.gone is not None:
            self._descriptors.pin(self)
        self.birth = birth or self.birth
        return fd
