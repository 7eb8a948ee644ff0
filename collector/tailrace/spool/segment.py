"""One file of the spool: a header of 64 bytes, then frames, then zeros, or frames of an earlier segment that
had the file, up to its preallocated size.

    8s magic, 16s identity of the spool, u64 first position, i64 time_ns not after its entries,
    u32 crc32 of these, zeros up to 64                                     (all little-endian)

A segment gets its name, its first position in 20 digits, once all segments before it and its own
header are on disk (see `log`). Hence in any segment but the newest everything was acknowledged,
the segment ends where the next one begins, and a bad frame is damage.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from tailrace.errors import StoreError
from tailrace.spool.disk import Disk
from tailrace.spool.entry import FRAME_MAX, HEAD_SIZE, Scan, find, scan

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
