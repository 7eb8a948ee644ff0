"""Simulate a file system in memory (`tailrace.spool.disk.FileSystem`) that fails and loses data as real disks do.

A kill keeps everything that was written. After a power cut, each sector that was not synced has either its content of
the last sync or its current content. Each change of a name without a sync of its directory has either happened or not.
Sizes are known by names and behave like sectors.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

SECTOR = 512
ROTTEN = 16
"""Number of bytes that rot together."""


class Crash(BaseException):
    """Raised in the middle of a call of the file system, when the process or the machine ends."""


class Inode:
    """A file's bytes, and those of them that a power cut may lose."""

    _numbers = itertools.count(1)

    def __init__(self) -> None:
        self.number = next(self._numbers)
        self.data = bytearray()
        self.before: dict[int, bytes] = {}
        """By number, the earlier content of each sector that was changed since the last sync."""
        self.lost: dict[int, bytes] = {}
        """By number, the content on disk of each sector that a failed sync did not write.

        Only a power cut reveals it, and a new write replaces it.
        """
        self.size_before: int | None = None
        """The size at the last sync, if the size has changed since then."""

    def change(self, begin: int, end: int) -> None:
        """Record the content of a part of the file before it is changed."""
        for sector in range(begin // SECTOR, (end + SECTOR - 1) // SECTOR):
            if sector in self.lost:
                self.before.setdefault(sector, self.lost.pop(sector))
            elif sector not in self.before:
                part = bytes(self.data[sector * SECTOR : (sector + 1) * SECTOR])
                self.before[sector] = part.ljust(SECTOR, b"\0")

    def keeps(self, size: int) -> bool:
        """Return whether this many bytes would remain after a power cut now."""
        for sector, part in (self.before | self.lost).items():
            at = sector * SECTOR
            end = min(at + SECTOR, size)
            if at < size and self.data[at:end] != part[: end - at]:
                return False
        return min(len(self.data), self.size_before or size) >= size

    def write(self, data: bytes, offset: int) -> None:
        end = offset + len(data)
        self.change(offset, end)
        if end > len(self.data):
            self._resize(end)
        self.data[offset:end] = data

    def truncate(self, size: int) -> None:
        if size < len(self.data):
            self.change(size, len(self.data))
        if size != len(self.data):
            self._resize(size)

    def sync(self) -> None:
        self.before.clear()
        self.size_before = None

    def rot(self, begin: int) -> None:
        """Change some bytes, also in the content that a power cut would leave."""
        for at in range(begin, min(begin + ROTTEN, len(self.data))):
            self.data[at] ^= 0x55
            sector, byte = divmod(at, SECTOR)
            for kept in (self.before, self.lost):
                if sector in kept:
                    part = bytearray(kept[sector])
                    part[byte] ^= 0x55
                    kept[sector] = bytes(part)

    def fail(self, random: Random) -> None:
        """Put the file in the state after a failed sync: what was not written reads as before, or as if it had been
        written.
        """
        if random.random() < 0.5:
            self.lose(random)
            return
        self.lost |= {n: part for n, part in self.before.items() if random.random() < 0.5}
        self.sync()

    def lose(self, random: Random) -> None:
        """Put the file in the state after a power cut."""
        for sector, part in self.lost.items():
            at = sector * SECTOR
            end = min(at + SECTOR, len(self.data))
            self.data[at:end] = part[: max(0, end - at)]
        self.lost.clear()
        if self.size_before is not None and random.random() < 0.5:
            self._resize(self.size_before)
        for sector, part in self.before.items():
            at = sector * SECTOR
            if at < len(self.data) and random.random() < 0.5:
                end = min(at + SECTOR, len(self.data))
                self.data[at:end] = part[: end - at]
        self.sync()

    def _resize(self, size: int) -> None:
        if self.size_before is None:
            self.size_before = len(self.data)
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data += bytes(size - len(self.data))


class Names:
    """The names of all files, and those changes of names that are not synced."""

    def __init__(self) -> None:
        self.now: dict[Path, Inode] = {}
        self._unsynced: list[dict[Path, Inode | None]] = []
        """Changes of names that are not synced. Each of them happens as a whole or not at all."""
        self._synced: dict[Path, Inode] = {}

    def change(self, changes: dict[Path, Inode | None]) -> None:
        _apply(self.now, changes)
        self._unsynced.append(changes)

    def put(self, changes: dict[Path, Inode | None]) -> None:
        """Let another program change names, durably."""
        _apply(self.now, changes)
        _apply(self._synced, changes)

    def sync(self, directory: Path) -> None:
        """Make all changes in a directory durable."""
        left = []
        for changes in self._unsynced:
            if all(path.parent == directory for path in changes):
                _apply(self._synced, changes)
            else:
                left.append(changes)
        self._unsynced = left

    def lose(self, random: Random) -> None:
        """Put all names in the state after a power cut."""
        for changes in self._unsynced:
            if random.random() < 0.5:
                _apply(self._synced, changes)
        self._unsynced = []
        self.now = self._synced.copy()

    def keeps(self, path: Path) -> bool:
        return self._synced.get(path) is self.now.get(path)

    def all(self) -> list[Inode]:
        """Return every file that has a name, or may have one after a power cut."""
        found = [*self.now.values(), *self._synced.values()]
        found += [inode for changes in self._unsynced for inode in changes.values() if inode]
        return list(dict.fromkeys(found))


class Disk:
    """The file system of a machine. `full`, `broken` and `crash_in` define its faults."""

    def __init__(self, random: Random) -> None:
        self.full = False
        """Whether no file can grow."""
        self.broken: str | None = None
        """The kind of call that fails with EIO, once: `write` or `sync`."""
        self.crash_in: int | None = None
        """Number of changes after which the process ends, in the middle of the last one."""
        self._random = random
        self._names = Names()
        self._directories: dict[Path, Inode] = {Path("/"): Inode()}
        self._open: dict[int, tuple[Inode, Path]] = {}
        self._locked: dict[int, Inode] = {}
        self._last = 100
        self._ambushes: list[tuple[int, Callable[[], None]]] = []
        self._calls = 0

    # Faults of the machine

    def empty(self) -> None:
        """End the state in which the disk is full."""
        self.full = False

    def kill(self) -> None:
        """End the process: its files are closed, and everything that it wrote stays."""
        self.crash_in = None
        self._open.clear()
        self._locked.clear()

    def cut_power(self) -> None:
        """End the machine, as a power cut does."""
        self.kill()
        for inode in self._names.all():
            inode.lose(self._random)
        self._names.lose(self._random)

    def keeps(self, path: Path, size: int) -> bool:
        """Return whether the name and this many bytes of a file would remain after a power cut now."""
        inode = self._names.now[path]
        return self._names.keeps(path) and inode.keeps(size)

    def paths(self) -> list[Path]:
        """Return the paths of all files."""
        return list(self._names.now)

    def length(self, path: Path) -> int:
        return len(self._names.now[path].data)

    def rot(self, path: Path, share: float) -> None:
        """Change some bytes of a file, both on the disk and in memory. `share` states where in the file."""
        inode = self._names.now[path]
        inode.rot(int(share * len(inode.data)))

    def clear(self, directory: Path) -> None:
        """Let another program remove all files of a directory for good."""
        self._names.change({path: None for path in self.paths() if path.parent == directory})
        self._names.sync(directory)

    def take_away(self, path: Path, aside: Path | None = None) -> None:
        """Let another program remove a file or a directory with its content, or move it to a name that is free."""

        def moved(each: Path) -> Path | None:
            return None if aside is None else aside / each.relative_to(path)

        names: dict[Path, Inode | None] = {}
        for each, inode in self._names.now.items():
            if each.is_relative_to(path):
                names[each] = None
                if to := moved(each):
                    names[to] = inode
        self._names.put(names)
        for each in [each for each in self._directories if each.is_relative_to(path)]:
            inode = self._directories.pop(each)
            if to := moved(each):
                self._directories[to] = inode

    def copy(self, path: Path, to: Path) -> None:
        """Let another program create an empty directory, or another file with the same bytes."""
        if path in self._directories:
            self._directories[to] = Inode()
        else:
            inode = Inode()
            inode.data += self._names.now[path].data
            self._names.put({to: inode})

    def ambush(self, calls: int, change: Callable[[], None]) -> None:
        """Let something happen directly before the process makes the call with this number from now on."""
        self._ambushes.append((self._calls + calls, change))

    # Calls of the process (see `Files`)

    def open(
        self, path: Path, *, write: bool = False, create: bool = False, truncate: bool = False
    ) -> int:
        del write
        self._called()
        inode = self._names.now.get(path)
        if inode is None:
            if not create or path.parent not in self._directories:
                raise _error(errno.ENOENT)
            self._changes("open")
            inode = Inode()
            self._names.change({path: inode})
        if truncate:
            inode.truncate(0)
        return self._opened(inode, path)

    def open_directory(self, path: Path) -> int:
        self._called()
        if path not in self._directories:
            raise _error(errno.ENOENT)
        return self._opened(self._directories[path], path)

    def close(self, fd: int) -> None:
        if self._open.pop(fd, None) is None:
            raise _error(errno.EBADF)
        self._locked.pop(fd, None)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        return bytes(self._inode(fd).data[offset : offset + size])

    def written(self, fd: int) -> list[tuple[int, int]]:
        return [(0, len(self._inode(fd).data.rstrip(b"\0")))]

    def write(self, fd: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        inode, data = self._inode(fd), b"".join(pieces)
        if self.full:
            data = data[: max(0, len(inode.data) - offset)]
            if not data:
                raise _error(errno.ENOSPC)
        elif len(data) > 1 and self._random.random() < 0.02:
            # The caller writes the remaining bytes with another call.
            data = data[: self._random.randrange(1, len(data))]
        for part in self._changes("write", data):
            inode.write(part, offset)
        return len(data)

    def truncate(self, fd: int, size: int) -> None:
        self._changes("truncate")
        self._inode(fd).truncate(size)

    def allocate(self, fd: int, size: int) -> None:
        inode = self._inode(fd)
        if self.full and size > len(inode.data):
            raise _error(errno.ENOSPC)
        self._changes("allocate")
        inode.truncate(max(size, len(inode.data)))

    def size(self, fd: int) -> int:
        return len(self._inode(fd).data)

    def sync(self, fd: int) -> None:
        inode = self._inode(fd)
        if self.broken == "sync":
            self.broken = None
            inode.fail(self._random)
            raise _error(errno.EIO)
        self._changes("sync")
        inode.sync()
        if (path := self._open[fd][1]) in self._directories:
            self._names.sync(path)

    sync_data = sync

    def lock(self, fd: int) -> None:
        inode = self._inode(fd)
        if inode in self._locked.values():
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self._locked[fd] = inode

    def identity(self, fd: int) -> tuple[int, int]:
        return 0, self._inode(fd).number

    def found(self, path: Path) -> tuple[int, int] | None:
        self._called()
        inode = self._names.now.get(path) or self._directories.get(path)
        return None if inode is None else (0, inode.number)

    def rename(self, old: Path, new: Path) -> None:
        self._called()
        inode = self._names.now.get(old)
        if inode is None:
            raise _error(errno.ENOENT)
        self._changes("rename")
        self._names.change({old: None, new: inode})

    def unlink(self, path: Path) -> None:
        self._called()
        if path not in self._names.now:
            raise _error(errno.ENOENT)
        self._changes("unlink")
        self._names.change({path: None})

    def names(self, directory: Path) -> list[str]:
        self._called()
        if directory not in self._directories:
            raise _error(errno.ENOENT)
        found = [path.name for path in self._names.now if path.parent == directory]
        self._random.shuffle(found)
        return found

    def exists(self, path: Path) -> bool:
        return path in self._names.now or path in self._directories

    def is_file(self, path: Path) -> bool:
        return path in self._names.now

    def make_directory(self, path: Path) -> None:
        for each in (path, *path.parents):
            self._directories.setdefault(each, Inode())

    def make_way(self, path: Path) -> None:
        """Do nothing: in the simulation, only files have the names of files."""

    def largest(self) -> int:
        return 2**62

    def free(self, directory: Path) -> int:
        del directory
        return 0 if self.full else 2**40

    def _opened(self, inode: Inode, path: Path) -> int:
        self._last += 1
        self._open[self._last] = inode, path
        return self._last

    def _called(self) -> None:
        """Let those things happen that wait for this call."""
        self._calls += 1
        due = [each for each in self._ambushes if each[0] <= self._calls]
        self._ambushes = [each for each in self._ambushes if each not in due]
        for _, change in due:
            change()

    def _inode(self, fd: int) -> Inode:
        self._called()
        if fd not in self._open:
            raise _error(errno.EBADF)
        return self._open[fd][0]

    def _changes(self, call: str, data: bytes = b"") -> Iterator[bytes]:
        """Fail or crash, if that is due. Otherwise return the bytes to be written."""
        if self.broken == call:
            self.broken = None
            raise _error(errno.EIO)
        crash = False
        if self.crash_in is not None:
            self.crash_in -= 1
            crash = self.crash_in < 0
        if crash and not data:
            raise Crash
        return self._parts(data, crash=crash)

    def _parts(self, data: bytes, *, crash: bool) -> Iterator[bytes]:
        if crash:
            yield data[: self._random.randrange(len(data))]
            raise Crash
        yield data


def _apply(names: dict[Path, Inode], changes: dict[Path, Inode | None]) -> None:
    for path, inode in changes.items():
        if inode is None:
            names.pop(path, None)
        else:
            names[path] = inode


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
