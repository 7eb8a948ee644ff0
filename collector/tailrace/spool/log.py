"""The log on disk: a chain of segments in one directory. Nothing is buffered here.

Each segment ends where the next one begins. One thread at a time may change the log (`write`,
`prepare`, `seal`, `release`, `close`). Any thread may read, because the list of segments is replaced and
never changed.

Invariant: when a segment has its name, all segments before it are on disk. `recovery` relies on it.

The directory has these files:

    lock               held by the daemon that has the spool open; contains its pid
    identity           32 hexadecimal digits, drawn when the spool was made
    DIGITS.segment     the log; see `segment`
    next.segment       preallocated and still empty
    released-DIGITS.segment    a released segment, whose file will be the next one

The first segment is made before `identity`, and each segment repeats the identity in its header. So
no crash leaves an `identity` without a segment, and a directory whose segments were removed is never
taken for a new one: its positions would be used again.

Segments are preallocated because a sync then writes no new extents (0.7 ms instead of 3.8 ms for 1 MiB),
and because a nearly full disk is noticed while the newest segment still has room. The file of a released
segment becomes the next one where there is such a file: its pages are in memory, and to write over them
costs less than to write new ones (docs/decisions/speed.md, D93). Its old frames stay behind the new ones.

One thread at a time may call this module. A call that raised FullError may be repeated: it writes the
same bytes to the same places.
"""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, Self
from uuid import uuid4

from tailrace import owned
from tailrace.errors import FullError, LostError, StoreError, SyncError
from tailrace.spool.disk import Disk, LockedDirectory, opening, waiting
from tailrace.spool.entry import Entry, encode
from tailrace.spool.recovery import SpoolRecovery, survey
from tailrace.spool.segment import (
    HEADER_SIZE,
    WINDOW,
    Header,
    Segment,
    released_name,
    released_paths,
    segment_first,
    segment_name,
    segment_paths,
)

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
        self._identity = self._disk.files.identity(fd)

    @classmethod
    def resume(cls, segment: Segment, found: SpoolRecovery) -> Self:
        """Continue writing where the log ends; what lies behind reads as zeros from now on.

        Everything before the end is on disk when this returns. The earlier process may have been killed
        between a write and its sync, or its sync may have failed: then the kernel may return data that it did
        not write, and report the next sync as a success. So what no frame says was synced is written again.
        """
        disk = segment.disk
        with opening(segment.path):
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


ROOM_MIN = 4 * 2**20
"""Room that the first segment begins with. It doubles when half of it is used, up to a whole segment: a log of a few entries
takes little disk, and a long one is preallocated as far ahead as ever."""

RELEASED_MIN, RELEASED_MAX = 4, 16
"""Bounds of how many files of released segments the log keeps, to write the next segments over them. Within these, it
keeps as many as the last release freed: one to four under load, more where sessions hold much state."""


class Log:
    """The entries from `begin` up to `durable`, in the segments of one directory."""

    def __init__(
        self,
        directory: Path,
        segment_size: int,
        *,
        segments: list[Segment],
        recovery: SpoolRecovery,
        writer: SegmentWriter,
        locked: LockedDirectory,
        disk: Disk,
    ) -> None:
        self.directory = directory
        self.identity = segments[0].header.identity
        self.recovery = recovery
        self.durable = recovery.end
        """The position below which everything is on disk."""
        self.shortage: str | None = None
        """Why there is no room for the next segment, or for the entries of the last `write`; else None."""
        self.segment_size = segment_size
        self._segments = segments
        self._writer = writer
        self._spare: Spare | None = None
        self._released: list[Segment] = []
        self._locked = locked
        self._disk = disk

    @classmethod
    def open(cls, directory: Path, segment_size: int, disk: Disk) -> Self:
        """Lock the directory, cut off the torn tail and continue behind what is left.

        Raise LockedError, StoreError when the log cannot be used, FullError when it cannot be made or no descriptor is free.
        """
        with contextlib.ExitStack() as undo:
            locked = disk.lock(directory)
            undo.callback(locked.close)
            try:
                with waiting(directory):
                    segments = load(directory, min(ROOM_MIN, segment_size), disk)
                    recovery = survey(segments[-1])
            except OSError as error:
                raise StoreError(f"{directory}: cannot be read: {error}") from error
            writer = SegmentWriter.resume(segments[-1], recovery)
            undo.callback(writer.close)
            with disk.naming(directory):
                pass  # an earlier process may have been killed before it synced its names
            log = cls(
                directory,
                segment_size,
                segments=segments,
                recovery=recovery,
                writer=writer,
                locked=locked,
                disk=disk,
            )
            log.prepare()
            undo.pop_all()
        return log

    def close(self, *, failed: bool = False) -> None:
        """Close the files. Unless the disk `failed`, give back the room that was preallocated."""
        if not failed:
            # If a name is lost, it may lead to files of others. After another error, the next close gives back the room.
            with contextlib.suppress(LostError, FullError, SyncError, StoreError):
                self.check()
                self._give_back()
        self._writer.close()
        if self._spare is not None:
            self._spare.close()
        self._locked.close()

    def check(self) -> None:
        """Raise LostError unless the names of the directory and of all segments lead to what this log holds.

        Any thread may call this."""
        self._locked.check()
        self._writer.check()
        for segment in self._segments[:-1]:
            gone = self._disk.files.found(segment.path) is None
            if gone and segment in self._segments:  # it was not released meanwhile
                raise owned.lost(segment.path)

    def _give_back(self) -> None:
        """Remove all but the log's entries. If a power cut brings files back, the close after the next start removes
        them."""
        self._writer.cut()
        with self._disk.naming(self.directory):
            if self._spare is not None:
                self._disk.unlink(self._spare.path)
            for segment in self._released:
                self._disk.unlink(self._released_path(segment))

    @property
    def begin(self) -> int:
        """The position of the oldest entry."""
        return self._segments[0].first

    @property
    def size(self) -> int:
        """Bytes on disk, preallocated ones included."""
        spare = self._spare
        used = sum(segment.size for segment in self._segments) + (spare.size if spare else 0)
        return used + self.reusable

    @property
    def reusable(self) -> int:
        """Bytes on disk of files that become the next segments."""
        return sum(segment.size for segment in self._released)

    def free(self) -> int:
        """Return how many bytes this user may still write. Raise OSError."""
        return self._disk.files.free(self.directory)

    @property
    def releasable(self) -> bool:
        """Whether there is a segment that `release` could delete, given the right position."""
        return len(self._segments) > 1

    def write(self, entries: list[Entry]) -> None:
        """Make durable the entries that follow `durable`.

        After a FullError the entries below `durable` are on disk; call again with the rest, or with more. Raise LostError
        if the directory or a segment was removed, renamed or replaced: no later start would find the entries.
        """
        done = 0
        try:
            while done < len(entries):
                fitting = self._fitting(entries, done)
                if fitting == done:
                    self._rotate(entries[done].time_ns)
                    continue
                self._writer.write(entries[done:fitting])
                self._writer.sync(entries[fitting - 1].end)
                self.durable = entries[fitting - 1].end
                done = fitting
        except FullError as error:
            self.shortage = str(error)
            raise

    def prepare(self) -> None:
        """Preallocate room for the next entries, or set `shortage` to the reason why that failed."""
        shortage = None
        try:
            self._writer.extend(self._wanted())
            self._forget_lost_spare()
            if self._spare is None and self._writer.segment.size >= self.segment_size:
                self._spare = self._next(self.segment_size)
        except FullError as error:
            shortage = str(error)
        self.shortage = shortage

    def seal(self, time_ns: int) -> None:
        """Let the next entry begin a segment, so that all before it can be released. Raise FullError."""
        newest = self._writer.segment
        if newest.end > newest.first:
            self._rotate(time_ns)

    def release(self, position: int) -> None:
        """Remove the segments that lie wholly below `position` from the log.

        Keep as many of their files as this release frees: the log grows by about as much until the next release."""
        below = sum(segment.end <= position for segment in self._segments[:-1])
        kept = min(max(below, RELEASED_MIN), RELEASED_MAX)
        while len(self._released) > kept:
            self._disk.unlink(self._released_path(self._released.pop(0)))
        while self.releasable and self._segments[0].end <= position:
            # One by one, so that the segments that a crash leaves behind have no hole between them.
            with self._disk.naming(self.directory):
                released, *self._segments = self._segments
                there = self._disk.files.exists(released.path)
                if there and len(self._released) < kept and released.size <= self.segment_size:
                    self._disk.rename(released.path, self._released_path(released))
                    self._released.append(released)
                else:
                    self._disk.unlink(released.path)

    def read(self, position: int, limit: int) -> list[Entry]:
        """Return entries of one segment: none at `durable`, else at least one and about `limit` bytes.

        Raise FullError when no descriptor is free: the entries are there."""
        segment = self._segment_at(position)
        # Another thread may be between the sync of more entries and the rise of `durable`.
        end = min(segment.end, self.durable)
        if position == end:
            return []
        try:
            with waiting(segment.path):
                found = segment.scan(position, limit, end)
        except OSError as error:
            self._segment_at(position)  # raises ValueError if it was released in the meantime
            raise StoreError(self._damage(segment, position, str(error))) from error
        if not found.entries:
            self._segment_at(position)  # its file may be the next segment's by now
            raise StoreError(
                self._damage(segment, position, f"the entry is {found.fault or 'missing'}")
            )
        return found.entries

    def next_readable(self, position: int) -> int:
        """Return the first position behind `position` at which an entry begins or the log ends.

        If the disk cannot read the segment at all, that is the segment's end. Raise FullError when no descriptor is free.
        """
        segment = self._segment_at(position)
        with contextlib.suppress(OSError), waiting(segment.path):
            found = segment.find(position + 1, segment.end)
            if found is not None:
                return found
        return segment.end

    def _fitting(self, entries: list[Entry], start: int) -> int:
        """Return the index behind the last entry that fits into the newest segment."""
        newest = self._writer.segment
        stop = newest.first + self.segment_size - HEADER_SIZE
        fitting = max(start, bisect_right(entries, stop, key=attrgetter("end")))
        # An empty segment takes an entry of any size.
        return start + 1 if fitting == start and newest.end == newest.first else fitting

    def _forget_lost_spare(self) -> None:
        """Let another spare be made if somebody removed or replaced it: it holds nothing."""
        if self._spare is not None and not self._spare.is_there:
            self._spare.close()
            self._spare = None

    def _rotate(self, time_ns: int) -> None:
        self._writer.check()  # nobody looks later whose bytes a closed segment has
        self._forget_lost_spare()
        self._spare = self._spare or self._next(min(ROOM_MIN, self.segment_size))
        writer = self._spare.become(Header(self.identity, self.durable, time_ns))
        sealed, self._writer, self._spare = self._writer, writer, None
        self._segments = [*self._segments, writer.segment]
        sealed.seal()

    def _wanted(self) -> int:
        """Return how much room the newest segment should have."""
        newest, room = self._writer.segment, ROOM_MIN
        while room < min(2 * newest.offset(newest.end), self.segment_size):
            room *= 2
        return min(room, self.segment_size)

    def _next(self, size: int) -> Spare:
        """Preallocate the next segment's file. Raise FullError."""
        spare = self.directory / SPARE_NAME
        path = self._released_path(self._released.pop()) if self._released else spare
        return Spare.prepare(path, size, self._disk)

    def _released_path(self, segment: Segment) -> Path:
        return self.directory / released_name(segment.first)

    def _segment_at(self, position: int) -> Segment:
        segments = self._segments
        if not segments[0].first <= position <= self.durable:
            raise ValueError(f"position {position} is not in {segments[0].first}..{self.durable}")
        return segments[bisect_right(segments, position, key=attrgetter("first")) - 1]

    def _damage(self, segment: Segment, position: int, what: str) -> str:
        return (
            f"{segment.path}, byte {segment.offset(position)}: {what}, although it was synced: "
            f"positions {position} to {self.next_readable(position)} of the spool cannot be read"
        )
