"""One ordered log on local disk of everything that the sources received.

Nothing is decoded before it is synced here. The ingest is a function of this log: a restarted daemon
reads the log from a checkpoint on and produces the same rows.

A *position* is a byte offset in the whole log, across all segments ever; none is used twice. Three move:

    begin ≤ durable ≤ end          entries in begin..durable can be read; durable..end is in memory

Constraints:

- When a segment has its name, all segments before it are on disk. `recovery` relies on it.
- After a failed sync nothing may be called durable any more: the kernel may have dropped the pages.
- The event loop must never wait for the disk.

Which thread calls what:

- the event loop calls `append` and reads the properties; none of them ever waits for the disk;
- a worker thread calls `sync`, `seal` and `release`, which do wait for it (a lock keeps them apart);
- one thread at a time calls `read`, possibly a third; it waits for the disk unless memory has the entries;
- any thread calls `check`. The list of segments is replaced and never changed, so that readers need no lock.

Operation: entries wait in memory between `append` and `sync`, without bound: the caller of `append` must watch
`buffered` and `full` and make the sources wait. `sync` writes them to the newest segment and begins another one where that
is full. The newest durable entries stay in memory, so that a reader that keeps up reads nothing back from disk. This
saves a third of the spool's work. The file of a released segment becomes the next one: its pages are in memory, and to
write over them costs less than to write new ones (docs/decisions/speed.md, D93). Its old frames stay behind the new ones.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Self

from tailrace.clock import Clock, Timeline
from tailrace.config.schema import SpoolConfig
from tailrace.errors import FullError, LostError, StoreError, SyncError, TailraceError
from tailrace.spool.disk import SYSTEM, Disk, LockedDirectory, waiting
from tailrace.spool.entry import HEAD_SIZE, PAYLOAD_MAX, Entry, EntryKind
from tailrace.spool.recovery import SpoolRecovery, survey
from tailrace.spool.segment import (
    HEADER_SIZE,
    SPARE_NAME,
    Header,
    Segment,
    SegmentWriter,
    Spare,
    load,
    released_name,
)

ROOM_MIN = 4 * 2**20
"""Room that the first segment begins with. It doubles when half of it is used, up to a whole segment: a log of a few entries
takes little disk, and a long one is preallocated as far ahead as ever."""

RELEASED_MIN, RELEASED_MAX = 4, 16
"""Bounds of how many files of released segments the log keeps, to write the next segments over them. Within these, it
keeps as many as the last release freed: one to four under load, more where sessions hold much state."""

RECENT_MAX = 8 * 2**20
"""Bytes of durable entries that stay in memory: room for several syncs at 100 MB/s, and little compared with the daemon's memory."""

_SESSIONS = range(2**64)
_BY_POSITION, _BY_END, _BY_FIRST = attrgetter("position"), attrgetter("end"), attrgetter("first")


class Spool:
    """The log and the entries on their way to it. After a SyncError every call raises a SyncError."""

    def __init__(
        self,
        config: SpoolConfig,
        clock: Clock,
        segment_size: int,
        *,
        segments: list[Segment],
        recovery: SpoolRecovery,
        writer: SegmentWriter,
        locked: LockedDirectory,
    ) -> None:
        self.directory = locked.path
        """The directory of the segments."""
        self.recovery = recovery
        """The findings of `open` in the log."""
        self.durable = recovery.end
        """The position below which everything is on disk."""
        self.end = recovery.end
        """The position of the next entry."""
        self.shortage: str | None = None
        """Why the disk has no room for the next segment, or for what is buffered; else None."""
        self.timeline = Timeline(clock, recovery.time_ns)
        """The times of entries."""
        self._segment_size = segment_size
        self._max_size = config.max_size
        chunk = min(PAYLOAD_MAX, segment_size)
        self.held_max = config.max_size - 2 * segment_size - chunk
        """Bytes of entries at which sources wait: the newest segment and the spare may be nearly empty,
        and a chunk may be on its way."""
        self._lock = threading.Lock()
        """Guards the entries in memory; never held while waiting for the disk."""
        self._appended: list[Entry] = []
        self._unsynced: list[Entry] = []
        """Entries appended earlier, now being written."""
        self._recent: list[Entry] = []
        """The newest durable entries, without a hole."""
        self._disk_lock = threading.Lock()
        """Guards changes of the files."""
        self._segments = segments
        self._writer = writer
        self._spare: Spare | None = None
        self._released: list[Segment] = []
        self._locked = locked
        self._disk = writer.segment.disk
        self._refusal: TailraceError | None = None
        """The error that every call raises from now on."""
        self._closed = False

    @classmethod
    def open(cls, directory: Path, config: SpoolConfig, clock: Clock, disk: Disk = SYSTEM) -> Self:
        """Open the spool in `directory`, which becomes one if it is empty or missing.

        A torn tail is cut off; `recovery` reports it. Raise LockedError when another process has the
        spool open, StoreError when it cannot be used, FullError when there is no room to make it or no descriptor is free.
        """
        # An eighth at most, so that the newest segment and the preallocated one leave room for the rest.
        segment_size = min(config.segment_size, config.max_size // 8, disk.files.largest())
        with contextlib.ExitStack() as undo:
            locked = disk.lock(directory)
            undo.callback(locked.close)
            try:
                with waiting(directory):
                    segments = load(directory, min(ROOM_MIN, segment_size), disk)
                    found = survey(segments[-1])
            except OSError as error:
                raise StoreError(f"{directory}: cannot be read: {error}") from error
            writer = SegmentWriter.resume(
                segments[-1], synced=found.synced, end=found.end, leftovers=found.leftovers
            )
            undo.callback(writer.close)
            with disk.naming(directory):
                pass  # an earlier process may have been killed before it synced its names
            spool = cls(
                config,
                clock,
                segment_size,
                segments=segments,
                recovery=found,
                writer=writer,
                locked=locked,
            )
            spool._preallocate()
            undo.pop_all()
        return spool

    def close(self, *, failed: bool = False) -> None:
        """Close the files; entries that were not synced are lost. Unless the disk `failed`, give back preallocated room."""
        with self._disk_lock:
            if self._closed:
                return
            self._closed = True
            failed = failed or self._refusal is not None
            self._refusal = StoreError(f"{self.directory}: the spool is closed")
            if not failed:
                # If a name is lost, it may lead to files of others. After another error, the next close gives back the room.
                with contextlib.suppress(LostError, FullError, SyncError, StoreError):
                    self._check_names()
                    self._give_back()
            self._writer.close()
            if self._spare is not None:
                self._spare.close()
            self._locked.close()

    @property
    def identity(self) -> str:
        """32 hexadecimal digits, drawn when the spool was made."""
        return self._segments[0].header.identity.hex()

    @property
    def begin(self) -> int:
        """The position of the oldest entry that is still here."""
        return self._segments[0].first

    @property
    def buffered(self) -> int:
        """Bytes appended and not yet on disk."""
        return self.end - self.durable

    @property
    def held(self) -> int:
        """Bytes of the entries that are here, on disk or on their way to it."""
        return self.end - self.begin

    @property
    def size(self) -> int:
        """Bytes on disk, preallocated ones included."""
        return self._used + sum(segment.size for segment in self._released)

    @property
    def _used(self) -> int:
        """Bytes on disk without the files of released segments."""
        spare = self._spare
        return sum(segment.size for segment in self._segments) + (spare.size if spare else 0)

    @property
    def free(self) -> int | None:
        """Bytes that this user may still write to the spool's file system; None if it does not say."""
        try:
            return self._disk.files.free(self.directory)
        except OSError:
            return None

    @property
    def full(self) -> bool:
        """Whether sources must wait.

        Either the spool holds what fits into `max_size` and `release` could help, or the disk has no
        room for the next segment (the rest of the newest one is for entries that are on their way). Then
        call `sync` now and then, even with nothing to write: it tries again to make room.
        """
        crowded = self._used >= self._max_size or self.durable - self.begin > self.held_max
        return self.shortage is not None or (crowded and len(self._segments) > 1)

    def append(self, kind: EntryKind, session: int, payload: bytes = b"") -> int:
        """Append an entry that happened now, in memory; return its position."""
        if len(payload) > PAYLOAD_MAX or session not in _SESSIONS:
            raise ValueError(
                f"an entry of {len(payload)} bytes of session {session}: at most {PAYLOAD_MAX}, and a u64"
            )
        self._refuse()
        with self._lock:
            position = self.end
            self.end = end = position + HEAD_SIZE + len(payload)
            time_ns = self.timeline.now()
            self._appended.append(Entry(position, end, kind, session, time_ns, payload))
        return position

    def sync(self) -> int:
        """Bring to disk all entries appended before this call; return how far `durable` is then.

        Raise FullError when there is no room: entries below `durable` are on disk, none is lost, and the
        call may be repeated. Raise SyncError when the disk failed: entries beyond `durable` are lost. Raise LostError
        when no later start would find them (see `check`).
        """
        with self._disk_lock, self._refusing_after_sync_error():
            with self._lock:
                self._unsynced += self._appended
                self._appended = []
            entries, done = self._unsynced, 0
            try:
                while done < len(entries):
                    fitting = self._fitting(entries, done)
                    if fitting == done:
                        self._rotate(entries[done].time_ns)
                        continue
                    self._writer.append(entries[done:fitting])
                    self.durable = entries[fitting - 1].end
                    done = fitting
            except FullError as error:
                self.shortage = str(error)
                raise
            finally:
                self._unsynced = entries[done:]
                with self._lock:
                    self._recent += entries[:done]
                    self._forget(self.durable - RECENT_MAX)
            self._preallocate()
            return self.durable

    def seal(self) -> None:
        """Let the next entry begin a segment, so that all before it can be released. Raise FullError or SyncError."""
        with self._disk_lock, self._refusing_after_sync_error():
            newest = self._writer.segment
            if newest.end > newest.first:
                self._rotate(self.timeline.now())

    def check(self) -> None:
        """Raise LostError if somebody removed, renamed or replaced the directory or a segment: no later start would find
        what is in it. Raise StoreError if the lock's file was removed and cannot be made again. Any thread may call this."""
        self._refuse()
        self._check_names()

    def release(self, position: int) -> None:
        """Take the segments that lie wholly below `position` out of the log, but never the newest one.

        Keep as many of their files as this release frees: the log grows by about as much until the next release."""
        with self._disk_lock, self._refusing_after_sync_error():
            below = sum(segment.end <= position for segment in self._segments[:-1])
            kept = min(max(below, RELEASED_MIN), RELEASED_MAX)
            while len(self._released) > kept:
                self._disk.unlink(self._released_path(self._released.pop(0)))
            while len(self._segments) > 1 and self._segments[0].end <= position:
                # One by one, so that the segments that a crash leaves behind have no hole between them.
                with self._disk.naming(self.directory):
                    released, *self._segments = self._segments
                    there = self._disk.files.exists(released.path)
                    reusable = there and released.size <= self._segment_size
                    if reusable and len(self._released) < kept:
                        self._disk.rename(released.path, self._released_path(released))
                        self._released.append(released)
                    else:
                        self._disk.unlink(released.path)

    def read(self, position: int, limit: int) -> list[Entry]:
        """Return entries from `position` on, in order: none at `durable`, else at least one and about `limit` bytes.

        Raise ValueError unless `position` is the position of an entry in begin..durable. Raise StoreError,
        saying what and where, when an acknowledged entry cannot be read any more: then name it as missing
        and continue at `next_readable`. Raise FullError when no descriptor is free: repeat the same call later.
        """
        self._refuse()
        if position >= self.begin:
            with self._lock:
                self._forget(position)
                if self._recent and self._recent[0].position == position:
                    count = bisect_right(self._recent, position + limit, key=_BY_END)
                    return self._recent[: max(count, 1)]
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
            raise self._damage(segment, position, str(error)) from error
        if not found.entries:
            self._segment_at(position)  # its file may be the next segment's by now
            raise self._damage(segment, position, f"the entry is {found.fault or 'missing'}")
        return found.entries

    def next_readable(self, position: int) -> int:
        """Return the first position behind `position` at which an entry begins or the log ends.

        If the disk cannot read the segment at all, that is the segment's end. Raise FullError when no descriptor is free.
        """
        self._refuse()
        segment = self._segment_at(position)
        with contextlib.suppress(OSError), waiting(segment.path):
            found = segment.find(position + 1, segment.end)
            if found is not None:
                return found
        return segment.end

    def _forget(self, position: int) -> None:
        """Drop the entries below a position from memory. The caller holds `_lock`."""
        del self._recent[: bisect_left(self._recent, position, key=_BY_POSITION)]

    def _fitting(self, entries: list[Entry], start: int) -> int:
        """Return the index behind the last entry that fits into the newest segment."""
        newest = self._writer.segment
        stop = newest.first + self._segment_size - HEADER_SIZE
        fitting = max(start, bisect_right(entries, stop, key=_BY_END))
        # An empty segment takes an entry of any size.
        return start + 1 if fitting == start and newest.end == newest.first else fitting

    def _rotate(self, time_ns: int) -> None:
        """Begin the next segment. Raise FullError, or LostError as `check` does."""
        self._writer.segment.check()
        self._forget_lost_spare()
        self._spare = self._spare or self._next(min(ROOM_MIN, self._segment_size))
        identity = self._segments[0].header.identity
        writer = self._spare.become(Header(identity, self.durable, time_ns))
        sealed, self._writer, self._spare = self._writer, writer, None
        self._segments = [*self._segments, writer.segment]
        sealed.seal()

    def _preallocate(self) -> None:
        """Preallocate room for the next entries, or set `shortage` to the reason why that failed."""
        shortage = None
        newest, room = self._writer.segment, ROOM_MIN
        while room < min(2 * newest.offset(newest.end), self._segment_size):
            room *= 2
        try:
            self._writer.extend(min(room, self._segment_size))
            self._forget_lost_spare()
            if self._spare is None and newest.size >= self._segment_size:
                self._spare = self._next(self._segment_size)
        except FullError as error:
            shortage = str(error)
        self.shortage = shortage

    def _next(self, size: int) -> Spare:
        """Preallocate the next segment's file. Raise FullError."""
        spare = self.directory / SPARE_NAME
        path = self._released_path(self._released.pop()) if self._released else spare
        return Spare.prepare(path, size, self._disk)

    def _forget_lost_spare(self) -> None:
        """Let another spare be made if somebody removed or replaced it: it holds nothing."""
        if self._spare is not None and not self._spare.is_there:
            self._spare.close()
            self._spare = None

    def _give_back(self) -> None:
        """Remove all but the log's entries. If a power cut brings files back, the close after the next start removes
        them."""
        self._writer.cut()
        with self._disk.naming(self.directory):
            if self._spare is not None:
                self._disk.unlink(self._spare.path)
            for segment in self._released:
                self._disk.unlink(self._released_path(segment))

    def _released_path(self, segment: Segment) -> Path:
        return self.directory / released_name(segment.first)

    def _segment_at(self, position: int) -> Segment:
        segments = self._segments
        if not segments[0].first <= position <= self.durable:
            raise ValueError(f"position {position} is not in {segments[0].first}..{self.durable}")
        return segments[bisect_right(segments, position, key=_BY_FIRST) - 1]

    def _damage(self, segment: Segment, position: int, what: str) -> StoreError:
        return StoreError(
            f"{segment.path}, byte {segment.offset(position)}: {what}, although it was synced: "
            f"positions {position} to {self.next_readable(position)} of the spool cannot be read"
        )

    def _check_names(self) -> None:
        """Do what `check` does, also after a SyncError."""
        self._locked.check()
        for segment in list(self._segments):
            try:
                segment.check()
            except LostError:
                if segment in self._segments:  # it was not released meanwhile
                    raise

    def _refuse(self) -> None:
        """Raise the error that ended the spool, if one did."""
        if self._refusal is not None:
            raise type(self._refusal)(str(self._refusal)) from self._refusal

    @contextlib.contextmanager
    def _refusing_after_sync_error(self) -> Iterator[None]:
        self._refuse()
        try:
            yield
        except SyncError as error:
            self._refusal = error
            raise
