"""The spool's disk operations: every OSError of a write becomes an error that tells the caller what to do.

"No room" (also a quota, a limit, or a file system that became read-only) before the data is complete is a
`FullError`: nothing was promised yet, so the caller may write all of it again. Every other error, and
every error of a sync, is a `SyncError`: after a failed fsync the kernel may drop the pages and report
success the next time, so a sync must not be repeated.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tailrace.errors import FullError, LockedError, StoreError, SyncError
from tailrace.filesystem import NO_ROOM, refusal_text
from tailrace.spool.files import FileSystem, SystemFiles

_WAITS = NO_ROOM | {errno.EROFS}
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
_NO_PREALLOCATION = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError while `path` is changed into FullError or SyncError."""
    try:
        yield
    except OSError as error:
        text = f"{path}: {refusal_text(error.errno, path)}"
        if error.errno in _WAITS:
            raise FullError(text) from error
        raise SyncError(text) from error


class Disk:
    """A file system. Operations that write raise FullError or SyncError.

    Operations that only read, and direct calls of `files`, raise OSError."""

    def __init__(self, files: FileSystem) -> None:
        self.files = files

    def sync_data(self, fd: int, path: Path) -> None:
        """Return once the file's bytes, and its size if that changed, are on disk."""
        _synced(self.files.sync_data, fd, path)

    def sync_file(self, fd: int, path: Path) -> None:
        """Return once the file and all its metadata are on disk."""
        _synced(self.files.sync, fd, path)

    def sync_directory(self, path: Path) -> None:
        """Return once the names that were made, changed or removed in `path` are on disk."""
        with writing(path):
            fd = self.files.open_directory(path)
        try:
            self.sync_file(fd, path)
        finally:
            self.files.close(fd)

    def make_directory(self, path: Path) -> None:
        """Make a directory and its missing parents, durably. Raise OSError."""
        missing = [part for part in (path, *path.parents) if not self.files.exists(part)]
        self.files.make_directory(path)
        for made in missing:
            self.sync_directory(made.parent)

    def create(self, path: Path, *, empty: bool = True) -> int:
        """Open a file to write it, and make it if it is missing. Unless `empty`, it keeps what it has.

        Raise FullError when no descriptor is free, too."""
        with writing(path):
            try:
                return self.files.open(path, write=True, create=True, truncate=empty)
            except OSError as error:
                if error.errno in _NO_DESCRIPTOR:
                    raise FullError(f"{path}: {os.strerror(error.errno or 0)}") from error
                raise

    def preallocate(self, fd: int, size: int, path: Path) -> None:
        """Reserve room up to `size`, which reads as zeros behind the file's end.

        On a file system that cannot reserve, only set the size; a full disk then shows at a write.
        """
        with writing(path):
            try:
                self.files.allocate(fd, size)
            except OSError as error:
                if error.errno not in _NO_PREALLOCATION:
                    raise
                if self.files.size(fd) < size:
                    self.files.truncate(fd, size)

    def write_at(self, fd: int, data: bytes, offset: int, path: Path) -> None:
        """Write all of `data`. After a FullError a part of it may be in the file."""
        view = memoryview(data)
        with writing(path):
            while view:
                written = self.files.write(fd, view, offset)
                offset += written
                view = view[written:]

    def truncate(self, fd: int, size: int, path: Path) -> None:
        with writing(path):
            self.files.truncate(fd, size)

    def rename(self, old: Path, new: Path) -> None:
        with writing(new):
            self.files.rename(old, new)

    def unlink(self, path: Path) -> None:
        """Remove a file, which may be gone already."""
        with writing(path), contextlib.suppress(FileNotFoundError):
            self.files.unlink(path)

    def make_way(self, path: Path) -> None:
        with writing(path):
            self.files.make_way(path)

    def paths(self, directory: Path) -> list[Path]:
        """Return the paths in a directory, sorted by name. Raise OSError."""
        return [directory / name for name in sorted(self.files.names(directory))]

    def size(self, path: Path) -> int:
        """Return a file's size. Raise OSError."""
        with self.opened(path) as fd:
            return self.files.size(fd)

    def read(self, path: Path, size: int, offset: int = 0) -> bytes:
        """Return up to `size` bytes of a file. Raise OSError."""
        with self.opened(path) as fd:
            return self.files.read(fd, size, offset)

    def written(self, path: Path) -> list[tuple[int, int]]:
        """Return the ranges (start, end), in order, outside of which every byte is zero. Raise OSError."""
        with self.opened(path) as fd:
            return self.files.written(fd)

    @contextlib.contextmanager
    def opened(self, path: Path) -> Iterator[int]:
        """Open a file to read it. Raise OSError."""
        fd = self.files.open(path)
        try:
            yield fd
        finally:
            self.files.close(fd)

    def replace(self, path: Path, *parts: bytes) -> None:
        """Replace the content of `path`, durably. After a crash it has the old content or the new."""
        new = path.with_name(f"{path.name}.new")
        fd = self.create(new)
        try:
            at = 0
            for part in parts:
                self.write_at(fd, part, at, new)
                at += len(part)
            self.sync_file(fd, new)
        except FullError:
            with contextlib.suppress(OSError):
                self.files.unlink(new)
            raise
        finally:
            self.files.close(fd)
        self.rename(new, path)
        self.sync_directory(path.parent)

    def lock(self, directory: Path) -> int:
        """Lock the directory for this process, until the returned descriptor is closed.

        Raise LockedError when another process has it, StoreError when this process may not write there.
        """
        path, files = directory / "lock", self.files
        try:
            self.make_directory(directory)
            fd = files.open(path, write=True, create=True)
        except OSError as error:
            kind = FullError if error.errno in _WAITS else StoreError
            obstacle = files.exists(path) and not files.is_file(path)
            advice = ": it is not a file; remove it" if obstacle else ""
            raise kind(f"{path}: {refusal_text(error.errno, path)}{advice}") from error
        try:
            files.lock(fd)
            with contextlib.suppress(FullError):  # the lock holds without the pid in it
                self.write_at(fd, f"{os.getpid():<20}\n".encode(), 0, path)
        except BlockingIOError:
            owner = files.read(fd, 20, 0).decode(errors="replace").strip() or "unknown"
            files.close(fd)
            raise LockedError(f"{directory} is in use by the process with pid {owner}") from None
        except BaseException:
            files.close(fd)
            raise
        return fd


def _synced(call: Callable[[int], None], fd: int, path: Path) -> None:
    try:
        call(fd)
    except OSError as error:
        raise SyncError(f"{path}: sync failed: {refusal_text(error.errno, path)}") from error


SYSTEM = Disk(SystemFiles())
"""The disk of this machine."""
