"""The gate that all entries pass into the spool, and the loop that syncs the entries every `sync_interval`.

Constraints: sources that lose nothing by a wait must wait first. A file keeps its bytes, and the peer of a connection
keeps unsent bytes. Datagrams wait in the kernel, which drops and counts datagrams without buffer space. Sources wait
before reading, so the gate accepts every entry at once, whether open or closed.

Operation: tasks wait at the `Gate` for free space, in a first-in first-out `RoomQueue` for each kind of source. Each
entry wakes the sync loop. After each sync the loop wakes the decoder, and opens or closes the gate by the spool's
size. While the disk is full, the loop retries and the gate stays closed.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import trio

from tailrace.daemon.context import Context
from tailrace.daemon.loops.acknowledge import HeldNames
from tailrace.daemon.loops.steps import Flag, Steps, Wait, Work
from tailrace.errors import FullError, LostError
from tailrace.figures import Condition
from tailrace.ingest.machine import Ingest
from tailrace.sources.source import CHUNK_MAX
from tailrace.spool.entry import EntryKind
from tailrace.spool.spool import Spool


class RoomQueue:
    """A queue of tasks that wait for free space. A task appends its bytes before the next task checks for space.

    If all tasks checked at once, a thousand connections would leave no time for other work.
    """

    def __init__(self, closed: Callable[[], bool]) -> None:
        """Create a queue whose tasks wait while `closed` returns True."""
        self._closed = closed
        self._waiting: deque[_Waiting] = deque()

    def wake(self) -> None:
        """Wake the first task, which checks for space again."""
        if self._waiting:
            self._waiting[0].awake.set()

    async def wait(self) -> None:
        """Wait until there is space. Return at once if there is space and no other task waits."""
        if not self._waiting and not self._closed():
            return
        me = _Waiting()
        self._waiting.append(me)
        try:
            while self._closed() or self._waiting[0] is not me:
                me.awake = trio.Event()
                await me.awake.wait()
        finally:
            self._waiting.remove(me)
            self.wake()


class _Waiting:
    """A waiting task."""

    def __init__(self) -> None:
        self.awake = trio.Event()


BUFFER_MAX = 32 * 2**20
"""Number of received unsynced bytes at which datagrams wait: a disk that stalls for a second."""

SYNC_EARLY = 4 * 2**20
"""Number of received unsynced bytes at which the next sync starts early."""

BEHIND_MAX = 32 * CHUNK_MAX
"""Number of received undecoded bytes at which files wait.

Entries are decoded in order, so bytes of files delay the rows of all other sources: by 0.2 s if a kernel decodes 100
MB/s.
"""

_RESERVE = 64 * 2**20
"""Number of bytes of the spool reserved for datagrams, at most an eighth of the spool."""


class Gate:
    """The gate to `spool`, whose entries `ingest` decodes. The sync loop opens the gate while there is space."""

    def __init__(self, spool: Spool, ingest: Ingest, store_refuses: Callable[[], bool]) -> None:
        """Create a gate. Files wait for the ingest unless the store refuses rows, because only the spool stores
        bytes then."""
        self.dirty = Flag()
        self.urgent = Flag()
        self.opened = Flag()
        """Pulsed when space may be free, so that waiting tasks check again."""
        self.full = False
        """Whether the spool has reached its limit or its disk is full."""
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
        """Return whether all sources must wait: datagrams, connections and files."""
        spool = self.spool
        return self.full or spool.held > spool.held_max or spool.buffered > BUFFER_MAX

    @property
    def closed(self) -> bool:
        """Return whether connections must wait."""
        return self.wants_release or self.spool.buffered > BUFFER_MAX * 3 // 4

    @property
    def wants_release(self) -> bool:
        """Return whether connections wait for the release of spool segments, which needs a checkpoint.

        The result is False while connections wait for a slow disk, because a checkpoint would write even more.
        """
        return self.full or self.crowded

    @property
    def crowded(self) -> bool:
        """Return whether connections and files must wait because the rest of the spool is reserved for datagrams."""
        return self.spool.held > self._held_max

    @property
    def behind(self) -> bool:
        """Return whether files must wait."""
        undecoded = self.spool.end - self.ingest.position
        return self.closed or (undecoded > BEHIND_MAX and not self._store_refuses())

    def append(self, kind: EntryKind, session: int, payload: bytes = b"") -> int:
        """Append an entry to the spool and wake the sync loop. Return the entry's position.

        The gate accepts every entry, whether open or closed, because sources wait before reading.
        """
        position = self.spool.append(kind, session, payload)
        self.dirty.set()
        if self.spool.buffered > SYNC_EARLY:
            self.urgent.set()
        return position

    def decoded(self) -> None:
        """Wake waiting files after entries were decoded."""
        self.of_files.wake()


RETRY_AFTER = 0.5
"""Seconds between two tries while the disk is full."""


class Syncing:
    """The sync loop. After each sync it sets `synced`, and calls `done` with the duration (seconds) of the sync."""

    def __init__(
        self,
        spool: Spool,
        gate: Gate,
        names: HeldNames,
        context: Context,
        synced: Flag,
        done: Callable[[float], None],
    ) -> None:
        self._spool = spool
        self._gate = gate
        self._names = names
        self._context = context
        self._synced = synced
        self._done = done

    def run(self) -> Steps[None]:
        """Sync until closed. Raise SyncError."""
        gate = self._gate
        while True:
            # A full spool may have free space later without a new entry, so check at intervals.
            yield Wait(RETRY_AFTER if gate.full else math.inf, gate.dirty)
            yield Wait(self._context.config.spool.sync_interval, gate.urgent)
            gate.dirty.clear()
            gate.urgent.clear()
            yield from self.once()

    def once(self) -> Steps[None]:
        """Sync the buffered entries, with retries until the disk has space.

        After the loss of a spool path, no further entry becomes durable.
        """
        while True:
            begun = self._context.clock.monotonic()
            try:
                yield Work(self._spool.sync)
            except FullError as error:
                self._gate.full = True
                self._context.health.refuse(
                    Condition.SPOOL, f"{error}; receiving waits until it can be written"
                )
                yield Wait(RETRY_AFTER)
                continue
            except LostError as error:
                self._names.lose(error)
                self._synced.set()  # some of the entries may be durable
                return
            self._done(self._context.clock.monotonic() - begun)
            self._synced.set()
            self.admit()
            return

    def admit(self) -> None:
        """Open or close the gate, depending on the spool's size."""
        spool = self._spool
        self._gate.full = spool.full
        if spool.full or self._gate.crowded:
            self._context.health.degrade(
                Condition.SPOOL,
                spool.shortage
                or f"the spool takes {spool.size} bytes, its limit is"
                f" {self._context.config.spool.max_size} (spool.max_size);"
                " receiving waits until the table has taken them",
            )
        else:
            self._context.health.clear(Condition.SPOOL)
        self._gate.opened.pulse()
