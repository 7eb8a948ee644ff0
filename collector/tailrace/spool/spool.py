"""One ordered log on local disk of everything that the sources received.

Nothing is decoded before it is synced here. The ingest is a function of this log: a restarted daemon
reads the log from a checkpoint on and produces the same rows.

A *position* is a byte offset in the whole log, across all segments ever; none is used twice. Three move:

    begin ≤ durable ≤ end          entries in begin..durable can be read; durable..end is in memory

Which thread calls what:

- the event loop calls `append` and reads the properties; none of them ever waits for the disk;
- a worker thread calls `sync` and `release`, which do wait for it (a lock keeps them apart);
- one thread at a time calls `read`, possibly a third; it waits for the disk unless memory has the entries.

Entries wait in memory between `append` and `sync`, without bound: the caller of `append` must watch
`buffered` and `full` and make the sources wait.

`Recent` keeps the newest durable entries in memory, so that a reader that keeps up reads nothing back from disk. This
saves a third of the spool's work.
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
from tailrace.errors import StoreError, SyncError, TailraceError
from tailrace.spool.disk import SYSTEM, Disk
from tailrace.spool.entry import HEAD_SIZE, PAYLOAD_MAX, Entry, EntryKind
from tailrace.spool.log import Log
from tailrace.spool.recovery import SpoolRecovery


class Recent:
    """About `limit` bytes of consecutive entries at most. Any thread may call `add` and `read`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._entries: list[Entry] = []

    def add(self, entries: list[Entry]) -> None:
        """Append entries that follow those added before."""
        if entries:
            with self._lock:
                self._entries += entries
                self._forget(entries[-1].end - self._limit)

    def read(self, position: int, limit: int) -> list[Entry]:
        """Return at least one entry and about `limit` bytes from `position` on; nothing if that is not in memory."""
        with self._lock:
            self._forget(position)
            if not self._entries or self._entries[0].position != position:
                return []
            count = bisect_right(self._entries, position + limit, key=attrgetter("end"))
            return self._entries[: max(count, 1)]

    def _forget(self, position: int) -> None:
        del self._entries[: bisect_left(self._entries, position, key=attrgetter("position"))]


RECENT_MAX = 8 * 2**20
"""Room for several syncs at 100 MB/s, and little compared with the daemon's memory."""

_SESSIONS = range(2**64)


class Spool:
    """The log and the entries on their way to it. After a SyncError every call raises a SyncError."""

    def __init__(self, log: Log, config: SpoolConfig, clock: Clock) -> None:
        self._log = log
        self._max_size = config.max_size
        chunk = min(PAYLOAD_MAX, log.segment_size)
        self.held_max = config.max_size - 2 * log.segment_size - chunk
        """Bytes of entries at which sources wait: the newest segment and the spare may be nearly empty,
        and a chunk may be on its way."""
        self._lock = (
            threading.Lock()
        )  # guards appended entries; never held while waiting for the disk
        self._disk_lock = threading.Lock()  # guards changes to the log
        self._refusal: TailraceError | None = None  # what every call raises from now on
        self._closed = False
        self._appended: list[Entry] = []
        self._unsynced: list[Entry] = []  # appended earlier, now being written
        self._recent = Recent(RECENT_MAX)
        self._end = log.durable
        self.timeline = Timeline(clock, log.recovery.time_ns)
        """The times of entries."""

    @classmethod
    def open(cls, directory: Path, config: SpoolConfig, clock: Clock, disk: Disk = SYSTEM) -> Self:
        """Open the spool in `directory`, which becomes one if it is empty or missing.

        A torn tail is cut off; `recovery` reports it. Raise LockedError when another process has the
        spool open, StoreError when it cannot be used, FullError when there is no room to make it.
        """
        # An eighth at most, so that the newest segment and the preallocated one leave room for the rest.
        most = [config.segment_size, config.max_size // 8, disk.files.largest()]
        return cls(Log.open(directory, min(most), disk), config, clock)

    def close(self) -> None:
        """Close the files, and give back preallocated room; entries that were not synced are lost."""
        with self._disk_lock:
            if not self._closed:
                self._closed = True
                failed = self._refusal is not None
                self._refusal = StoreError(f"{self.directory}: the spool is closed")
                self._log.close(failed=failed)

    @property
    def directory(self) -> Path:
        """The directory of the segments."""
        return self._log.directory

    @property
    def identity(self) -> str:
        """32 hexadecimal digits, drawn when the spool was made."""
        return self._log.identity.hex()

    @property
    def recovery(self) -> SpoolRecovery:
        """The findings of `open` in the log."""
        return self._log.recovery

    @property
    def begin(self) -> int:
        """The position of the oldest entry that is still here."""
        return self._log.begin

    @property
    def durable(self) -> int:
        """The position below which everything is on disk."""
        return self._log.durable

    @property
    def end(self) -> int:
        """The position of the next entry."""
        return self._end

    @property
    def buffered(self) -> int:
        """Bytes appended and not yet on disk."""
        return self._end - self._log.durable

    @property
    def held(self) -> int:
        """Bytes of the entries that are here, on disk or on their way to it."""
        return self._end - self.begin

    @property
    def size(self) -> int:
        """Bytes on disk, preallocated ones included."""
        return self._log.size

    @property
    def free(self) -> int | None:
        """Bytes that this user may still write to the spool's file system; None if it does not say."""
        try:
            return self._log.free()
        except OSError:
            return None

    @property
    def shortage(self) -> str | None:
        """Why the disk has no room for the next segment, or for what is buffered; else None."""
        return self._log.shortage

    @property
    def full(self) -> bool:
        """Whether sources must wait.

        Either the spool holds what fits into `max_size` and `release` could help, or the disk has no
        room for the next segment (the rest of the newest one is for entries that are on their way). Then
        call `sync` now and then, even with nothing to write: it tries again to make room.
        """
        used = self.size - self._log.reusable
        crowded = used >= self._max_size or self.durable - self.begin > self.held_max
        return self.shortage is not None or (crowded and self._log.releasable)

    def append(self, kind: EntryKind, session: int, payload: bytes = b"") -> int:
        """Append an entry that happened now, in memory; return its position."""
        if len(payload) > PAYLOAD_MAX or session not in _SESSIONS:
            raise ValueError(
                f"an entry of {len(payload)} bytes of session {session}: at most {PAYLOAD_MAX}, and a u64"
            )
        self._check()
        with self._lock:
            position = self._end
            self._end = end = position + HEAD_SIZE + len(payload)
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
            try:
                self._log.write(self._unsynced)
            finally:
                count = bisect_right(self._unsynced, self.durable, key=attrgetter("end"))
                self._recent.add(self._unsynced[:count])
                del self._unsynced[:count]
            self._log.prepare()
            return self.durable

    def seal(self) -> None:
        """Let the next entry begin a segment, so that all before it can be released. Raise FullError or SyncError."""
        with self._disk_lock, self._refusing_after_sync_error():
            self._log.seal(self.timeline.now())

    def check(self) -> None:
        """Raise LostError if somebody removed, renamed or replaced the directory or a segment: no later start would find
        what is in it. Raise StoreError if the lock's file was removed and cannot be made again. Any thread may call this."""
        self._check()
        self._log.check()

    def release(self, position: int) -> None:
        """Take the segments that lie wholly below `position` out of the log, but never the newest one."""
        with self._disk_lock, self._refusing_after_sync_error():
            self._log.release(position)

    def read(self, position: int, limit: int) -> list[Entry]:
        """Return entries from `position` on, in order: none at `durable`, else at least one and about `limit` bytes.

        Raise ValueError unless `position` is the position of an entry in begin..durable. Raise StoreError,
        saying what and where, when an acknowledged entry cannot be read any more: then name it as missing
        and continue at `next_readable`. Raise FullError when no descriptor is free: repeat the same call later.
        """
        self._check()
        in_memory = self._recent.read(position, limit) if position >= self.begin else []
        return in_memory or self._log.read(position, limit)

    def next_readable(self, position: int) -> int:
        """Return the first position behind `position` from which `read` works."""
        self._check()
        return self._log.next_readable(position)

    def _check(self) -> None:
        if self._refusal is not None:
            raise type(self._refusal)(str(self._refusal)) from self._refusal

    @contextlib.contextmanager
    def _refusing_after_sync_error(self) -> Iterator[None]:
        self._check()
        try:
            yield
        except SyncError as error:
            self._refusal = error
            raise
