"""Protect the collector's own files and directories against processes that remove, rename or replace them.

An open file is not tied to its path. So a process remembers the device and inode of each file that it opens, and
compares them before an acknowledgement with those of the file at the path (`found`). The collector locks directories as
well as files, because systemd-tmpfiles skips a locked directory with its content."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from tailrace.errors import FullError, LostError, StoreError
from tailrace.filesystem import make_way

PATIENCE_SECONDS = 0.2
"""Maximum time (seconds) of the attempts to take a lock. Other processes hold a lock for a moment when they test it."""

GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})
"""Error numbers of a call whose path does not exist any more."""

Identity = tuple[int, int]
"""Device number and inode number of a file or directory."""


def identity(fd: int) -> Identity:
    """Return device and inode of an open file or directory. No other file has the same pair while this one is open."""
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def found(path: Path) -> Identity | None:
    """Return the device and inode of the file at a path, or None if there is no file. Raise FullError if the path
    cannot be examined."""
    try:
        status = path.stat()
    except OSError as error:
        if error.errno in GONE:
            return None
        raise FullError(f"{path}: cannot be looked up: {error.strerror}") from error
    return status.st_dev, status.st_ino


def open_file(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a file and return its descriptor. Raise OSError for a link, because another user may have created it."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a link, which is not followed", str(path)) from error
        raise


def write_file(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Replace the content of a file atomically; with `durable`, also sync it. Raise OSError if that fails."""
    new = path.with_name(f"{path.name}.new")
    for place in (path, new):
        make_way(place)
    try:
        write_new(new, data, durable=durable)
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise
    if durable:
        fsync(path.parent)


def fsync(path: Path) -> None:
    """Sync a file or directory. Raise OSError if that fails."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_new(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Remove any file at the path, and create a new one with the content `data`. Raise OSError if that fails."""
    path.unlink(missing_ok=True)
    with os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def write_at(fd: int, data: bytes, at: int) -> None:
    """Write all of `data` at the offset `at` of an open file. Raise OSError if a write fails."""
    left = memoryview(data)
    while left:
        written = os.pwrite(fd, left, at)
        left, at = left[written:], at + written


@contextmanager
def whole_or_nothing(fd: int, end: int) -> Iterator[None]:
    """Cut an open file to its size `end` if a write in the `with` block fails."""
    try:
        yield
    except OSError:
        os.ftruncate(fd, end)
        raise


def refuse_foreign(directory: Path) -> None:
    """Raise StoreError if other users could create, replace or remove files in a directory of the collector.

    They can do so if the directory belongs to neither this user nor root, or if all users may write to it and the
    sticky bit is not set. Do nothing if the directory does not exist: whoever creates it later reports errors. Raise
    OSError if the directory cannot be examined."""
    try:
        status = directory.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    user = os.geteuid()
    if status.st_uid not in {user, 0}:
        raise StoreError(
            f"{directory}: belongs to user {status.st_uid}, who could replace files in it, but this process runs as"
            f" user {user}: run it as that user, choose another directory, or `chown {user} {directory}`"
        )
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        raise StoreError(
            f"{directory}: every user may remove and replace files in it: `chmod o-w {directory}`, or"
            f" `chmod +t {directory}` if other users must write there: they then cannot remove the collector's files"
        )


def open_directory(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def lock(fd: int, operation: int) -> None:
    """Lock an open file or directory with the flags `operation` of flock(2). With LOCK_NB, raise BlockingIOError if
    another process holds the lock for longer than `PATIENCE_SECONDS`."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(fd, operation)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(PATIENCE_SECONDS / 20)
        else:
            return


def lock_file(path: Path, operation: int) -> int:
    """Open or create a file, lock it, and return its descriptor. Repeat this if the file is replaced meanwhile. Raise
    OSError if the file cannot be opened or locked."""
    while True:
        fd = open_file(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            lock(fd, operation)
            if found(path) == identity(fd):
                return fd
        except BaseException:
            os.close(fd)
            raise
        # Try again, because another process has removed or replaced the file at the path.
        os.close(fd)


def lock_directory(path: Path, operation: int) -> int:
    """Lock a directory if its file system can do so, and return its descriptor. Raise BlockingIOError if it is
    locked."""
    fd = open_directory(path)
    try:
        lock(fd, operation)
    except BlockingIOError:
        os.close(fd)
        raise
    except OSError:
        pass
    return fd


class HeldDirectories:
    """A context manager that keeps directories open and checks that their paths still lead to them."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._fds: dict[Path, int] = {}
        try:
            for path in paths:
                if path not in self._fds:
                    self._fds[path] = open_directory(path)
        except OSError:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for fd in self._fds.values():
            with suppress(OSError):
                os.close(fd)
        self._fds.clear()

    def check(self) -> None:
        """Raise LostError if the path of an opened directory leads to another directory or does not exist."""
        for path, fd in self._fds.items():
            if found(path) != identity(fd):
                raise lost(path)


def lost(path: Path) -> LostError:
    """Return an error about a path that no longer leads to the file or directory that was opened there."""
    what = "leads to something else" if os.path.lexists(path) else "is gone"
    return LostError(
        f"{path} {what}: it was removed, renamed, replaced or mounted over while in use"
    )
