"""Let sources wait until the spool has free space, and sync the spool every `sync_interval`.

Files and connections wait first, because they lose nothing: peers keep the bytes. Datagrams wait in the kernel, which
drops and counts datagrams when its buffer is full. A source waits before it reads; bytes that it has read are appended
in any case."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import trio

from tailrace.daemon.context import Context
from tailrace.daemon.loops.acknowledge import HeldNames
from tailrace.daemon.loops.steps import Steps, Wait, Work
from tailrace.errors import FullError, LostError
from tailrace.figures import Condition
from tailrace.flags import Flag
from tailrace.ingest.machine import Ingest
from tailrace.sources.source import CHUNK_MAX
from tailrace.spool.spool import BUFFER_MAX, Spool


class RoomQueue:
    """A queue of tasks that wait for free space in the spool."""

    def __init__(self, closed: Callable[[], bool]) -> None:
        """Create a queue whose tasks wait while `closed` returns True."""
        self._closed = closed
        self._waiting: deque[_Waiting] = deque()

    def wake(self) -> None:
        if self._waiting:
            self._waiting[0].awake.set()

    # Only the first of the waiting tasks checks for space, because the checks of a thousand connections would leave no
    # time for other work.
    async def wait(self) -> None:
        """Wait until the spool has free space and all tasks that were in the queue earlier have left it."""
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
    def __init__(self) -> None:
        self.awake = trio.Event()


BEHIND_MAX = 32 * CHUNK_MAX
"""Number of received bytes not yet decoded, above which sources of files stop reading. Entries are decoded in order, so
bytes of files delay all other rows: by at most 0.2 s if a compiled kernel decodes 100 MB/s."""

_RESERVE = 64 * 2**20
"""Number of bytes in the spool that are reserved for datagrams; at most an eighth of the spool."""


class Gate:
    """Decides which sources may append to the spool, depending on the spool's free space and on how far `ingest` has
    decoded the spool."""

    def __init__(self, spool: Spool, ingest: Ingest, store_refuses: Callable[[], bool]) -> None:
        """Create a gate to the spool. `store_refuses` returns whether the table refuses rows."""
        self.opened = Flag()
        """Flag that is set and cleared at once when the spool may have free space again, to wake the waiting tasks."""
        self.full = False
        """Whether the spool has reached its maximum size, or its disk is full."""
        self.of_datagrams = RoomQueue(lambda: self.shut)
        self.of_connections = RoomQueue(lambda: self.closed)
        self.of_files = RoomQueue(lambda: self.behind)
        self.turned = Flag()
        """Flag that is set and cleared at once when entries of the spool have been decoded."""
        for queue in (self.of_datagrams, self.of_connections, self.of_files):
            self.opened.add(queue.wake)
        self.turned.add(self.of_files.wake)
        self.spool = spool
        self.ingest = ingest
        self._store_refuses = store_refuses
        self._held_max = spool.held_max - min(_RESERVE, spool.held_max // 8)

    @property
    def shut(self) -> bool:
        """Return whether all sources must stop reading, even sources of datagrams."""
        spool = self.spool
        return self.full or spool.held > spool.held_max or spool.buffered > BUFFER_MAX

    @property
    def closed(self) -> bool:
        """Return whether connections and files must not be read: the spool is nearly full, or its disk is slow."""
        return self.wants_release or self.spool.buffered > BUFFER_MAX * 3 // 4

    @property
    def wants_release(self) -> bool:
        """Return whether connections wait for space in the spool. A checkpoint then lets the spool remove segments."""
        # Request no checkpoint because of a slow disk: the checkpoint would add to its load.
        return self.full or self.crowded

    @property
    def crowded(self) -> bool:
        """Return whether all space that is left in the spool is reserved for datagrams."""
        return self.spool.held > self._held_max

    @property
    def behind(self) -> bool:
        """Return whether files must not be read, because connections must not be read either, or because too many bytes
        are not decoded yet."""
        undecoded = self.spool.end - self.ingest.position
        # While the table refuses rows, decoding stands still. Then undecoded bytes are no reason to stop reading files.
        return self.closed or (undecoded > BEHIND_MAX and not self._store_refuses())


RETRY_AFTER = 0.5
"""Time (seconds) between two tries to sync while the disk is full."""


class Syncing:
    """The loop that syncs the spool. After each sync it sets `synced`, and calls `done` with the duration (seconds)."""

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
        self._lost = False

    def run(self) -> Steps[None]:
        """Sync the spool until this generator is closed, also while the disk is full. Raise SyncError if a sync
        fails."""
        spool, context = self._spool, self._context
        while True:
            # While the disk is full, also sync without a new entry, because the disk may have free space again.
            yield Wait(RETRY_AFTER if self._gate.full else math.inf, spool.dirty)
            yield Wait(context.config.spool.sync_interval, spool.urgent)
            spool.dirty.clear()
            spool.urgent.clear()
            begun = context.clock.monotonic()
            try:
                yield Work(spool.sync)
            except FullError as error:
                self._gate.full = True
                refusal = f"{error}; receiving waits until it can be written"
                context.health.refuse(Condition.SPOOL, refusal)
                yield Wait(RETRY_AFTER)
                spool.dirty.set()
                spool.urgent.set()
            except LostError as error:
                self._lost = True
                self._names.lose(error)
                # Wake the decoding, because the sync may have made some entries durable before it failed.
                self._synced.set()
            else:
                self._done(context.clock.monotonic() - begun)
                self._synced.set()
                self.admit()

    def all_synced(self) -> Steps[None]:
        """Wait until all spool entries that were appended before this call are synced, or the files of the spool are
        lost."""
        spool = self._spool
        end = spool.end
        spool.hurry()
        while spool.durable < end and not self._lost:
            yield Wait(RETRY_AFTER, self._gate.opened)

    def admit(self) -> None:
        """Let sources append to the spool or make them wait, depending on how much space the spool has."""
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
