"""Write segments: the newest one, and the preallocated file that becomes the next.

Segments are preallocated because a sync then writes no new extents (0.7 ms instead of 3.8 ms for 1 MiB),
and because a nearly full disk is noticed while the newest segment still has room. The file of a released
segment becomes the next one where there is such a file: its pages are in memory, and to write over them
costs less than to write new ones (docs/decisions/speed.md, D93). Its old frames stay behind the new ones.

One thread at a time may call this module. A call that raised FullError may be repeated: it writes the
same bytes to the same places.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from tailrace import owned
from tailrace.spool.disk import Disk, writing
from tailrace.spool.entry import Entry, encode
from tailrace.spool.recovery import SpoolRecovery
from tailrace.spool.segment import WINDOW, Header, Segment, segment_name

SPARE_NAME = "next.segment"


class Spare(NamedTuple):
    """A preallocated file that will become the next segment."""

    path: Path
    fd: int
    size: int
    disk: Disk

    @classmethod
    def prepare(cls, path: Path, size: int, disk: Disk) -> Self:
        """Preallocate a file up to `size`. It keeps what it has, and is larger if it was.

        Raise FullError, leaving nothing behind, when the disk has no room for it.
        """
        fd = disk.create(path, empty=False)
        try:
            disk.preallocate(fd, size, path)
            size = disk.files.size(fd)
        except BaseException:
            disk.files.close(fd)
            with contextlib.suppress(OSError):
                disk.files.unlink(path)
            raise
        return cls(path, fd, size, disk)

    def become(self, header: Header) -> SegmentWriter:
        """Write the header, then give the file its name; both are on disk when this returns."""
        disk, path = self.disk, self.path.with_name(segment_name(header.first))
        disk.write_at(self.fd, header.pack(), 0, self.path)
        disk.sync_file(self.fd, self.path)
        disk.rename(self.path, path)
        disk.sync_directory(path.parent)
        return SegmentWriter(
            Segment(path, header, end=header.first, size=self.size, disk=disk), self.fd
        )

    @property
    def is_there(self) -> bool:
        """Whether the file still has its name."""
        files = self.disk.files
        return files.found(self.path) == files.identity(self.fd)

    def close(self) -> None:
        self.disk.files.close(self.fd)


class SegmentWriter:
    """The newest segment, the only one that is written to."""

    def __init__(self, segment: Segment, fd: int) -> None:
        self.segment = segment
        self._fd = fd
        self._disk = segment.disk
        self._identity = self._disk.files.identity(fd)

    @classmethod
    def resume(cls, segment: Segment, found: SpoolRecovery) -> Self:
        """Continue writing where the log ends; what lies behind reads as zeros from now on.

        Everything before the end is on disk when this returns. The earlier process may have been killed
        between a write and its sync, or its sync may have failed: then the kernel may return data that it did
        not write, and report the next sync as a success. So what no frame says was synced is written again.
        """
        disk = segment.disk
        with writing(segment.path):
            fd = disk.files.open(segment.path, write=True)
        try:
            if found.leftovers:
                disk.truncate(fd, segment.offset(found.end), segment.path)
            _write_again(fd, segment, found.synced, found.end)
            disk.sync_file(fd, segment.path)
        except BaseException:
            disk.files.close(fd)
            raise
        segment.end = found.end
        segment.size = disk.files.size(fd)
        return cls(segment, fd)

    def extend(self, size: int) -> None:
        """Preallocate up to `size` again, if the file was cut or never preallocated."""
        if self.segment.size < size:
            self._disk.preallocate(self._fd, size, self.segment.path)
            self._disk.sync_file(self._fd, self.segment.path)
            self.segment.size = size

    def check(self) -> None:
        """Raise LostError unless the segment's name leads to the file that is written."""
        if self._disk.files.found(self.segment.path) != self._identity:
            raise owned.lost(self.segment.path)

    def write(self, entries: list[Entry]) -> None:
        """Write entries that follow what is on disk."""
        segment = self.segment
        for run in _runs(entries):
            frames = encode(run, segment.end, segment.header.salt)
            self._disk.write_at(self._fd, frames, segment.offset(run[0].position), segment.path)

    def sync(self, end: int) -> None:
        """Return once everything written, up to the position `end`, is on disk. Raise LostError if no name leads there."""
        segment = self.segment
        self._disk.sync_data(self._fd, segment.path)
        self.check()
        segment.end = end
        segment.size = max(segment.size, segment.offset(end))

    def seal(self) -> None:
        """Close the segment and give back the room behind its last entry; the next one must be in place."""
        self._truncate()
        self.close()

    def cut(self) -> None:
        """Give back the room behind the last entry, durably."""
        self._truncate()
        self._disk.sync_file(self._fd, self.segment.path)

    def _truncate(self) -> None:
        segment = self.segment
        self._disk.truncate(self._fd, segment.offset(segment.end), segment.path)
        segment.size = segment.offset(segment.end)

    def close(self) -> None:
        self._disk.files.close(self._fd)


def _write_again(fd: int, segment: Segment, begin: int, end: int) -> None:
    """Write a part of the log again at the place where it is."""
    for position in range(begin, end, WINDOW):
        size, offset = min(WINDOW, end - position), segment.offset(position)
        data = segment.disk.files.read(fd, size, offset)
        segment.disk.write_at(fd, data, offset, segment.path)


def _runs(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Cut entries into runs of about WINDOW bytes."""
    start = 0
    for index, entry in enumerate(entries, 1):
        if index == len(entries) or entry.end - entries[start].position >= WINDOW:
            yield entries[start:index]
            start = index
