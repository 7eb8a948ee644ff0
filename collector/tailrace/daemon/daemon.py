"""The composition root: opens what is on disk, starts the loops, and ends them in order.

Start: locks, spool recovery, table validation, then the sources, while what the log holds is decoded
from the newest checkpoint on. What another version left is upgraded before the sources start.
Stop: clients are told once more what is durable, sources drain and close, the spool is synced,
everything is decoded and committed, the state is saved. What the order guarantees: nothing is decoded
that is not durable, nothing is released that is not committed.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import trio

from tailrace.away import make_way
from tailrace.clock import Clock
from tailrace.config.load import Loaded, spool_path, store_path
from tailrace.config.schema import Config
from tailrace.daemon import upgrade
from tailrace.daemon.conditions import pending, strain
from tailrace.daemon.current import Current
from tailrace.daemon.health import Health
from tailrace.daemon.loops import upkeep
from tailrace.daemon.loops.decode import readable
from tailrace.daemon.loops.driving import drive
from tailrace.daemon.loops.heartbeat import Heartbeats
from tailrace.daemon.loops.loops import Loops, Opened
from tailrace.daemon.memory_limit import Memory
from tailrace.daemon.receiving import Receiving
from tailrace.daemon.replay import refills, replay, restored
from tailrace.daemon.starts import Starts
from tailrace.errors import MemoryLimitError, StoreError, causes
from tailrace.figures import Condition, Figures
from tailrace.service_manager.descriptors import Descriptors
from tailrace.service_manager.notify import Notifier
from tailrace.sources.listening import Listening
from tailrace.sources.places import Place
from tailrace.sources.tail import Chosen
from tailrace.spool.checkpoint import Checkpoint, Checkpoints
from tailrace.spool.spool import Spool
from tailrace.store import running
from tailrace.store.lock import DirectoryLock
from tailrace.store.quarantine import Quarantine
from tailrace.store.table import Table

logger = logging.getLogger(__name__)


class Progress(NamedTuple):
    """What has got done so far."""

    decoded: int
    """Position in the spool."""
    commits: int
    refusals: int
    """See `Health`."""
    replayed: int
    """Position in the spool, up to where the table stood at the start."""

    def lives_on(self, before: Progress) -> bool:
        """Whether anything came through since then, or it is known why not."""
        return self[1:] != before[1:]


def _nothing() -> None:
    """Nobody waits for the start."""


class Daemon:
    """One collector on one store. Enter it, then `run`.

    With `once`, it ends when its sources have read what they find: files are read to their end, and
    sessions that other sources have left open stay open. It then reads the `chosen` files, each for
    itself, or all files if None is given. With `last`, no producer outlives it: what producers have
    left open is over at the end.

    `descriptors` keep its sources' sockets while no process has them, and sockets in `held` are there
    already; `watchdog_seconds` is how long somebody waits for its next commit, and `working` is called
    as a long start goes on. With `memory`, starts that do not fit into it are counted (see `starts`)."""

    def __init__(
        self,
        loaded: Loaded,
        clock: Clock,
        *,
        once: bool = False,
        chosen: Chosen | None = None,
        last: bool = False,
        descriptors: Descriptors | None = None,
        watchdog_seconds: float | None = None,
        working: Callable[[], None] = _nothing,
        held: Mapping[Place, Listening] | None = None,
        memory: Memory | None = None,
    ) -> None:
        config = loaded.config
        self.current = Current(loaded, clock)
        self.clock = clock
        self.started_at = clock.monotonic()
        self.health = Health()
        self.figures = Figures()
        self.store = store_path(config)
        self.spool_directory = Path(spool_path(config))
        self.local = "://" not in self.store
        self._last = last
        self._watchdog_seconds = watchdog_seconds
        self._working = working
        self.heartbeats: Heartbeats | None = None
        self.loops: Loops
        self.replayed = trio.Event()
        """Set once the ingest is where the table stood: its figures are those of all that is stored."""
        self._once = once
        self.receiving = Receiving(
            self.current, clock, once=once, chosen=chosen,
            descriptors=descriptors or Descriptors(Notifier()), held=held or {},
        )  # fmt: skip
        self.answering = trio.Event()
        """Set once there are figures to tell: when `replayed` is set, or if nothing is decoded for now."""
        self.starts = Starts(self.spool_directory, memory, clock) if memory else None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Open what is on disk. Raise LockedError, StoreError, SyncError or OSError."""
        with self._stack:
            self._stack.push(self._over)
            if self.local:
                try:
                    Path(self.store).mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    raise StoreError(f"{self.store}: {error.strerror}") from error
                self._stack.enter_context(DirectoryLock(Path(self.store)))
            self.checkpoints = Checkpoints(self.spool_directory)
            if self.starts:
                self.checkpoints.size_max = self.starts.readable
            upgrade.refuse_unknown(self.checkpoints)
            self.spool = Spool.open(self.spool_directory, self.config.spool, self.clock)
            self._stack.callback(self.spool.close)
            if self.starts:
                self.starts.begin(self.checkpoints)
            self.table = Table.open(
                self.store,
                options=self.config.store.options,
                collector=self.spool.identity,
                config=self.config.store,
                clock=self.clock,
                refills=partial(refills, self.spool, self.checkpoints),
            )
            for reason in self.table.recovery.reasons:
                logger.warning("%s", reason)
            if self.table.recovery.aside:
                self.health.degrade(Condition.DAMAGE, "; ".join(self.table.recovery.reasons))
            running.begin(self._data())
            self.quarantine = Quarantine(self._data() / "quarantine", self.config.quarantine)
            self.committed = self.table.position() or 0
            """Where the table stood when the daemon started."""
            checkpoint = self.checkpoints.newest(self.committed)
            self._tell_too_large(checkpoint)
            self.ingest = restored(self.spool, checkpoint, self.committed)
            self.ingest.paces.limit(self.config.metrics.series_max)
            if upgrade.is_wanted(self.table, checkpoint):
                self._upgrade(checkpoint)
            if self.starts:
                self.starts.decoding()
            self._stack = self._stack.pop_all()
        return self

    def _tell_too_large(self, checkpoint: Checkpoint | None) -> None:
        """Raise MemoryLimitError where there is no start without a checkpoint that memory has no room for."""
        if self.starts is None or not self.checkpoints.too_large:
            return
        message = f"{self.checkpoints.too_large[0]}, which do not fit: {self.starts.advice()}"
        if checkpoint is None and self.spool.begin > 0:
            raise MemoryLimitError(message)
        begin = checkpoint.position if checkpoint else 0
        logger.warning(
            "%s; the start decodes the spool from position %d on instead", message, begin
        )

    @property
    def config(self) -> Config:
        return self.current.config

    def __exit__(
        self,
        type_: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(type_, error, traceback)

    def _over(self, _: object, error: BaseException | None, __: object) -> None:
        """Note that this start did not end by being killed. Raise MemoryLimitError where memory ran out."""
        if self.starts is None:
            return
        if error is not None and any(isinstance(cause, MemoryError) for cause in causes(error)):
            raise self.starts.out_of_memory() from error
        self.starts.came_through()

    async def run(
        self,
        stop: trio.Event,
        *,
        started: Callable[[], None],
        replayed: Callable[[], None] = lambda: None,
        beside: Callable[[], Awaitable[None]] = trio.sleep_forever,
    ) -> None:
        """Collect until `stop` is set, then end in order; `beside` runs while sources take in.
        `replayed` is called when the ingest is where the table stood, before anything else is decoded.
        Raise SyncError or FencedError when going on would break a promise."""
        loops = self.loops = Loops(
            self._opened(), self.receiving.sources, self.current, self.clock, health=self.health,
            figures=self.figures, cut=self.receiving.cut, at_table=partial(self._at_table, replayed),
            watchdog_seconds=self._watchdog_seconds, beats=not self._once,
        )  # fmt: skip
        self.committing = loops.committing
        ahead = await drive(loops.begin())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drive, loops.syncing.run())
            nursery.start_soon(self._decode)
            nursery.start_soon(self._watch_start)
            nursery.start_soon(drive, loops.commit())
            nursery.start_soon(drive, loops.tick())
            nursery.start_soon(self._keep_up)
            nursery.start_soon(strain.run, self.ingest.budget, self.health)
            async with trio.open_nursery() as receiving:
                begin = partial(
                    self.receiving.run, self.spool, loops.gate, self.ingest, ahead, ended=stop.set
                )
                await receiving.start(begin)
                receiving.start_soon(drive, loops.answer())
                loops.syncing.admit()
                self.health.started()
                self._beat(receiving)
                started()
                receiving.start_soon(beside)
                await stop.wait()
                self.health.stopping()
                await drive(loops.say_last())
                receiving.cancel_scope.cancel()
            await self._finish()
            nursery.cancel_scope.cancel()

    async def _decode(self) -> None:
        """Decode until cancelled, as soon as this start may."""
        if self.starts and self.starts.rest:
            self.answering.set()
            await self.starts.wait(self.health)
        await drive(self.loops.decoding.run())

    async def _watch_start(self) -> None:
        """Watch the start until what earlier lives left in the log is decoded."""
        if self.starts:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.starts.watch)
                await drive(self.loops.decoding.reached(self.loops.left))
                self.starts.came_through()

    async def _finish(self) -> None:
        """Commit all that was received, as far as there is time."""
        decodes = not (self.starts and self.starts.rest)
        if await drive(self.loops.finish(last=self._last, decodes=decodes)):
            running.finish(self._data())

    @property
    def progress(self) -> Progress:
        position, commits = self.ingest.position, self.figures.commits.count
        return Progress(position, commits, self.health.refusals, min(position, self.committed))

    def write_ports(self, admin: str) -> Path:
        """The file that says where we listen, for those who configured port 0."""
        path = self._data() / "ports.json"
        sources = {name: source.address for name, source in self.receiving.sources.items()}
        temporary = path.with_suffix(".tmp")
        make_way(path)
        temporary.write_text(json.dumps({"sources": sources, "admin": admin, "pid": os.getpid()}))
        temporary.replace(path)
        return path

    def _data(self) -> Path:
        """Local directory of what is ours alone: the store's own, or the spool's for a URL."""
        return Path(self.store) if self.local else self.spool_directory

    def _upgrade(self, checkpoint: Checkpoint | None) -> None:
        """Change what another version left, once all of it is known to be readable."""
        read = partial(readable, self.spool, self.ingest, self.health, self.committed)
        replay(self.ingest, self.committed, read=read, working=self._working)
        upgrade.upgrade_table(self.table)
        if checkpoint:
            upgrade.upgrade_state(self.checkpoints, checkpoint)

    def _at_table(self, replayed: Callable[[], None]) -> None:
        replayed()
        self.replayed.set()
        self.answering.set()

    async def _keep_up(self) -> None:
        """Keep up the table, and look at what is pending, from where the table stood on."""
        await self.replayed.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pending.run, self.ingest, self.current, self.health, self.clock)
            if self.local:
                nursery.start_soon(upkeep.run, self)

    def _opened(self) -> Opened:
        return Opened(
            self.spool, self.ingest, self.table, self.quarantine, self.checkpoints, self.committed
        )

    def _beat(self, nursery: trio.Nursery) -> None:
        self.heartbeats = self.loops.heartbeats
        if self.heartbeats:
            nursery.start_soon(drive, self.heartbeats.run())
