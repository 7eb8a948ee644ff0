"""The file system calls of the spool.

`SystemFiles` makes them on the real file system. `tests/simulation/disk.py` has a simulated file system
that loses unsynced data at a power cut. `disk` turns errors into what they mean for the caller.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import sys
from pathlib import Path
from typing import Protocol

from tailrace import owned
from tailrace.away import is_file, make_way
from tailrace.filesystem import free_room

_FILE_MODE, _DIRECTORY_MODE = 0o600, 0o700
"""No other user may read the spool: whoever knows a session's id can continue the session."""


class FileSystem(Protocol):
    """A file system. Every call may raise OSError; `fd` is a result of `open` or `open_directory`."""

    def open(
        self, path: Path, *, write: bool = False, create: bool = False, truncate: bool = False
    ) -> int:
        """Open a file. With `create`, make the file if it is missing; with `truncate`, empty it."""
        ...

    def open_directory(self, path: Path) -> int: ...

    def close(self, fd: int) -> None: ...

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """Return up to `size` bytes, fewer where the file ends."""
        ...

    def written(self, fd: int) -> list[tuple[int, int]]:
        """Return the ranges (start, end), in order, outside of which every byte is zero."""
        ...

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        """Write all bytes or some; return how many."""
        ...

    def truncate(self, fd: int, size: int) -> None: ...

    def allocate(self, fd: int, size: int) -> None:
        """Reserve room up to `size`, which reads as zeros behind the file's end."""
        ...

    def size(self, fd: int) -> int: ...

    def sync(self, fd: int) -> None:
        """Return once the file, or the names in the directory, are on disk."""
        ...

    def sync_data(self, fd: int) -> None:
        """Return once the file's bytes, and its size, are on disk."""
        ...

    def lock(self, fd: int) -> None:
        """Lock the file or directory until it is closed. Raise BlockingIOError if another process holds the lock."""
        ...

    def identity(self, fd: int) -> owned.Identity:
        """Return what tells the open file or directory from all others."""
        ...

    def found(self, path: Path) -> owned.Identity | None:
        """Return the identity of what a name leads to; None if it leads nowhere."""
        ...

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file; a file that had the new name is replaced."""
        ...

    def unlink(self, path: Path) -> None: ...

    def names(self, directory: Path) -> list[str]: ...

    def exists(self, path: Path) -> bool: ...

    def is_file(self, path: Path) -> bool: ...

    def make_directory(self, path: Path) -> None:
        """Make a directory and its missing parents; it may exist already."""
        ...

    def make_way(self, path: Path) -> None:
        """Move away what stands in a file's place without being a file."""
        ...

    def free(self, directory: Path) -> int:
        """Return how many bytes this user may still write."""
        ...

    def largest(self) -> int:
        """Return how many bytes a file of this process may have."""
        ...


class SystemFiles:
    """The real file system of this machine."""

    def open(
        self, path: Path, *, write: bool = False, create: bool = False, truncate: bool = False
    ) -> int:
        flags = os.O_RDWR if write else os.O_RDONLY
        flags |= (os.O_CREAT if create else 0) | (os.O_TRUNC if truncate else 0)
        return owned.open_file(path, flags, _FILE_MODE)

    def open_directory(self, path: Path) -> int:
        return owned.open_directory(path)

    def close(self, fd: int) -> None:
        os.close(fd)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        return os.pread(fd, size, offset)

    def written(self, fd: int) -> list[tuple[int, int]]:
        # A file system that knows no holes says that all was written.
        ranges, end, size = [], 0, os.fstat(fd).st_size
        while end < size:
            try:
                start = os.lseek(fd, end, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                break  # nothing but a hole follows
            end = os.lseek(fd, start, os.SEEK_HOLE)
            ranges.append((start, end))
        return ranges

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def allocate(self, fd: int, size: int) -> None:
        os.posix_fallocate(fd, 0, size)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def sync(self, fd: int) -> None:
        os.fsync(fd)

    def sync_data(self, fd: int) -> None:
        os.fdatasync(fd)

    def lock(self, fd: int) -> None:
        owned.lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def identity(self, fd: int) -> owned.Identity:
        return owned.identity(fd)

    def found(self, path: Path) -> owned.Identity | None:
        return owned.found(path)

    def rename(self, old: Path, new: Path) -> None:
        old.replace(new)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def names(self, directory: Path) -> list[str]:
        return [path.name for path in directory.iterdir()]

    def exists(self, path: Path) -> bool:
        return os.path.lexists(path)

    def is_file(self, path: Path) -> bool:
        return is_file(path)

    def make_directory(self, path: Path) -> None:
        path.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)

    def make_way(self, path: Path) -> None:
        make_way(path)

    def free(self, directory: Path) -> int:
        return free_room(directory).bytes

    def largest(self) -> int:
        limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        return sys.maxsize if limit == resource.RLIM_INFINITY else limit
