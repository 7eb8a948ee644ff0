"""The way into the spool: the gate that all entries pass, and the loop that syncs them every `sync_interval`.

Constraints: whoever loses nothing by waiting waits first. A file keeps its bytes; the peer of a connection keeps what it
cannot send; datagrams wait in the kernel, which drops and counts those for which it has no room. Sources wait before
they read, so that the gate takes every entry at once, whether it is open or not.

Operation: tasks wait at the `Gate` until there is room for more, in a `RoomQueue` of their kind: first come, first
served. Each entry wakes the sync loop. After each sync the loop wakes the decoder, and opens or closes the gate by
the spool's size. While the disk has no room, the loop tries again and the gate stays closed.
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
    """A queue of tasks that wait for room. The first task takes its bytes before the next task looks for room.

    If each task looked whenever there is room, a thousand connections would leave no time for anything else."""

    def __init__(self, closed: Callable[[], bool]) -> None:
        """Let nobody go on while `closed` says that there is no room."""
        self._closed = closed
        self._waiting: deque[_Waiting] = deque()

    def wake(self) -> None:
        """Let the first one look again."""
        if self._waiting:
            self._waiting[0].awake.set()

    async def wait(self) -> None:
        """Return once there is room, without a pause if there is."""
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
    """One that waits."""

    def __init__(self) -> None:
        self.awake = trio.Event()


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


RETRY_AFTER = 0.5
"""Seconds between tries while the disk has no room."""


class Syncing:
    """The loop that syncs. After each sync it sets `synced`, and calls `done` with the seconds that the sync took."""

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
            # A full spool may have room again without anything new: look from time to time.
            yield Wait(RETRY_AFTER if gate.full else math.inf, gate.dirty)
            yield Wait(self._context.config.spool.sync_interval, gate.urgent)
            gate.dirty.clear()
            gate.urgent.clear()
            yield from self.once()

    def once(self) -> Steps[None]:
        """Sync what is buffered. Wait until the disk has room, however long that takes. Once a name of the spool is lost,
        nothing becomes durable."""
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
                self._synced.set()  # a part may be durable
                return
            self._done(self._context.clock.monotonic() - begun)
            self._synced.set()
            self.admit()
            return

    def admit(self) -> None:
        """Open or close the gate by the spool's size."""
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
