"""The files of the log: segments, each a header of 64 bytes, then frames (see `entry`), then zeros, or frames of an
earlier segment that had the file, up to the preallocated size.

    8s magic, 16s identity of the spool, u64 first position, i64 time_ns not after its entries,
    u32 crc32 of these, zeros up to 64                                     (all little-endian)

Constraints:

- A segment gets its name, its first position in 20 digits, once all segments before it and its own header are
  on disk. So in any segment but the newest everything was acknowledged, the segment ends where the next
  one begins, and a bad frame is damage.
- The first segment is made before the file `identity`, and each segment repeats the identity in its header. So no crash
  leaves an `identity` without a segment, and a directory whose segments were removed is never taken for a
  new one: its positions would be used again.
- Segments are preallocated. A sync then writes no new extents (0.7 ms instead of 3.8 ms for 1 MiB), and a
  nearly full disk is noticed while the newest segment still has room.

The directory has these files:

    lock                       held by the daemon that has the spool open; contains its pid
    identity                   32 hexadecimal digits, drawn when the spool was made
    DIGITS.segment             the log
    next.segment               preallocated and still empty (`Spare`)
    released-DIGITS.segment    a released segment, whose file will be the next one

`load` reads a directory at a start. `Segment` reads, from any thread. `SegmentWriter` writes the newest segment: one
thread at a time may call it. A call that raised FullError may be repeated: it writes the same bytes to the same places.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self
from uuid import uuid4

from zlib_ng.zlib_ng import crc32

from tailrace import owned
from tailrace.errors import StoreError
from tailrace.spool.disk import Disk, opening, waiting
from tailrace.spool.entry import FRAME_MAX, HEAD_SIZE, Entry, Scan, encode, find, scan

MAGIC = b"tailspl1"
"""The last character is the version of the format, which includes that of `entry`."""
HEADER_SIZE = 64
WINDOW = 4 * FRAME_MAX
"""The size of one read or write, about, so that memory stays bounded."""
_NAME = re.compile(r"(\d{20})\.segment")
_RELEASED = re.compile(r"released-\d{20}\.segment")
_HEADER = struct.Struct("<8s16sQq")
_CHECKSUM = struct.Struct("<I")


class Header(NamedTuple):
    """A segment's header: the spool's identity, the first position, and a time before its entries."""

    identity: bytes
    first: int
    time_ns: int

    @property
    def salt(self) -> int:
        return crc32(self.identity)

    def pack(self) -> bytes:
        fields = _HEADER.pack(MAGIC, *self)
        return (fields + _CHECKSUM.pack(crc32(fields))).ljust(HEADER_SIZE, b"\0")

    @classmethod
    def read_whole(cls, path: Path, disk: Disk) -> Header | None:
        """Return the header of a segment; None when it is damaged.

        Raise StoreError for another version of the format, and for a segment under a wrong name."""
        data = disk.read(path, HEADER_SIZE)
        if data.startswith(MAGIC[:-1]) and not data.startswith(MAGIC):
            raise StoreError(
                f"{path}: format {data[: len(MAGIC)]!r} is not {MAGIC!r}, the only one this version reads:"
                " use the Tailrace that wrote it, or restore the file from a copy"
            )
        if len(data) < HEADER_SIZE or _CHECKSUM.unpack_from(data, _HEADER.size)[0] != crc32(
            data[: _HEADER.size]
        ):
            return None
        _, identity, first, time_ns = _HEADER.unpack_from(data)
        if path.name != segment_name(first):
            raise StoreError(f"{path}: was written as {segment_name(first)}: rename it back")
        return cls(identity, first, time_ns)


def segment_first(path: Path) -> int:
    """Return the first position of a segment, by its name."""
    return int(path.name.partition(".")[0])


def segment_name(first: int) -> str:
    return f"{first:020}.segment"


def released_name(first: int) -> str:
    """Return the name of a file that was the segment from `first` on, and that the log no longer needs."""
    return f"released-{segment_name(first)}"


def released_paths(directory: Path, disk: Disk) -> list[Path]:
    """Return the files of released segments in a directory."""
    return [path for path in disk.paths(directory) if _RELEASED.fullmatch(path.name)]


def segment_paths(directory: Path, disk: Disk) -> list[Path]:
    """Return the segments in a directory, oldest first."""
    return [path for path in disk.paths(directory) if _NAME.fullmatch(path.name)]


class Segment:
    """A segment as readers see it, from any thread.

    Each read opens the file anew, so that no reader depends on a descriptor that another thread may close.
    """

    def __init__(self, path: Path, header: Header, *, end: int, size: int, disk: Disk) -> None:
        self.path = path
        self.disk = disk
        self.header = header
        self.first = header.first
        self.end = end
        """The position up to which its entries are on disk."""
        self.size = size
        """Bytes that the file takes on disk."""
        self.file = disk.files.found(path)
        """The file that its name has to lead to."""

    def check(self) -> None:
        """Raise LostError unless the name leads to the segment's file."""
        if self.file is None or self.disk.files.found(self.path) != self.file:
            raise owned.lost(self.path)

    def offset(self, position: int) -> int:
        """Return the offset of a position in the file."""
        return HEADER_SIZE + position - self.first

    def bytes_at(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes of the file from a position on, fewer where it ends."""
        return self.disk.read(self.path, size, self.offset(position))

    def written(self) -> list[tuple[int, int]]:
        """Return the ranges of positions, in order, outside of which every byte is zero."""
        before = HEADER_SIZE - self.first
        ranges = [(start - before, end - before) for start, end in self.disk.written(self.path)]
        return [(max(start, self.first), end) for start, end in ranges if end > self.first]

    def scan(self, position: int, size: int, stop: int) -> Scan:
        """Scan entries between `position` and `stop` in about `size` bytes, in more if the first entry is longer."""
        size = min(max(size, HEAD_SIZE), stop - position)
        result = scan(self.bytes_at(position, size), position, self.header.salt)
        if not result.entries and result.fault == "torn" and size < min(FRAME_MAX, stop - position):
            return self.scan(position, 2 * size, stop)
        return result

    def find(self, position: int, stop: int) -> int | None:
        """Return the position of the first whole entry in `position`..`stop`, or None."""
        while position < stop:
            window = self.bytes_at(position, min(WINDOW, stop - position))
            offset = find(window, position, self.header.salt)
            if offset is not None:
                return position + offset
            position += WINDOW - FRAME_MAX
        return None


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
        fd = None
        try:
            fd = disk.create(path, empty=False)
            disk.preallocate(fd, size, path)
            size = disk.files.size(fd)
        except BaseException:
            if fd is not None:
                disk.files.close(fd)
            with contextlib.suppress(OSError):
                disk.files.unlink(path)
            raise
        return cls(path, fd, size, disk)

    def become(self, header: Header) -> SegmentWriter:
        """Write the header, then give the file its name; both are on disk when this returns."""
        disk, path = self.disk, self.path.with_name(segment_name(header.first))
        with disk.naming(path.parent):
            disk.write_at(self.fd, header.pack(), 0, self.path)
            disk.sync_file(self.fd, self.path)
            disk.rename(self.path, path)
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
        segment.file = self._disk.files.identity(fd)

    @classmethod
    def resume(cls, segment: Segment, *, synced: int, end: int, leftovers: bool) -> Self:
        """Continue writing at `end`; the `leftovers` behind it read as zeros from now on.

        Everything before the end is on disk when this returns. The earlier process may have been killed
        between a write and its sync, or its sync may have failed: then the kernel may return data that it did
        not write, and report the next sync as a success. So what no frame says was synced is written again.
        """
        disk = segment.disk
        with opening(segment.path):
            fd = disk.files.open(segment.path, write=True)
        try:
            if leftovers:
                disk.truncate(fd, segment.offset(end), segment.path)
            _write_again(fd, segment, synced, end)
            disk.sync_file(fd, segment.path)
        except BaseException:
            disk.files.close(fd)
            raise
        segment.end = end
        segment.size = disk.files.size(fd)
        return cls(segment, fd)

    def extend(self, size: int) -> None:
        """Preallocate up to `size` again, if the file was cut or never preallocated."""
        if self.segment.size < size:
            self._disk.preallocate(self._fd, size, self.segment.path)
            self._disk.sync_file(self._fd, self.segment.path)
            self.segment.size = size

    def append(self, entries: list[Entry]) -> None:
        """Return once entries that follow what is on disk are there, too. Raise LostError if no name leads there."""
        segment = self.segment
        for run in _runs(entries):
            frames = encode(run, segment.end, segment.header.salt)
            self._disk.write_at(self._fd, frames, segment.offset(run[0].position), segment.path)
        self._disk.sync_data(self._fd, segment.path)
        segment.check()
        segment.end = entries[-1].end
        segment.size = max(segment.size, segment.offset(segment.end))

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


_IDENTITY = re.compile(r"[0-9a-f]{32}")


def load(directory: Path, segment_size: int, disk: Disk) -> list[Segment]:
    """Return the segments, oldest first. The newest ends where it begins until `survey` has read it.

    An empty directory becomes a spool. `identity` and the segments' headers repeat each other, so damage to
    one of them is repaired. A segment that cannot be opened is renamed to `<digits>.segment.bad`, and its
    positions count as damage. Raise StoreError if the beginning or the end of the log is lost, or if files
    of another spool are in the directory.
    """
    for path in [directory / SPARE_NAME, *released_paths(directory, disk)]:
        disk.make_way(path)
        disk.unlink(path)
    mark = directory / "identity"
    marked = _read_identity(mark, disk)
    paths = _readable(directory, disk)
    headers = _headers(paths, marked, disk)
    if not headers:
        if disk.files.exists(mark):
            raise StoreError(
                f"{directory}: all segments of this spool are gone, and with them what had not reached the"
                " table; move the directory away to begin a new spool"
            )
        header = Header(uuid4().bytes, first=0, time_ns=0)
        writer = Spare.prepare(directory / SPARE_NAME, segment_size, disk).become(header)
        writer.close()
        headers, paths = [header], [writer.segment.path]
    _check(directory, marked or headers[0].identity, headers)
    if marked is None:
        disk.make_way(mark)
        disk.replace(mark, headers[0].identity.hex().encode())
    ends = [header.first for header in headers[1:]] + [headers[-1].first]
    return [
        Segment(path, header, end=end, size=max(disk.size(path), HEADER_SIZE), disk=disk)
        for path, header, end in zip(paths, headers, ends, strict=True)
    ]


def _read_identity(mark: Path, disk: Disk) -> bytes | None:
    """Return the content of `identity`; None where the file is missing or not whole."""
    try:
        with waiting(mark):
            text = disk.read(mark, 64).decode("ascii", errors="replace").strip()
    except OSError:
        return None
    return bytes.fromhex(text) if _IDENTITY.fullmatch(text) else None


def _readable(directory: Path, disk: Disk) -> list[Path]:
    """Return the segments that can be opened, and move the others away. Raise StoreError for the newest one."""
    paths = segment_paths(directory, disk)
    for path in paths:
        if disk.files.is_file(path):
            continue
        if path == paths[-1]:
            raise StoreError(
                f"{path}: is not a file any more, so the end of the log is unknown: restore it from a copy, or move"
                f" {directory} away to begin a new spool; what had not reached the table is lost then"
            )
        disk.make_way(path)
    return [path for path in paths if disk.files.exists(path)]


def _headers(paths: list[Path], marked: bytes | None, disk: Disk) -> list[Header]:
    """Read the segments' headers. A damaged header is rebuilt from the identity and the segment's name."""
    read = [Header.read_whole(path, disk) for path in paths]
    known = marked or next((header.identity for header in read if header), None)
    if paths and known is None:
        raise StoreError(
            f"{paths[0].parent}: neither `identity` nor a segment says which spool this is: restore the"
            " directory from a copy, or move it away to begin a new spool"
        )
    return [
        header or Header(known or b"", first=segment_first(path), time_ns=0)
        for path, header in zip(paths, read, strict=True)
    ]


def _check(directory: Path, identity: bytes, headers: list[Header]) -> None:
    for header in headers:
        if header.identity != identity:
            raise StoreError(
                f"{directory / segment_name(header.first)}: belongs to the spool {header.identity.hex()},"
                f" and {directory / 'identity'} says {identity.hex()}: put the file of this spool back, or"
                " move the foreign one away; where only `identity` is wrong, remove that"
            )
