"""The gate before the spool: who has to wait until there is room for more.

Whoever loses nothing by it waits first. A file keeps its bytes; the peer of a connection keeps what it cannot send;
datagrams wait in the kernel, which drops and counts those for which it has no room.
"""

from __future__ import annotations

from collections.abc import Callable

from tailrace.daemon.loops.steps import Flag
from tailrace.daemon.room import RoomQueue
from tailrace.ingest.machine import Ingest
from tailrace.sources.source import CHUNK_MAX
from tailrace.spool.entry import EntryKind
from tailrace.spool.spool import Spool

BUFFER_MAX = 32 * 2**20
"""Bytes received and not yet on disk at which datagrams wait: a disk that stalls for a second."""

SYNC_EARLY = 4 * 2**20
"""Bytes received at which the next sync does not wait for its time."""

BEHIND_MAX = 32 * CHUNK_MAX
"""Bytes received and not yet decoded at which files wait. All that comes is decoded in its order, so what files bring
delays the rows of all others: by 0.2 s where a kernel decodes 100 MB a second."""

_RESERVE = 64 * 2**20
"""Bytes of the spool that are left to datagrams, or an eighth of it."""


class Gate:
    """The way into `spool`, whose entries `ingest` decodes: open while there is room. The sync loop opens and closes it."""

    def __init__(self, spool: Spool, ingest: Ingest, store_refuses: Callable[[], bool]) -> None:
        """Let files wait for the ingest, unless the store refuses rows: then only the spool keeps what comes."""
        self.dirty = Flag()
        self.urgent = Flag()
        self.opened = Flag()
        """Pulsed when there may be room: whoever waits looks again."""
        self.full = False
        """Whether the spool is at its limit or its disk has no room."""
        self.of_datagrams = RoomQueue(lambda: self.shut)
        self.of_connections = RoomQueue(lambda: self.closed)
        self.of_files = RoomQueue(lambda: self.behind)
        for queue in (self.of_datagrams, self.of_connections, self.of_files):
            self.opened.add(queue.wake)
        self.spool = spool
        self.ingest = ingest
        self._store_refuses = store_refuses
        self._held_max = spool.held_max - min(_RESERVE, spool.held_max // 8)

    @property
    def shut(self) -> bool:
        """Return whether all sources have to wait: datagrams, connections and files."""
        spool = self.spool
        return self.full or spool.held > spool.held_max or spool.buffered > BUFFER_MAX

    @property
    def closed(self) -> bool:
        """Return whether connections have to wait."""
        return self.wants_release or self.spool.buffered > BUFFER_MAX * 3 // 4

    @property
    def wants_release(self) -> bool:
        """Return whether connections wait for segments of the spool to be released, which takes a checkpoint.

        It is False where they wait for a slow disk: a checkpoint would give that disk more to write."""
        return self.full or self.crowded

    @property
    def crowded(self) -> bool:
        """Return whether connections and files have to wait because the rest of the spool is kept for datagrams."""
        return self.spool.held > self._held_max

    @property
    def behind(self) -> bool:
        """Return whether files have to wait."""
        undecoded = self.spool.end - self.ingest.position
        return self.closed or (undecoded > BEHIND_MAX and not self._store_refuses())

    def append(self, kind: EntryKind, session: int, payload: bytes = b"") -> int:
        """Append an entry to the spool and wake the sync loop; return the entry's position.

        Every entry takes this way, whether the gate is open or not: sources wait before they read."""
        position = self.spool.append(kind, session, payload)
        self.dirty.set()
        if self.spool.buffered > SYNC_EARLY:
            self.urgent.set()
        return position

    def decoded(self) -> None:
        """Note that entries were decoded."""
        self.of_files.wake()
