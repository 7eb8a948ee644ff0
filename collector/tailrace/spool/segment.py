"""Read and write the log's segment files, and find the end of the log after a stop of any kind.

A segment has a header of 64 bytes, then frames. The rest of the preallocated file contains zeros, or frames of an
earlier segment that used the file. Format of the header (all numbers here are little-endian):

    8s magic, 16s identity of the spool, u64 first position, i64 time_ns not after its entries,
    u32 crc32 of these fields, zeros up to 64

Format of a frame, which holds one entry:

    u32 length      number of bytes after the field position: 24 + payload size
    u32 crc32       checksum of position and all later fields, seeded with the spool's salt
    u64 position    offset of this frame in the whole log
    u64 mark        low byte: kind; higher bytes: distance from the synced position to position
    u64 session     number of the session
    i64 time_ns     time of arrival (Unix ns), never decreasing along the log; add the offset of the
                    last CLOCK entry to get wall time
    payload         at most `PAYLOAD_MAX` bytes

Three fields distinguish a valid frame from other bytes that look like a frame. The position is never used twice. The
salt is random for each spool, so a producer cannot forge a frame inside a payload. The mark encodes up to where the log
was synced (`survey`). A bad range below such a position is *damage* of acknowledged entries: it stays in the log, and
reading it raises an error. The log ends at the first bad range above the highest of these positions; the bytes after
the end were never acknowledged and are cleared. Damage in the entries of the last sync counts as a torn end, because no
frame records that sync.

Constraints:

- A file gets a segment's name (its first position in 20 digits) after all earlier segments and its own header are on
  disk. So only the newest segment may have a torn end.
- The first segment is created before the file `identity`. A directory with an `identity` but no segments is never
  treated as a new spool, because positions would be used twice.
- Segments are preallocated. A sync then allocates no new extents (0.7 ms instead of 3.8 ms for 1 MiB), and a nearly
  full disk is detected while the newest segment still has room.

The directory has these files:

    lock                       held by the daemon that has the spool open; contains its pid
    identity                   random id (32 hexadecimal digits), generated for a new spool
    DIGITS.segment             a segment of the log, named by its first position
    next.segment               preallocated and still empty (`Spare`)
    released-DIGITS.segment    a released segment, whose file will be reused"""

from __future__ import annotations

import contextlib
import re
import struct
from pathlib import Path
from typing import Literal, NamedTuple, Self
from uuid import uuid4

from zlib_ng.zlib_ng import crc32

from tailrace import owned
from tailrace.errors import StoreError
from tailrace.spool.disk import Disk, opening, waiting
from tailrace.spool.entry import PAYLOAD_MAX, Entry, EntryKind

MAGIC = b"tailspl1"
"""Magic bytes at the start of a segment. The last character is the version of the format of segments and frames."""
HEADER_SIZE = 64
PREFIX = struct.Struct("<II")
COVERED = struct.Struct("<QQQq")
HEAD = struct.Struct("<IIQQQq")
HEAD_SIZE = HEAD.size
FRAME_MAX = HEAD_SIZE + PAYLOAD_MAX
# Number of bytes at the start of a frame that the frame's length field does not count.
_UNCOUNTED = HEAD_SIZE - 24
_LENGTHS = range(24, 24 + PAYLOAD_MAX + 1)
_KINDS = {int(kind): kind for kind in EntryKind}
WINDOW = 4 * FRAME_MAX
"""Approximate maximum size (bytes) of one read or write of a segment."""
COPIED_MAX = 32 * 2**10
"""Maximum size (bytes) of a payload that is joined with its neighbours into one byte string before the write. One write
takes at most 1,024 byte strings, and copying a large payload costs more than passing one more byte string."""
_NAME = re.compile(r"(\d{20})\.segment")
_RELEASED = re.compile(r"released-\d{20}\.segment")
_HEADER = struct.Struct("<8s16sQq")
_CHECKSUM = struct.Struct("<I")


Fault = Literal["torn", "zeros", "corrupt"]
"""The reason why a scan of frames ended: the next frame is incomplete, was never written, or is damaged."""


class Scan(NamedTuple):
    """The entries at the start of a buffer, and the number of bytes that their frames occupy."""

    entries: list[Entry]
    consumed: int
    fault: Fault | None
    synced: int
    """The position up to which the log was synced when the last of `entries` was written."""


def scan(buffer: bytes, position: int, salt: int = 0) -> Scan:
    """Decode the log entries in `buffer` up to its end or the first bad frame. `position` is the log position of
    `buffer`."""
    entries: list[Entry] = []
    view = memoryview(buffer)
    offset = synced = 0
    while offset + HEAD_SIZE <= len(buffer):
        length, checksum, at, mark, session, time_ns = HEAD.unpack_from(buffer, offset)
        end = offset + _UNCOUNTED + length
        kind = _KINDS.get(mark & 0xFF)
        if at != position + offset or length not in _LENGTHS or end > len(buffer) or kind is None:
            break
        if crc32(view[offset + PREFIX.size : end], salt) != checksum:
            break
        payload = buffer[offset + HEAD_SIZE : end]
        entries.append(Entry(at, position + end, kind, session, time_ns, payload))
        synced = at - (mark >> 8)
        offset = end
    fault = _name_fault(view[offset:], position + offset) if offset < len(buffer) else None
    return Scan(entries, offset, fault, synced)


def _name_fault(rest: bytes | memoryview, position: int) -> Fault:
    head = rest[:HEAD_SIZE]
    if not any(head):
        return "zeros"
    if len(head) < HEAD_SIZE:
        return "torn"
    length, _, at, *_ = HEAD.unpack(head)
    if at == position and length in _LENGTHS and _UNCOUNTED + length > len(rest):
        return "torn"
    return "corrupt"


def find(buffer: bytes, position: int, salt: int = 0) -> int | None:
    """Return the offset of the first whole frame in `buffer`, or None. `position` is the log position of `buffer`."""
    # All positions in an aligned range of 64 KiB share their six high bytes, so search for these bytes.
    field, end = PREFIX.size, position + len(buffer)
    for high in range(position >> 16, (end >> 16) + 1):
        shared = high.to_bytes(6, "little")
        first, last = max(high << 16, position) - position, min(high + 1 << 16, end) - position
        at = first + field + 2
        while (at := buffer.find(shared, at, last + field + 7)) >= 0:
            offset = at - field - 2
            if (
                int.from_bytes(buffer[at - 2 : at], "little") == position + offset & 0xFFFF
                and scan(buffer[offset : offset + FRAME_MAX], position + offset, salt).entries
            ):
                return offset
            at += 1
    return None


class Header(NamedTuple):
    """The header of a segment, with a lower bound `time_ns` (Unix ns) on the times of its entries."""

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
        """Return the header of a segment's file, or None if the header is damaged. Raise StoreError if the format has
        another version, or if the file's name does not match the first position."""
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
    return int(path.name.partition(".")[0])


def segment_name(first: int) -> str:
    return f"{first:020}.segment"


def released_name(first: int) -> str:
    return f"released-{segment_name(first)}"


class Segment:
    """A segment of the log, to be read from any thread.

    Each read opens the file again, so that no reader uses a descriptor that another thread may close."""

    def __init__(self, path: Path, header: Header, *, end: int, size: int, disk: Disk) -> None:
        self.path = path
        self.disk = disk
        self.header = header
        self.first = header.first
        self.end = end
        self.size = size
        self.file = disk.files.found(path)

    def check(self) -> None:
        """Raise LostError if the segment's file was removed, renamed or replaced."""
        if self.file is None or self.disk.files.found(self.path) != self.file:
            raise owned.lost(self.path)

    def offset(self, position: int) -> int:
        return HEADER_SIZE + position - self.first

    def bytes_at(self, position: int, size: int) -> bytes:
        return self.disk.read(self.path, size, self.offset(position))

    def written(self) -> list[tuple[int, int]]:
        before = HEADER_SIZE - self.first
        ranges = [(start - before, end - before) for start, end in self.disk.written(self.path)]
        return [(max(start, self.first), end) for start, end in ranges if end > self.first]

    def scan(self, position: int, size: int, stop: int) -> Scan:
        """Decode the entries in about `size` bytes from the position `position` on, but at least one entry, and none
        beyond the position `stop`."""
        size = min(max(size, HEAD_SIZE), stop - position)
        result = scan(self.bytes_at(position, size), position, self.header.salt)
        if not result.entries and result.fault == "torn" and size < min(FRAME_MAX, stop - position):
            return self.scan(position, 2 * size, stop)
        return result

    def find(self, position: int, stop: int) -> int | None:
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
        """Open or create the spare file with at least `size` bytes, or remove it. Raise FullError if the disk has no
        room."""
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
        """Turn the spare file into the newest segment, with its header and its name on disk."""
        disk, path = self.disk, self.path.with_name(segment_name(header.first))
        with disk.naming(path.parent):
            disk.write_at(self.fd, [header.pack()], 0, self.path)
            disk.sync_file(self.fd, self.path)
            disk.rename(self.path, path)
        return SegmentWriter(
            Segment(path, header, end=header.first, size=self.size, disk=disk), self.fd
        )

    @property
    def is_there(self) -> bool:
        files = self.disk.files
        return files.found(self.path) == files.identity(self.fd)

    def close(self) -> None:
        self.disk.files.close(self.fd)


class SegmentWriter:
    def __init__(self, segment: Segment, fd: int) -> None:
        self.segment = segment
        self._fd = fd
        self._disk = segment.disk
        segment.file = self._disk.files.identity(fd)

    @classmethod
    def resume(cls, segment: Segment, *, synced: int, end: int, leftovers: bool) -> Self:
        """Continue writing a segment at position `end`, with everything before it on disk. If `leftovers` is true,
        clear the bytes after this position.

        Write all entries from position `synced` on again: if the sync of an earlier process failed, the kernel may
        return data that is only in memory, and report success for the next sync."""
        disk = segment.disk
        with opening(segment.path):
            fd = disk.files.open(segment.path, write=True)
        try:
            if leftovers:
                # Clear old frames: one of them would count as an entry if the new entries ended exactly where it
                # begins.
                disk.truncate(fd, segment.offset(end), segment.path)
            for position in range(synced, end, WINDOW):
                offset = segment.offset(position)
                data = disk.files.read(fd, min(WINDOW, end - position), offset)
                disk.write_at(fd, [data], offset, segment.path)
            disk.sync_file(fd, segment.path)
        except BaseException:
            disk.files.close(fd)
            raise
        segment.end = end
        segment.size = disk.files.size(fd)
        return cls(segment, fd)

    def extend(self, size: int) -> None:
        if self.segment.size < size:
            self._disk.preallocate(self._fd, size, self.segment.path)
            self._disk.sync_file(self._fd, self.segment.path)
            self.segment.size = size

    def append(self, entries: list[Entry]) -> None:
        """Write the frames of consecutive entries, and sync the file. Raise LostError if the file was removed."""
        segment, pieces, copied = self.segment, list[bytes](), list[bytes]()
        begin = synced = segment.end
        last, salt = entries[-1].end, segment.header.salt
        for position, end, kind, session, time_ns, payload in entries:
            covered = COVERED.pack(position, kind | (position - synced) << 8, session, time_ns)
            checksum = crc32(payload, crc32(covered, salt))
            copied += (PREFIX.pack(24 + len(payload), checksum), covered)
            if len(payload) <= COPIED_MAX:
                copied.append(payload)
            else:
                pieces += (b"".join(copied), payload)
                copied = []
            if end == last or end - begin >= WINDOW:
                pieces.append(b"".join(copied))
                self._disk.write_at(self._fd, pieces, segment.offset(begin), segment.path)
                pieces, copied, begin = [], [], end
        self._disk.sync_data(self._fd, segment.path)
        segment.check()
        segment.end = last
        segment.size = max(segment.size, segment.offset(segment.end))

    def seal(self) -> None:
        """Truncate the segment's file after the last entry, and close it. The next segment must already exist."""
        self._truncate()
        self.close()

    def cut(self) -> None:
        self._truncate()
        self._disk.sync_file(self._fd, self.segment.path)

    def _truncate(self) -> None:
        segment = self.segment
        self._disk.truncate(self._fd, segment.offset(segment.end), segment.path)
        segment.size = segment.offset(segment.end)

    def close(self) -> None:
        self._disk.files.close(self._fd)


_IDENTITY = re.compile(r"[0-9a-f]{32}")


def load(directory: Path, segment_size: int, disk: Disk) -> list[Segment]:
    """Return the segments of the spool in `directory`, oldest first. An empty directory becomes a spool.

    Repair a damaged header or `identity` from an undamaged copy, and rename a segment that cannot be opened. The `end`
    of the newest segment is not known yet, so it is the segment's first position. Raise StoreError if the beginning or
    the end of the log is lost, or if the directory contains files of another spool."""
    released = [path for path in disk.paths(directory) if _RELEASED.fullmatch(path.name)]
    for path in [directory / SPARE_NAME, *released]:
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
    identity = marked or headers[0].identity
    for header in headers:
        if header.identity != identity:
            raise StoreError(
                f"{directory / segment_name(header.first)}: belongs to the spool {header.identity.hex()},"
                f" and {mark} says {identity.hex()}: put the file of this spool back, or"
                " move the foreign one away; where only `identity` is wrong, remove that"
            )
    if marked is None:
        disk.make_way(mark)
        disk.replace(mark, identity.hex().encode())
    ends = [header.first for header in headers[1:]] + [headers[-1].first]
    return [
        Segment(path, header, end=end, size=max(disk.size(path), HEADER_SIZE), disk=disk)
        for path, header, end in zip(paths, headers, ends, strict=True)
    ]


def _read_identity(mark: Path, disk: Disk) -> bytes | None:
    try:
        with waiting(mark):
            text = disk.read(mark, 64).decode("ascii", errors="replace").strip()
    except OSError:
        return None
    return bytes.fromhex(text) if _IDENTITY.fullmatch(text) else None


def _readable(directory: Path, disk: Disk) -> list[Path]:
    """Return the paths of the segments that are files, and rename those that are not. Raise StoreError if the newest
    segment is not a file."""
    paths = [path for path in disk.paths(directory) if _NAME.fullmatch(path.name)]
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
    """Return the headers of all segments. Rebuild a damaged header from the spool's id and the segment's name. Raise
    StoreError if the spool's id is neither in `marked` nor in an undamaged header."""
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


ZEROS = bytes(256 * 1024)
"""Zeros with which a segment is compared, in a tenth of the time of a search for a nonzero byte."""


class DamagedRange(NamedTuple):
    """A range of log positions whose entries were acknowledged but cannot be read any more."""

    position: int
    end: int


class SpoolRecovery(NamedTuple):
    """The state of the newest segment of the log at a start of the daemon."""

    entries: int
    synced: int
    """The position up to which the log was synced when the last readable entry was written."""
    end: int
    time_ns: int
    leftovers: bool
    """Whether nonzero bytes after the log's end must be cleared."""
    damage: list[DamagedRange]
    """The ranges before the log's end that cannot be read."""


class _Run(NamedTuple):
    position: int
    end: int
    entries: int
    time_ns: int
    synced: int


def survey(segment: Segment) -> SpoolRecovery:
    """Read the newest segment, and find where the log ends. Do not change the file."""
    data_end = _data_end(segment)
    # Zero bytes after `data_end` may belong to the last frame. They are fewer than `FRAME_MAX`.
    stop = min(data_end + FRAME_MAX, segment.first + segment.size - HEADER_SIZE)
    runs = [_run(segment, segment.first, stop)]
    faults: list[DamagedRange] = []
    while runs[-1].end < data_end:
        bad = runs[-1].end
        resumed = segment.find(bad + 1, stop)
        faults.append(DamagedRange(bad, resumed or data_end))
        if resumed is None:
            break
        runs.append(_run(segment, resumed, stop))
    synced = max(run.synced for run in runs)
    ending = next((bad for bad in faults if bad.end > synced), None)
    end = max(ending.position, synced) if ending else runs[-1].end
    kept = [run for run in runs if run.entries and run.position < end]
    return SpoolRecovery(
        entries=sum(run.entries for run in kept),
        synced=min(synced, end),
        end=end,
        time_ns=kept[-1].time_ns if kept else segment.header.time_ns,
        leftovers=data_end > end,
        damage=[bad._replace(end=min(bad.end, end)) for bad in faults if bad.position < end],
    )


def _run(segment: Segment, position: int, stop: int) -> _Run:
    start, count, time_ns, synced = position, 0, 0, segment.first
    while (found := segment.scan(position, WINDOW, stop)).entries:
        position += found.consumed
        count += len(found.entries)
        time_ns = found.entries[-1].time_ns
        synced = max(synced, found.synced)
    return _Run(start, position, count, time_ns, synced)


def _data_end(segment: Segment) -> int:
    """Return the position after the last nonzero byte of a segment, or its first position if all bytes are zero."""
    for begin, end in reversed(segment.written()):
        for start in reversed(range(begin, end, len(ZEROS))):
            data = segment.bytes_at(start, min(len(ZEROS), end - start))
            if data != ZEROS[: len(data)]:
                return start + len(data.rstrip(b"\0"))
    return segment.first
