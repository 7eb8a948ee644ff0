"""Run the spool's disk operations, and convert OSErrors to exceptions that state whether a retry can help.

- `FullError`: no room, also because of a quota, a size limit or a read-only file system. The write may be retried.
- `LostError`: a file or directory that the process uses was removed or renamed.
- `SyncError`: all other errors, and every error of a sync. After a failed fsync, the kernel may drop the pages and
  report success for the next fsync, so a sync must not be retried."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import resource
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tailrace import owned
from tailrace.errors import FullError, LockedError, LostError, StoreError, SyncError
from tailrace.filesystem import NO_ROOM, free_room, is_file, make_way, refusal_text

_FILE_MODE, _DIRECTORY_MODE = 0o600, 0o700
"""Permissions of the spool. Other users must not read it, because a session id in it allows continuing the session."""


logger = logging.getLogger(__name__)


class FileSystem:
    """The system calls on which the spool is built. Each call may raise OSError. `fd` is an open file or directory."""

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
        """Return the byte ranges (start, end) of an open file that contain data, in order. All other bytes are zero."""
        # A file system that does not support holes reports one range.
        ranges, end, size = [], 0, os.fstat(fd).st_size
        while end < size:
            try:
                start = os.lseek(fd, end, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                break  # only a hole follows up to the end of the file
            end = os.lseek(fd, start, os.SEEK_HOLE)
            ranges.append((start, end))
        return ranges

    def write(self, fd: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        """Write the joined byte strings `pieces`, or only the first bytes of them, at `offset`. Return the number of
        bytes written."""
        return os.pwritev(fd, pieces, offset)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def allocate(self, fd: int, size: int) -> None:
        """Reserve disk space for an open file up to `size` bytes. New bytes at its end read as zeros."""
        os.posix_fallocate(fd, 0, size)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def sync(self, fd: int) -> None:
        os.fsync(fd)

    def sync_data(self, fd: int) -> None:
        os.fdatasync(fd)

    def lock(self, fd: int) -> None:
        """Lock a file or directory until it is closed. Raise BlockingIOError if another process has it locked."""
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


_WAITS = NO_ROOM | {errno.EROFS}
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
_TAKEN = frozenset({errno.EAGAIN, errno.EACCES})
_NO_PREALLOCATION = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert an OSError in the `with` block, which changes `path`, to FullError, LostError or SyncError."""
    try:
        yield
    except OSError as error:
        text = f"{path}: {refusal_text(error.errno, path)}"
        if error.errno in _WAITS:
            raise FullError(text) from error
        if error.errno in owned.GONE:
            raise LostError(f"{text}: it was removed or renamed while in use") from error
        raise SyncError(text) from error


@contextlib.contextmanager
def waiting(path: Path) -> Iterator[None]:
    """Convert an OSError in the `with` block, which opens `path`, to FullError if no file descriptor is free."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_DESCRIPTOR:
            raise FullError(f"{path}: {os.strerror(error.errno or 0)}") from error
        raise


@contextlib.contextmanager
def opening(path: Path) -> Iterator[None]:
    """Convert an OSError to FullError, LostError or SyncError, and to FullError if no file descriptor is free."""
    with writing(path), waiting(path):
        yield


class Disk:
    """A file system on which changes raise FullError, LostError or SyncError. Reads raise OSError."""

    def __init__(self, files: FileSystem) -> None:
        self.files = files

    def sync_data(self, fd: int, path: Path) -> None:
        _synced(self.files.sync_data, fd, path)

    def sync_file(self, fd: int, path: Path) -> None:
        _synced(self.files.sync, fd, path)

    @contextlib.contextmanager
    def naming(self, directory: Path) -> Iterator[None]:
        """Sync a directory at the end of the `with` block, so that the file names that the block changes are on disk."""
        # Open the directory before the `with` block runs: if no file descriptor is free, no file name has changed yet.
        with opening(directory):
            fd = self.files.open_directory(directory)
        try:
            yield
            self.sync_file(fd, directory)
        finally:
            self.files.close(fd)

    def make_directory(self, path: Path) -> None:
        """Create a directory and its missing parents, and sync their names. Raise OSError if that fails."""
        missing = [part for part in (path, *path.parents) if not self.files.exists(part)]
        self.files.make_directory(path)
        for made in missing:
            with self.naming(made.parent):
                pass

    def create(self, path: Path, *, empty: bool = True) -> int:
        with opening(path):
            return self.files.open(path, write=True, create=True, truncate=empty)

    def preallocate(self, fd: int, size: int, path: Path) -> None:
        """Reserve disk space for a file of `size` bytes, or only set the file's size if the file system cannot reserve
        space."""
        with writing(path):
            try:
                self.files.allocate(fd, size)
            except OSError as error:
                if error.errno not in _NO_PREALLOCATION:
                    raise
                if self.files.size(fd) < size:
                    self.files.truncate(fd, size)

    def write_at(
        self, fd: int, pieces: Sequence[bytes | memoryview], offset: int, path: Path
    ) -> None:
        """Write the joined byte strings `pieces` (at most 1,024) at `offset`. After a FullError, the file may contain a
        part of their bytes."""
        with writing(path):
            while pieces:
                written = self.files.write(fd, pieces, offset)
                offset += written
                pieces = _behind(pieces, written)

    def truncate(self, fd: int, size: int, path: Path) -> None:
        with writing(path):
            self.files.truncate(fd, size)

    def rename(self, old: Path, new: Path) -> None:
        with writing(new):
            self.files.rename(old, new)

    def unlink(self, path: Path) -> None:
        with writing(path), contextlib.suppress(FileNotFoundError):
            self.files.unlink(path)

    def make_way(self, path: Path) -> None:
        with writing(path):
            self.files.make_way(path)

    def paths(self, directory: Path) -> list[Path]:
        return [directory / name for name in sorted(self.files.names(directory))]

    def size(self, path: Path) -> int:
        with self.opened(path) as fd:
            return self.files.size(fd)

    def read(self, path: Path, size: int, offset: int = 0) -> bytes:
        with self.opened(path) as fd:
            return self.files.read(fd, size, offset)

    def written(self, path: Path) -> list[tuple[int, int]]:
        with self.opened(path) as fd:
            return self.files.written(fd)

    @contextlib.contextmanager
    def opened(self, path: Path) -> Iterator[int]:
        fd = self.files.open(path)
        try:
            yield fd
        finally:
            self.files.close(fd)

    def replace(self, path: Path, *parts: bytes) -> None:
        """Replace the content of a file durably by the joined `parts`. After a crash, the file has either the old or the
        new content."""
        new = path.with_name(f"{path.name}.new")
        with self.naming(path.parent):
            fd = self.create(new)
            try:
                self.write_at(fd, parts, 0, new)
                self.sync_file(fd, new)
            except FullError:
                with contextlib.suppress(OSError):
                    self.files.unlink(new)
                raise
            finally:
                self.files.close(fd)
            self.rename(new, path)

    def lock(self, directory: Path) -> LockedDirectory:
        """Lock a directory for this process until the returned lock is closed.

        Raise LockedError if another process holds the lock, StoreError if this process may not write to the directory,
        and FullError if the lock cannot be taken now."""
        path, files, locked = directory, self.files, None
        try:
            self.make_directory(directory)
            locked = LockedDirectory(directory, files.open_directory(directory), self)
            path = directory / "lock"
            locked.take()
        except BaseException as error:
            if locked is not None:
                locked.close()
            if not isinstance(error, OSError):
                raise
            kind = FullError if error.errno in _WAITS | _NO_DESCRIPTOR else StoreError
            obstacle = locked is not None and files.exists(path) and not files.is_file(path)
            advice = ": it is not a file; remove it" if obstacle else ""
            raise kind(f"{path}: {refusal_text(error.errno, path)}{advice}") from error
        return locked


class LockedDirectory:
    """A directory that this process has locked, together with the file `lock` in it, which has the pid. Both are
    locked, because users may remove the file, and some file systems cannot lock directories."""

    def __init__(self, path: Path, fd: int, disk: Disk) -> None:
        self.path = path
        self._fd = fd
        self._disk = disk
        self._identity = disk.files.identity(fd)
        self._lock = path / "lock"
        self._mutex = threading.Lock()  # guards `_lock_fd` and `_lock_identity`
        self._lock_fd: int | None = None
        self._lock_identity: owned.Identity | None = None

    def take(self) -> None:
        """Lock the directory and its file `lock`. Raise LockedError if another process has locked one of them."""
        try:
            self._disk.files.lock(self._fd)
        except OSError as error:
            if error.errno in _TAKEN:
                raise self._taken() from None
        self._take_file()

    def check(self) -> None:
        """Raise LostError if the directory was removed, renamed or locked by another process. Create its file `lock`
        again if it was removed, or raise StoreError. Any thread may call this method."""
        if self._disk.files.found(self.path) != self._identity:
            raise owned.lost(self.path)
        with self._mutex:
            if self._disk.files.found(self._lock) == self._lock_identity:
                return
            before = self._lock_fd
            try:
                self._disk.files.make_way(self._lock)
                self._take_file()
            except LockedError as error:
                raise LostError(f"{error}, since {self._lock} was removed") from error
            except OSError as error:
                reason = refusal_text(error.errno, self._lock)
                text = f"{self._lock} was removed and cannot be made again: {reason}"
                raise (LostError if error.errno in owned.GONE else StoreError)(text) from error
            if before is not None:
                self._disk.files.close(before)
            logger.warning("%s was removed or replaced; it is made again", self._lock)

    def close(self) -> None:
        for fd in (self._lock_fd, self._fd):
            if fd is not None:
                self._disk.files.close(fd)

    def _take_file(self) -> None:
        files = self._disk.files
        fd = files.open(self._lock, write=True, create=True)
        try:
            files.lock(fd)
            # The lock is valid even if the pid cannot be written.
            with contextlib.suppress(FullError):
                self._disk.write_at(fd, [f"{os.getpid():<20}\n".encode()], 0, self._lock)
        except BaseException as error:
            files.close(fd)
            if isinstance(error, OSError) and error.errno in _TAKEN:
                raise self._taken() from None
            raise
        self._lock_fd, self._lock_identity = fd, files.identity(fd)

    def _taken(self) -> LockedError:
        owner = ""
        with contextlib.suppress(OSError):
            owner = self._disk.read(self._lock, 20).decode(errors="replace").strip()
        return LockedError(f"{self.path} is in use by the process with pid {owner or 'unknown'}")


def _behind(pieces: Sequence[bytes | memoryview], size: int) -> list[bytes | memoryview]:
    """Return the byte strings without the first `size` of all their bytes. Do not copy the remaining bytes."""
    for number, piece in enumerate(pieces):
        if size < len(piece):
            return [memoryview(piece)[size:], *pieces[number + 1 :]]
        size -= len(piece)
    return []


def _synced(call: Callable[[int], None], fd: int, path: Path) -> None:
    try:
        call(fd)
    except OSError as error:
        raise SyncError(f"{path}: sync failed: {refusal_text(error.errno, path)}") from error


SYSTEM = Disk(FileSystem())
