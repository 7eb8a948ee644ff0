"""Store everything that the sources receive in one ordered log on the local disk.

A *position* is a byte offset in the whole log, across all segments. No position is used twice. Three positions grow
with time: `begin` ≤ `durable` ≤ `end`. Entries from `begin` to `durable` can be read. Entries from `durable` to `end`
are in memory, and not yet synced.

The event loop calls `append` and reads the properties, which never wait for the disk. Worker threads call `sync`,
`seal` and `release`, which a lock serializes. Any one thread at a time calls `read`; any thread calls `check`. After a
failed sync, `durable` does not grow any more, because the kernel may have dropped the pages.

The memory of entries has no limit: the caller of `append` must check `buffered` and `full`. A reader gets the newest
durable entries from memory, which saves a third of the spool's work. A released segment's file is reused, because
overwriting cached pages costs less than writing new pages (docs/decisions/speed.md, D93)."""

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
from tailrace.errors import (
    FullError,
    LostError,
    StoreError,
    SyncError,
    TailraceError,
    UnreadableError,
)
from tailrace.flags import Flag
from tailrace.spool.disk import SYSTEM, Disk, LockedDirectory, waiting
from tailrace.spool.entry import PAYLOAD_MAX, Entry, EntryKind
from tailrace.spool.segment import (
    HEAD_SIZE,
    HEADER_SIZE,
    SPARE_NAME,
    Header,
    Segment,
    SegmentWriter,
    Spare,
    SpoolRecovery,
    load,
    released_name,
    survey,
)

ROOM_MIN = 4 * 2**20
"""Size (bytes) to which the first segment is preallocated. It is doubled whenever half of it is used."""

RELEASED_MIN, RELEASED_MAX = 4, 16
"""Minimum and maximum number of files of released (no longer needed) segments that are kept for reuse."""

BUFFER_MAX = 32 * 2**20
"""Number of received bytes that are not yet synced to disk, above which sources of datagrams stop reading. The limit is
large enough to receive for about a second while the disk stalls."""

RECENT_MAX = 16 * 2**20
"""Maximum size (bytes) of durable entries that also stay in memory for the reader.

Sources of files stop reading when more than `daemon.loops.sync.BEHIND_MAX` bytes are not decoded yet. This maximum is
at least as large, so entries of files are normally read from memory."""

SYNC_EARLY = 4 * 2**20
"""Number of received bytes in memory beyond which the next sync begins before `sync_interval` has passed."""

_SESSIONS = range(2**64)
_BY_POSITION, _BY_END, _BY_FIRST = attrgetter("position"), attrgetter("end"), attrgetter("first")


class Spool:
    """The log on disk, and the entries that are not written yet. After a SyncError, every call raises a SyncError."""

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
        self.recovery = recovery
        """The end of the log and the damaged ranges of the newest segment, as `open` has found them."""
        self.durable = recovery.end
        """The position below which all entries are on disk."""
        self.end = recovery.end
        """The log position of the next entry."""
        self.shortage: str | None = None
        """The reason why the disk has no room for entries or for the next segment; None if it has room."""
        self.dirty = Flag()
        self.urgent = Flag()
        """Flag that is set while the next sync should begin before its usual time."""
        self.timeline = Timeline(clock, recovery.time_ns)
        self._segment_size = segment_size
        self._max_size = config.max_size
        chunk = min(PAYLOAD_MAX, segment_size)
        # Leave room for the newest segment and the spare file, which may be nearly empty, and for one more chunk.
        self.held_max = config.max_size - 2 * segment_size - chunk
        """Maximum size (bytes) of the entries on disk, beyond which sources must wait."""
        self._lock = threading.Lock()
        """Lock for the lists of entries in memory. No thread holds it during disk operations."""
        self._appended: list[Entry] = []
        self._unsynced: list[Entry] = []
        """Entries that `sync` has still to write."""
        self._recent: list[Entry] = []
        self._disk_lock = threading.Lock()
        """Lock for changes to the segment files."""
        # Each change replaces the list, so that other threads need no lock to read it.
        self._segments = segments
        self._writer = writer
        self._spare: Spare | None = None
        self._released: list[Segment] = []
        self._locked = locked
        self._disk = writer.segment.disk
        self._refusal: TailraceError | None = None
        self._closed = False

    @classmethod
    def open(cls, directory: Path, config: SpoolConfig, clock: Clock, disk: Disk = SYSTEM) -> Self:
        """Open the spool in `directory`, or create it. Cut off a torn end of the log, and describe it in `recovery`.

        Raise LockedError if another process has the spool open, and StoreError if the spool cannot be used. Raise
        FullError if the disk has no room for a new spool, or if no file descriptor is free."""
        # The newest and the preallocated segment must leave room for other segments.
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
                pass  # the end of this block syncs names that a killed process may have left unsynced
            spool = cls(
                config, clock, segment_size,
                segments=segments, recovery=found, writer=writer, locked=locked,
            )  # fmt: skip
            spool._preallocate()
            undo.pop_all()
        return spool

    def close(self, *, failed: bool = False) -> None:
        """Close the files without a sync. Release preallocated disk space, unless the disk has `failed`."""
        with self._disk_lock:
            if self._closed:
                return
            self._closed = True
            failed = failed or self._refusal is not None
            self._refusal = StoreError(f"{self.directory}: the spool is closed")
            if not failed:
                # If one of the spool's files was removed or replaced, delete no file: another program may have created
                # a file with the same name.
                with contextlib.suppress(LostError, FullError, SyncError, StoreError):
                    self._check_names()
                    self._writer.cut()
                    with self._disk.naming(self.directory):
                        spare = [self._spare.path] if self._spare is not None else []
                        for path in [*spare, *map(self._released_path, self._released)]:
                            self._disk.unlink(path)
            self._writer.close()
            if self._spare is not None:
                self._spare.close()
            self._locked.close()

    @property
    def identity(self) -> str:
        """Return the random id of the spool (32 hexadecimal digits)."""
        return self._segments[0].header.identity.hex()

    @property
    def begin(self) -> int:
        return self._segments[0].first

    @property
    def buffered(self) -> int:
        """Return the number of appended bytes that are not yet on disk."""
        return self.end - self.durable

    @property
    def held(self) -> int:
        """Return the size (bytes) of all entries, on disk and in memory."""
        return self.end - self.begin

    @property
    def size(self) -> int:
        """Return the spool's size (bytes) on disk, including preallocated bytes."""
        return self._used + sum(segment.size for segment in self._released)

    @property
    def _used(self) -> int:
        spare = self._spare
        return sum(segment.size for segment in self._segments) + (spare.size if spare else 0)

    @property
    def free(self) -> int | None:
        """Return the number of bytes that this user may still write to the spool's file system; None if unknown."""
        try:
            return self._disk.files.free(self.directory)
        except OSError:
            return None

    @property
    def full(self) -> bool:
        """Return whether sources must wait, because the spool has reached `max_size` or the disk has no room. Meanwhile
        call `sync` periodically, even without new entries, because `sync` retries the allocation of room."""
        crowded = self._used >= self._max_size or self.durable - self.begin > self.held_max
        # Do not report a full spool if the newest segment is the only one: `release` keeps it, so sources would wait
        # for ever.
        return self.shortage is not None or (crowded and len(self._segments) > 1)

    def append(self, kind: EntryKind, session: int, payload: bytes = b"") -> int:
        """Append a log entry with the current time to the entries in memory, and return its position. Raise ValueError
        if the payload or the session number is too large."""
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
        self.dirty.set()
        if end - self.durable > SYNC_EARLY:
            self.urgent.set()
        return position

    def hurry(self) -> None:
        if self.buffered:
            self.urgent.set()

    def sync(self) -> int:
        """Write all entries to disk that were appended before this call; return the new value of `durable`.

        Raise FullError if the disk has no room; retry then, because no entry is lost. Raise SyncError if the disk
        failed: the entries beyond `durable` are lost. Raise LostError if the log's files were removed or renamed."""
        with self._disk_lock, self._refusing_after_sync_error():
            with self._lock:
                self._unsynced += self._appended
                self._appended = []
            entries, done = self._unsynced, 0
            try:
                while done < len(entries):
                    newest = self._writer.segment
                    stop = newest.first + self._segment_size - HEADER_SIZE
                    fitting = bisect_right(entries, stop, key=_BY_END)
                    # An empty segment accepts an entry of any size.
                    if fitting <= done and newest.end > newest.first:
                        self._rotate(entries[done].time_ns)
                        continue
                    fitting = max(fitting, done + 1)
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
        """Begin a new segment for the next entry, so that all earlier segments can be released."""
        with self._disk_lock, self._refusing_after_sync_error():
            newest = self._writer.segment
            if newest.end > newest.first:
                self._rotate(self.timeline.now())

    def check(self) -> None:
        """Raise LostError if the directory or a segment was removed, renamed or replaced. Any thread may call this.
        Raise StoreError if the lock's file was removed and cannot be created again."""
        self._refuse()
        self._check_names()

    def release(self, position: int) -> None:
        """Remove all segments that end at or below `position` from the log, except the newest segment."""
        with self._disk_lock, self._refusing_after_sync_error():
            # Keep about as many files as this call releases, because the log needs about as many until the next
            # release.
            below = sum(segment.end <= position for segment in self._segments[:-1])
            kept = min(max(below, RELEASED_MIN), RELEASED_MAX)
            while len(self._released) > kept:
                self._disk.unlink(self._released_path(self._released[0]))
                del self._released[0]
            while len(self._segments) > 1 and self._segments[0].end <= position:
                # Remove one segment at a time, so that a crash leaves no gap between segments.
                with self._disk.naming(self.directory):
                    segments = self._segments
                    released = segments[0]
                    # First shorten the list, because other threads check that the paths of its segments exist.
                    self._segments = segments[1:]
                    try:
                        there = self._disk.files.exists(released.path)
                        reusable = there and released.size <= self._segment_size
                        if reusable and len(self._released) < kept:
                            self._disk.rename(released.path, self._released_path(released))
                            self._released.append(released)
                        else:
                            self._disk.unlink(released.path)
                    except FullError:
                        self._segments = segments
                        raise

    def read(self, position: int, limit: int) -> list[Entry]:
        """Return entries from `position` on, in order: at least one, and about `limit` bytes; none at the end of the
        synced log.

        Raise ValueError for a position that is not in the synced log, and UnreadableError if an acknowledged entry
        cannot be read any more. Raise FullError if no file descriptor is free: retry the call."""
        self._refuse()
        if position >= self.begin:
            with self._lock:
                self._forget(position)
                if self._recent and self._recent[0].position == position:
                    count = bisect_right(self._recent, position + limit, key=_BY_END)
                    return self._recent[: max(count, 1)]
        segment = self._segment_at(position)
        # Read no entry beyond `durable`, even if another thread has already synced it.
        end = min(segment.end, self.durable)
        if position == end:
            return []
        try:
            with waiting(segment.path):
                found = segment.scan(position, limit, end)
        except OSError as error:
            # Raise ValueError, not StoreError, if the segment was released meanwhile.
            self._segment_at(position)
            raise self._damage(segment, position, str(error)) from error
        if not found.entries:
            # Raise ValueError if the segment was released meanwhile, and its file was reused for another segment.
            self._segment_at(position)
            raise self._damage(segment, position, f"the entry is {found.fault or 'missing'}")
        return found.entries

    def _forget(self, position: int) -> None:
        """Drop the entries below `position` from memory. The caller must hold `_lock`."""
        del self._recent[: bisect_left(self._recent, position, key=_BY_POSITION)]

    def _rotate(self, time_ns: int) -> None:
        self._writer.segment.check()
        self._forget_lost_spare()
        self._spare = self._spare or self._next(min(ROOM_MIN, self._segment_size))
        identity = self._segments[0].header.identity
        writer = self._spare.become(Header(identity, self.durable, time_ns))
        sealed, self._writer, self._spare = self._writer, writer, None
        self._segments = [*self._segments, writer.segment]
        sealed.seal()

    def _preallocate(self) -> None:
        newest, room = self._writer.segment, ROOM_MIN
        while room < min(2 * newest.offset(newest.end), self._segment_size):
            room *= 2
        try:
            self._writer.extend(min(room, self._segment_size))
            self._forget_lost_spare()
            if self._spare is None and newest.size >= self._segment_size:
                self._spare = self._next(self._segment_size)
            self.shortage = None
        except FullError as error:
            self.shortage = str(error)

    def _next(self, size: int) -> Spare:
        spare = self.directory / SPARE_NAME
        path = self._released_path(self._released.pop()) if self._released else spare
        return Spare.prepare(path, size, self._disk)

    def _forget_lost_spare(self) -> None:
        if self._spare is not None and not self._spare.is_there:
            self._spare.close()
            self._spare = None

    def _released_path(self, segment: Segment) -> Path:
        return self.directory / released_name(segment.first)

    def _segment_at(self, position: int) -> Segment:
        segments = self._segments
        if not segments[0].first <= position <= self.durable:
            raise ValueError(f"position {position} is not in {segments[0].first}..{self.durable}")
        return segments[bisect_right(segments, position, key=_BY_FIRST) - 1]

    def _damage(self, segment: Segment, position: int, what: str) -> UnreadableError:
        until = None
        with contextlib.suppress(OSError), waiting(segment.path):
            until = segment.find(position + 1, segment.end)
        until = segment.end if until is None else until
        return UnreadableError(
            f"{segment.path}, byte {segment.offset(position)}: {what}, although it was synced: "
            f"positions {position} to {until} of the spool cannot be read",
            until=until,
        )

    def _check_names(self) -> None:
        self._locked.check()
        for segment in list(self._segments):
            try:
                segment.check()
            except LostError:
                # A segment that is not in the list any more was released meanwhile, so its name may be missing.
                if segment in self._segments:
                    raise

    def _refuse(self) -> None:
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
