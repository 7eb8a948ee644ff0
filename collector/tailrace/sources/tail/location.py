"""Locate and open files, and restrict reading to the configured directories.

Only files within the roots of the configured patterns (the directories before the first wildcards) may be read, even
through links. A user with write access below a root could replace a file by a link at any time. So the collector first
obtains a descriptor that does not permit reading, checks the real path that the kernel states for it, and then opens
the descriptor's file. It opens no file outside all roots, no pipe and no device."""

from __future__ import annotations

import errno
import os
import resource
import stat
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from posixpath import dirname, join, normpath
from typing import NamedTuple

from tailrace.clock import Clock
from tailrace.sources.source import RESERVE
from tailrace.sources.tail import identity


class System(NamedTuple):
    """The system calls that return the sizes, times and inodes of files, and the path of the proc file system."""

    stat: Callable[[str], os.stat_result] = os.stat
    fstat: Callable[[int], os.stat_result] = os.fstat
    birth: Callable[[int], int] = identity.birth
    proc: str = "/proc"


SYSTEM = System()
"""The system calls of the real system. Simulations replace them by calls of their own."""


MISSING = FileNotFoundError, NotADirectoryError
"""Classes of the errors that system calls raise for a path at which there is no file."""


def name_of(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "unknown")


def report(error: OSError, failed: Callable[[str], None]) -> None:
    """Pass the name of an error to `failed`, unless the error states that there is no file at a path."""
    if not isinstance(error, MISSING):
        failed(name_of(error))


OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


@contextmanager
def opened(path: str) -> Iterator[int]:
    """Open a file for reading, without blocking even if the path leads to a pipe. Raise OSError if that fails."""
    fd = os.open(path, OPEN)
    try:
        yield fd
    finally:
        os.close(fd)


class OutsideError(OSError):
    """Raised for a path that leads, possibly through links, to a file outside all roots."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EXDEV, "leads out of the configured paths", path)


class Roots:
    """The files and directories that one source may read, with everything below the directories. `documents` returns
    the paths of the documents beside a stream's file, relative to its directory."""

    def __init__(
        self, documents: Callable[[str], tuple[str, ...]], system: System = SYSTEM
    ) -> None:
        self.system = system
        self._documents = documents
        self._places: dict[str, set[str]] = {}
        self._all: Counter[str] = Counter()

    def add(self, root: str, *, is_file: bool) -> str | None:
        """Allow the source to read below the directory `root` or, if `is_file`, the file `root` and its documents (such
        as metadata files beside it). Return the path of `root` without links, or None if a link was replaced
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
        """Return a file's status and creation time (Unix ns, or 0). Raise OutsideError for a file outside all roots."""
        with self._reached(path) as fd:
            return self.system.fstat(fd), self.system.birth(fd)

    def open(self, path: str) -> int:
        """Open a regular file within a root for reading. Raise OutsideError for a file outside all roots."""
        with self._reached(path) as fd:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "is no file", path)
            return os.open(f"/proc/self/fd/{fd}", OPEN)

    @contextmanager
    def _reached(self, path: str) -> Iterator[int]:
        """Yield a descriptor of a file with which the file's content cannot be read. Raise OutsideError for a file
        outside all roots."""
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            try:
                place = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - three times as fast
            except OSError as error:
                raise OSError(errno.ENOSYS, "/proc is needed to follow files") from error
            if not os.fstat(fd).st_nlink:
                place = place.removesuffix(" (deleted)")
            if not self.contain(place):
                raise OutsideError(path)
            yield fd
        finally:
            os.close(fd)


def followed(path: str) -> str | None:
    """Return a path with all links resolved, or None if a link was replaced or deleted meanwhile."""
    try:
        return os.path.realpath(path)
    except OSError:
        return None


class TailDescriptors:
    """The open file descriptors of one source: at most `limit`, and at most half of the number that the process may
    open. To open a further file, close the least recently used file that is not *pinned*. A pinned file stays open,
    because it may have no path any more."""

    def __init__(self, limit: int, roots: Roots) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.roots = roots
        self._limit = limit if soft == resource.RLIM_INFINITY else max(1, min(limit, soft // 2))
        self._open: OrderedDict[Hashable, int] = OrderedDict()
        self._pinned: set[Hashable] = set()

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, owner: Hashable) -> bool:
        return owner in self._open

    @property
    def spare(self) -> bool:
        """Return whether one more file can be opened without closing another file."""
        return len(self._open) < self._limit

    def get(self, owner: Hashable) -> int | None:
        """Return the descriptor of a file, or None if the file is not open. The file counts as just used."""
        fd = self._open.get(owner)
        if fd is not None:
            self._open.move_to_end(owner)
        return fd

    def open(self, owner: Hashable, path: str) -> int:
        """Open a file and return its descriptor. Raise OSError if the file or a descriptor is not available."""
        fd = self.roots.open(path)
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and fd >= max(soft // 2, soft - RESERVE):
            if (other := self._oldest()) is None:
                os.close(fd)
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
            self.close(other)
        while len(self._open) >= self._limit and (oldest := self._oldest()) is not None:
            self.close(oldest)
        self._open[owner] = fd
        return fd

    def pin(self, owner: Hashable) -> None:
        if owner in self._open:
            self._pinned.add(owner)

    def unpin(self, owner: Hashable) -> None:
        self._pinned.discard(owner)

    def close(self, owner: Hashable) -> None:
        self._pinned.discard(owner)
        if (fd := self._open.pop(owner, None)) is not None:
            os.close(fd)

    def close_all(self) -> None:
        for owner in list(self._open):
            self.close(owner)

    def _oldest(self) -> Hashable | None:
        return next((owner for owner in self._open if owner not in self._pinned), None)


FileStamp = tuple[int, int, int]


def signature(found: os.stat_result) -> FileStamp:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


class AnotherFileError(FileNotFoundError):
    """Raised when a path leads to another file than before, even if it has the same inode."""


class Location:
    """The path, inode and descriptor of one file. If it is renamed or deleted while it is open, it stays open."""

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
        """Time (Unix ns) at which the file was created; 0 if unknown."""
        self.gone: str | None = None
        """The reason why the path no longer leads to the file; None while it does."""
        self.gone_at = 0.0
        self.changed_at = 0.0
        """Time of the last check that found a change of the file."""
        self._closed_as: FileStamp | None = None
        """The file's size and times when `close_until` closed it; None before, and after the file is opened again."""
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
        return self.gone is None or self.is_open

    @property
    def is_unlinked(self) -> bool:
        fd = self._descriptors.get(self)
        return fd is not None and self._system.fstat(fd).st_nlink == 0

    @property
    def may_return(self) -> bool:
        """Return whether the file may appear again: its directory is gone and was perhaps only moved for a while, and
        the file is not known to be deleted."""
        try:
            self._system.stat(os.path.dirname(self.path))  # noqa: PTH120 - as fast as it can be
        except MISSING:
            return not self.is_unlinked
        return False

    @property
    def stands(self) -> bool:
        """Return whether `path` still leads to this file, even if the path is outside the source's roots."""
        try:
            try:
                found, birth = self._descriptors.roots.look(self.path)
            except OutsideError:
                # Examine the path without a check of the roots: the configured patterns have changed, and may no longer
                # include the path.
                found, birth = self._system.stat(self.path), 0
        except OSError:
            return False
        return self._is_same(found, birth)

    @property
    def is_missing(self) -> bool:
        """Return whether the file is not open, and its file system seems to be unmounted."""
        # If the file system is unmounted, the nearest existing directory above the path is on another device.
        place = "/" if self.is_open else self.path
        while place != "/":
            place = os.path.dirname(place)  # noqa: PTH120 - as fast as it can be
            try:
                return self._system.stat(place).st_dev != self.device
            except OSError:
                continue
        return False

    def find(self, now: float) -> tuple[os.stat_result | None, bool]:
        """Return the status of the file, or None if it is gone, and whether another file is at its path. Raise OSError
        if the path cannot be examined."""
        try:
            found = self._system.stat(self.path)
        except MISSING:
            found = None
        replaced = found is not None and not self._leads_here(found)
        if found is None or replaced:
            if self.gone is None:
                self.lose_path("replaced" if replaced else "deleted", now)
            elif replaced:
                self.gone = "replaced"
            fd = self._descriptors.get(self)
            return None if fd is None else self._system.fstat(fd), replaced
        return found, False

    def _leads_here(self, found: os.stat_result) -> bool:
        """Return whether the file at the path, with the status `found`, is this file. Raise OSError on failure."""
        if (found.st_dev, found.st_ino) != self.node:
            return False
        if self.gone is None and self._closed_as == signature(found):
            return True
        # A later file may have the inode of a deleted file. An open file can be read even after its deletion.
        if not self.is_open and (self._descriptors.spare or self.gone is not None):
            try:
                self.open()
            except AnotherFileError:
                return False
        return True

    def is_succeeded(self, now: float) -> bool:
        """Return whether a later file is at the path; if so, record this. Raise OSError if the path cannot be examined."""
        if self.is_open:
            return False
        try:
            found, birth = self._descriptors.roots.look(self.path)
        except MISSING:
            return False  # somebody deleted the file, and no later file is at its path
        if self._is_same(found, birth):
            return False
        self.lose_path("replaced", now)
        return True

    def _is_same(self, found: os.stat_result, birth: int) -> bool:
        """Return whether a file is this file and not a later one that has got the same inode, as far as creation times
        are known."""
        later = self.birth and birth and birth != self.birth
        return (found.st_dev, found.st_ino) == self.node and not later

    def lose_path(self, reason: str, now: float) -> None:
        self.gone, self.gone_at = reason, now
        self.changed_at = now
        self._descriptors.pin(self)

    def find_again(self, path: str) -> bool:
        """Record that the file was found at `path`; return whether this is another path than before."""
        self.gone = None
        self._descriptors.unpin(self)
        before, self.path = self.path, path
        return path != before

    def close(self) -> None:
        self._descriptors.close(self)

    def close_until(self, change: FileStamp) -> None:
        """Close the file, so that its file system can be unmounted, until its size or times differ from `change`."""
        self._closed_as = change
        self.close()

    def open(self) -> int:
        """Return the file's descriptor; open a closed file. Raise AnotherFileError if another file is at the path."""
        fd = self._descriptors.get(self)
        if fd is not None:
            return fd
        self._closed_as = None
        fd = self._descriptors.open(self, self.path)
        found, birth = self._system.fstat(fd), self._system.birth(fd)
        if not self._is_same(found, birth):
            self.close()
            if self.gone is None:
                self.lose_path("replaced", self._clock.monotonic())
            raise AnotherFileError(errno.ENOENT, "another file has its path by now", self.path)
        if self.gone is not None:
            self._descriptors.pin(self)
        self.birth = birth or self.birth
        return fd
