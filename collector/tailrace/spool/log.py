"""The log on disk: a chain of segments. Nothing is buffered here.

Each segment ends where the next one begins. One thread at a time may change the log (`write`,
`prepare`, `seal`, `release`, `close`). Any thread may read, because the list of segments is replaced and
never changed.

Invariant: when a segment has its name, all segments before it are on disk. `recovery` relies on it.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from operator import attrgetter
from pathlib import Path
from typing import Self

from tailrace import owned
from tailrace.errors import FullError, LostError, StoreError, SyncError
from tailrace.spool.directory import load
from tailrace.spool.disk import Disk, LockedDirectory
from tailrace.spool.entry import Entry
from tailrace.spool.recovery import SpoolRecovery, survey
from tailrace.spool.segment import HEADER_SIZE, Header, Segment, released_name
from tailrace.spool.writer import SPARE_NAME, SegmentWriter, Spare

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

        Raise LockedError, StoreError when the log cannot be used, FullError when it cannot be made.
        """
        with contextlib.ExitStack() as undo:
            locked = disk.lock(directory)
            undo.callback(locked.close)
            try:
                segments = load(directory, min(ROOM_MIN, segment_size), disk)
                recovery = survey(segments[-1])
            except OSError as error:
                raise StoreError(f"{directory}: cannot be read: {error}") from error
            writer = SegmentWriter.resume(segments[-1], recovery)
            undo.callback(writer.close)
            disk.sync_directory(directory)
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
        if self._spare is not None:
            self._disk.unlink(self._spare.path)
        for segment in self._released:
            self._disk.unlink(self._released_path(segment))
        self._disk.sync_directory(self.directory)

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
        where nothing would lead to the entries.
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
            released, *self._segments = self._segments
            there = self._disk.files.exists(released.path)
            if there and len(self._released) < kept and released.size <= self.segment_size:
                self._disk.rename(released.path, self._released_path(released))
                self._released.append(released)
            else:
                self._disk.unlink(released.path)
            # One by one, so that the segments that a crash leaves behind have no hole between them.
            self._disk.sync_directory(self.directory)

    def read(self, position: int, limit: int) -> list[Entry]:
        """Return entries of one segment: none at `durable`, else at least one and about `limit` bytes."""
        segment = self._segment_at(position)
        # Another thread may be between the sync of more entries and the rise of `durable`.
        end = min(segment.end, self.durable)
        if position == end:
            return []
        try:
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

        If the disk cannot read the segment at all, that is the segment's end.
        """
        segment = self._segment_at(position)
        with contextlib.suppress(OSError):
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
