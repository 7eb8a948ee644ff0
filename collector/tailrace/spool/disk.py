"""What the spool asks of a disk, with every refusal turned into what the caller can do about it.

Before data is complete, "no room" (also a quota and a file system that became read-only) is a
`FullError`: nothing was promised yet, so all of it may be written again. Every other error, and
every error of a sync, is a `SyncError`: after a failed fsync the kernel may drop the pages and
report success the next time, so nobody may ask twice.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tailrace.away import is_obstacle
from tailrace.errors import FullError, LockedError, StoreError, SyncError

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
_NO_PREALLOCATION = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
_FILE_MODE, _DIRECTORY_MODE = 0o600, 0o700
"""Nobody else may read what is in here: who knows a session's id can go on with the session."""


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError of changing `path` into FullError or SyncError."""
    try:
        yield
    except OSError as error:
        text = f"{path}: {os.strerror(error.errno or 0)}"
        if error.errno in _NO_ROOM:
            raise FullError(text) from error
        raise SyncError(text) from error


def _synced(call: Callable[[int], None], fd: int, path: Path) -> None:
    try:
        call(fd)
    except OSError as error:
        raise SyncError(f"{path}: sync failed: {os.strerror(error.errno or 0)}") from error


def sync_data(fd: int, path: Path) -> None:
    """Return once the file's bytes, and its size if that changed, are on disk."""
    _synced(os.fdatasync, fd, path)


def sync_file(fd: int, path: Path) -> None:
    """Return once the file and all that the file system knows of it are on disk."""
    _synced(os.fsync, fd, path)


def sync_directory(path: Path) -> None:
    """Return once names made, changed or removed in `path` are on disk."""
    with writing(path):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_file(fd, path)
    finally:
        os.close(fd)


def make_directory(path: Path) -> None:
    """Make a directory and those above it; OSError as it comes."""
    missing = [part for part in (path, *path.parents) if not part.exists()]
    path.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
    for made in missing:
        sync_directory(made.parent)


def create(path: Path) -> int:
    """Open a new, empty file, in place of one that may be there. To have no descriptor is to have no
    room: raise FullError."""
    with writing(path):
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, _FILE_MODE)
        except OSError as error:
            if error.errno in _NO_DESCRIPTOR:
                raise FullError(f"{path}: {os.strerror(error.errno or 0)}") from error
            raise


def preallocate(fd: int, size: int, path: Path) -> None:
    """Reserve room up to `size`, which then reads as zeros.

    Where the file system cannot, the file only gets that size, and a full disk shows at a write.
    """
    with writing(path):
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError as error:
            if error.errno not in _NO_PREALLOCATION:
                raise
            if os.fstat(fd).st_size < size:
                os.ftruncate(fd, size)


def write_at(fd: int, data: bytes, offset: int, path: Path) -> None:
    """Write all of `data`; after a FullError a part of it may be there."""
    view = memoryview(data)
    with writing(path):
        while view:
            written = os.pwrite(fd, view, offset)
            offset += written
            view = view[written:]


def replace(path: Path, *parts: bytes) -> None:
    """Give `path` these parts as its content, on disk when it returns; after any crash it is the old
    or the new."""
    new = path.with_name(f"{path.name}.new")
    fd = create(new)
    try:
        at = 0
        for part in parts:
            write_at(fd, part, at, new)
            at += len(part)
        sync_file(fd, new)
    except FullError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    finally:
        os.close(fd)
    with writing(path):
        new.replace(path)
    sync_directory(path.parent)


def lock(directory: Path) -> int:
    """Make the directory ours, and no other process's, until the returned descriptor is closed.

    Raise LockedError when it is in use, StoreError when this process may not write there.
    """
    path = directory / "lock"
    try:
        make_directory(directory)
        fd = os.open(path, os.O_RDWR | os.O_CREAT, _FILE_MODE)
    except OSError as error:
        kind = FullError if error.errno in _NO_ROOM else StoreError
        advice = ": it is no file, remove it" if is_obstacle(path) else ""
        raise kind(f"{path}: {os.strerror(error.errno or 0)}{advice}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write_at(fd, f"{os.getpid():<20}\n".encode(), 0, path)
    except BlockingIOError:
        owner = os.pread(fd, 20, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise LockedError(f"{directory} is in use by the process with pid {owner}") from None
    except BaseException:
        os.close(fd)
        raise
    return fd
