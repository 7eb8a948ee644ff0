"""One ordered log on local disk of all that happened to the network sources.

Nothing is decoded before it is here and synced; the whole ingest is a function of this log, so a
daemon that starts again reads it from a checkpoint on and comes to the same rows.

A *position* is a byte offset in the log, over all segments ever, never reused. Three of them move:

    begin ≤ durable ≤ end          entries in begin..durable can be read; durable..end is in memory

Which thread calls what:

- the event loop calls `append` and reads the properties; none of them ever waits for the disk;
- a worker thread calls `sync` and `release`, which do wait for it (a lock keeps them apart);
- one thread at a time calls `read`, and it may be a third; it waits only for what is not in memory.

Entries wait in memory between `append` and `sync`, without bound: whoever appends watches
`buffered` and `full` and makes the sources wait.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_right
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
from tailrace.spool.recent import Recent
from tailrace.spool.recovery import Recovery

RECENT_MAX = 8 * 2**20
"""Several syncs at 100 MB/s, and little beside what the daemon may use."""

_SESSIONS = range(2**64)


class Spool:
    """The log with what is on its way to it. After a SyncError every call raises one."""

    def __init__(self, log: Log, config: SpoolConfig, clock: Clock) -> None:
        self._log = log
        self._max_size = config.max_size
        self._lock = threading.Lock()  # of what is appended; never held while waiting for the disk
        self._disk_lock = threading.Lock()  # of changes to the log
        self._refusal: TailraceError | None = None  # what every call raises from now on
        self._closed = False
        self._appended: list[Entry] = []
        self._unsynced: list[Entry] = []  # appended earlier, now being written
        self._recent = Recent(RECENT_MAX)
        self._end = log.durable
        self.timeline = Timeline(clock, log.recovery.time_ns)
        """Of the entries: when they happened."""

    @classmethod
    def open(cls, directory: Path, config: SpoolConfig, clock: Clock, disk: Disk = SYSTEM) -> Self:
        """Open the spool in `directory`, which becomes one if it is empty or missing.

        A torn tail is cut off; `recovery` tells. Raise LockedError when another process has the
        spool open, StoreError when it cannot be used, FullError when there is no room to make it.
        """
        # A quarter at most: the newest segment and the one in waiting alone must not fill it.
        segment_size = min(config.segment_size, config.max_size // 4)
        return cls(Log.open(directory, segment_size, disk), config, clock)

    def close(self) -> None:
        """Let go of the files; what was not synced is not in the log."""
        with self._disk_lock:
            if not self._closed:
                self._closed = True
                self._refusal = StoreError(f"{self.directory}: the spool is closed")
                self._log.close()

    @property
    def directory(self) -> Path:
        """Where the segments are."""
        return self._log.directory

    @property
    def identity(self) -> str:
        """32 hexadecimal digits, drawn when the spool was made."""
        return self._log.identity.hex()

    @property
    def recovery(self) -> Recovery:
        """What was found when it was opened."""
        return self._log.recovery

    @property
    def begin(self) -> int:
        """Position of the oldest entry still here."""
        return self._log.begin

    @property
    def durable(self) -> int:
        """Position below which all is on disk."""
        return self._log.durable

    @property
    def end(self) -> int:
        """Position the next entry will get."""
        return self._end

    @property
    def buffered(self) -> int:
        """Bytes appended and not yet on disk."""
        return self._end - self._log.durable

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
        """Why there is no room on disk for the next segment, or even for what is buffered; else None."""
        return self._log.shortage

    @property
    def full(self) -> bool:
        """Whether sources must wait.

        Either the spool holds `max_size` and `release` could help, or the disk has no room for the
        next segment (what is left of the newest one is for what is on its way). Then call `sync`
        now and then, with nothing to write as well: it tries again.
        """
        return self.shortage is not None or (self.size >= self._max_size and self._log.releasable)

    def append(self, kind: EntryKind, session: int, payload: bytes = b"") -> int:
        """Add an entry that happened now, in memory; return its position."""
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
        """Return, once all that was appended before this call is on disk, how far `durable` is.

        FullError: there is no room; nothing is lost, and the same call may be made again. What
        found room is durable. SyncError: the disk failed; what is not durable never will be.
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

    def release(self, position: int) -> None:
        """Delete the segments that lie wholly below `position`; never the newest."""
        with self._disk_lock, self._refusing_after_sync_error():
            self._log.release(position)

    def read(self, position: int, limit: int) -> list[Entry]:
        """Return entries from `position` on, in order: at least one, and about `limit` bytes.

        Nothing at `durable`. `position` is that of an entry in begin..durable, or ValueError.
        StoreError says what and where: an entry was acknowledged and cannot be read any more.
        `next_readable` tells where to go on, once what lies between is named as missing.
        """
        self._check()
        in_memory = self._recent.read(position, limit) if position >= self.begin else []
        return in_memory or self._log.read(position, limit)

    def next_readable(self, position: int) -> int:
        """Return the first position behind `position` from which on `read` works."""
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
