"""Build the daemon from the opened files, the sources and the loops. Start and stop these parts in order.

At the start, the sources already receive while the daemon still decodes the spool from the newest checkpoint on. At a
stop, the sources first read what peers have sent, and clients get a last acknowledgement. Then the daemon syncs the
spool, and decodes and commits all remaining entries.

After a failure, `bounded` ends a process that hangs. A cancelled task waits for its worker thread, which may wait for a
disk or lack memory for its result (1 of 100 starts under `ulimit -v` hung, 2026-11-23)."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import trio

from tailrace import threads
from tailrace.clock import Clock
from tailrace.config.load import Loaded, spool_path, store_path
from tailrace.config.schema import Config
from tailrace.daemon import conditions
from tailrace.daemon.context import Context, Current, Health
from tailrace.daemon.disk import opened, refuse_foreign
from tailrace.daemon.loops import upkeep
from tailrace.daemon.loops.commit import CommitPhase, Opened
from tailrace.daemon.loops.loops import Loops
from tailrace.daemon.loops.steps import drive
from tailrace.daemon.memory import ProcessMemory
from tailrace.daemon.receiving import Configured, Receiving
from tailrace.daemon.starts import Starts
from tailrace.errors import FullError, LostError, StoreError, SyncError, causes
from tailrace.figures import Figures
from tailrace.ingest.machine import Rejected
from tailrace.service_manager.descriptors import Descriptors
from tailrace.service_manager.notify import Notifier
from tailrace.sources.listening import Listening, Place
from tailrace.sources.tail.watch import Chosen
from tailrace.standard import last_words
from tailrace.store.presence import IMPORT, RunningMarks
from tailrace.units import counted

SECONDS = 30

Failed = Callable[[BaseException], None]


@contextmanager
def bounded(message: Callable[[BaseException], str]) -> Iterator[Failed]:
    """Run a `with` block, and end the process with status 1 if the block hangs for `SECONDS` after a failure in it.

    Yield a function by which the block records a failure. Before the process ends in this way, write `message(failure)`
    to standard error."""
    failures: list[BaseException] = []

    def failed(error: BaseException) -> None:
        signal.alarm(SECONDS)  # End the process by `alarm`, which works even when no memory is free
        failures.append(error)

    def end(*_: object) -> None:
        try:
            said = message(failures[0]) if failures else "memory was refused"
            last_words(f"tailrace: {said}; a task did not end after this failure\n")
        finally:
            os._exit(1)

    before = signal.signal(signal.SIGALRM, end)
    try:
        yield failed
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


async def reporting(
    failed: Failed, work: Callable[..., Awaitable[object]], *arguments: object, **more: object
) -> None:
    """Run `work`, and pass its exception to `failed` before trio waits for other tasks to end."""
    try:
        await work(*arguments, **more)
    except BaseException as error:
        if any(not isinstance(cause, trio.Cancelled) for cause in causes(error)):
            failed(error)
        raise


class DaemonProgress(NamedTuple):
    """Counts and positions that the watchdog compares to find out whether the daemon makes progress."""

    decoded: int
    """Position in the spool up to which entries are decoded."""
    commits: int
    refusals: int
    replayed: int
    """Position in the spool up to which a start has decoded again the entries whose rows are already in the table."""

    def lives_on(self, before: DaemonProgress) -> bool:
        """Return whether the daemon has advanced since `before`: rows were committed, an operation was refused, or the
        start has decoded more."""
        return self[1:] != before[1:]


class Mode(NamedTuple):
    """How a collector runs.

    With `once`, it reads all files to their end, and ends when each source has read its input. With `last`, a stop also
    ends the sessions of all producers, which must have ended before. With `imports`, it only imports files; if one of
    its sessions is still open at the end, the collector is marked as unfinished. `watchdog_seconds` is how long the
    service manager's watchdog waits for a signal."""

    once: bool = False
    last: bool = False
    imports: bool = False
    watchdog_seconds: float | None = None


class Daemon:
    """A collector on one store. The function `collecting` creates a collector."""

    def __init__(
        self,
        disk: Opened,
        marks: RunningMarks,
        configured: Configured,
        context: Context,
        *,
        mode: Mode,
        starts: Starts | None,
        replayed: Callable[[Daemon], None],
    ) -> None:
        self.context = context
        self.current, self.health, self.clock, self.figures, *_ = context
        self.started_at = self.clock.monotonic()
        self.disk, self.marks = disk, marks
        self.spool, self.ingest = disk.spool, disk.ingest
        self.sources = configured.sources
        self.starts = starts
        self.replayed = trio.Event()
        """Set once the daemon has decoded again all spool entries whose rows the table already had at the start, so
        that the figures count all rows."""
        self.answering = trio.Event()
        """Set when the admin endpoint may answer: together with `replayed`, or earlier if decoding is suspended."""
        self.loops = Loops(
            disk, configured.sources, context, cut=self._cut, at_table=self._at_table,
            beats=not mode.once, describe=self._describe,
        )  # fmt: skip
        self._configured = configured
        self._mode = mode
        self._at_replayed = replayed

    @property
    def config(self) -> Config:
        return self.current.config

    async def run(
        self,
        stop: trio.Event,
        *,
        started: Callable[[], None],
        beside: Callable[[Receiving], Awaitable[None]] | None = None,
        failed: Failed = lambda _: None,
    ) -> None:
        """Receive, decode and commit until `stop` is set. Then stop the parts of the daemon in order.

        Call `started` when the sources receive, and run the task `beside` as long as the sources receive. If a part
        fails, call `failed` at once, and raise its exception after all tasks have ended. Raise SyncError, LostError or
        FencedError if the daemon can no longer guarantee that data is durable."""
        loops = self.loops
        ahead = await drive(loops.begin())
        watched = partial(reporting, failed)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                watched, drive, loops.syncing.run(), trio.CapacityLimiter(threads.SYNCERS)
            )
            nursery.start_soon(watched, self._decode)
            nursery.start_soon(watched, self._watch_start)
            for _ in CommitPhase:
                nursery.start_soon(watched, drive, loops.committing.run())
            nursery.start_soon(watched, drive, loops.tick())
            nursery.start_soon(watched, drive, loops.names.watch())
            nursery.start_soon(watched, self._keep_up)
            nursery.start_soon(watched, conditions.watch_state, self.ingest.budget, self.health)
            async with trio.open_nursery() as receiving:
                sources = Receiving(self._configured, self.context, loops.gate, ahead)
                begin = partial(sources.run, once=self._mode.once, ended=stop.set)
                await receiving.start(watched, begin)
                receiving.start_soon(watched, drive, loops.answer())
                loops.syncing.admit()
                self.health.started()
                if loops.heartbeats:
                    receiving.start_soon(watched, drive, loops.heartbeats.run())
                started()
                if beside:
                    receiving.start_soon(watched, beside, sources)
                # Stop when the path of a file that the daemon uses no longer leads to the file.
                loops.names.lost.add(stop.set)
                await stop.wait()
                self.health.stopping()
                await drive(loops.answer_last())
                receiving.cancel_scope.cancel()
            await watched(self._finish)
            nursery.cancel_scope.cancel()
        if loops.names.loss is not None:
            raise LostError(self._lost(loops.names.loss))

    @property
    def progress(self) -> DaemonProgress:
        position, commits = self.ingest.position, self.figures.commits.count
        return DaemonProgress(
            position, commits, self.health.refusals, min(position, self.disk.committed)
        )

    def message(self, error: BaseException) -> str:
        failures = [cause for cause in causes(error) if not isinstance(cause, trio.Cancelled)]
        if self.starts and any(isinstance(failure, MemoryError) for failure in failures):
            return str(self.starts.out_of_memory())
        return str(failures[0]) or type(failures[0]).__name__

    def write_ports(self, admin: str) -> None:
        """Write the addresses of the listeners and of the admin endpoint to the port file. Raise OSError if that fails."""
        sources = {name: source.address for name, source in self.sources.items()}
        self.marks.write_ports({"sources": sources, "admin": admin, "pid": os.getpid()})

    async def _decode(self) -> None:
        if self.starts and self.starts.rest:
            self.answering.set()
            await self.starts.wait(self.health)
        await drive(self.loops.decoding.run())

    async def _watch_start(self) -> None:
        if self.starts:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.starts.watch)
                await drive(self.loops.decoding.reached(self.loops.left))
                self.starts.end()

    async def _finish(self) -> None:
        """Decode and commit all received bytes within the time limit of a stop. If that succeeds, record on disk that
        the collector has finished, or that an import has an open session."""
        decodes = not (self.starts and self.starts.rest)
        if await drive(self.loops.finish(last=self._mode.last, decodes=decodes)):
            if self._mode.imports and self.ingest.open_sessions():
                self.marks.begin(IMPORT)
            else:
                self.marks.finish()

    def _lost(self, loss: LostError) -> str:
        """Return a message about a moved or removed file, with the number of received bytes that are not in the
        table."""
        rest = self.spool.end - self.loops.committing.committed
        if not rest:
            return f"{loss}; everything received is in the table"
        try:
            self.spool.check()
            where = f"{self.spool.directory} has them"
        except (LostError, FullError, SyncError, StoreError):
            where = f"no start finds them in {self.spool.directory}"
        return f"{loss}; {counted(rest, 'byte that came last is', 'bytes that came last are')} not in the table, and {where}"

    def _cut(self, rejected: Rejected) -> None:
        source = self.sources.get(self.ingest.source_of(rejected.number))
        if source is not None:
            source.cut(rejected.number, rejected.why)

    def _describe(self) -> dict[str, int | float | str]:
        lacking = sum(self.ingest.account(name).missing for name in self.config.sources)
        return {
            "collector": self.config.collector.name,
            "identity": self.spool.identity,
            "host": os.uname().nodename,
            "state": str(self.health.state),
            "conditions": ", ".join(sorted(self.health.conditions)),
            "uncommitted_bytes": self.spool.end - self.loops.committing.committed,
            "spool_bytes": self.spool.size,
            "missing_events": lacking,
        }

    def _at_table(self) -> None:
        self._at_replayed(self)
        self.replayed.set()
        self.answering.set()

    async def _keep_up(self) -> None:
        await self.replayed.wait()
        store, committing = store_path(self.config), self.loops.committing
        async with trio.open_nursery() as nursery:
            nursery.start_soon(conditions.watch_pending, self.ingest, self.context)
            nursery.start_soon(upkeep.run, store, self.context, lambda: committing.commits)


def raise_descriptor_limit() -> None:
    """Raise the soft limit of file descriptors to the hard limit. Only programs that use `select` need a lower one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def collecting(
    loaded: Loaded,
    clock: Clock,
    mode: Mode = Mode(),  # noqa: B008 - cannot be changed
    *,
    chosen: Mapping[str, Chosen] | None = None,
    descriptors: Descriptors | None = None,
    held: Mapping[Place, Listening] | None = None,
    memory: ProcessMemory | None = None,
    working: Callable[[], None] = lambda: None,
    replayed: Callable[[Daemon], None] = lambda _: None,
) -> Iterator[Daemon]:
    """Open a collector on a store, yield it, and close its files at the end of the block.

    - `chosen`: for each source of files, by its name: the files that it leaves out, and the sessions that a file's new
      session replaces.
    - `descriptors`: passes sockets to the service manager, which keeps the sockets open across a restart.
    - `held`: sockets that are already open for sources.
    - `memory`: if given, the daemon counts how many earlier daemons were killed during their start (see `Starts`).
    - `working`: called repeatedly during a long start.
    - `replayed`: called once, when all entries whose rows are in the table are decoded.

    Raise ConfigError if a source cannot be created, LockedError if another collector uses the store, MemoryLimitError
    if memory is short, and StoreError, SyncError, OSError or TailraceError if another resource cannot be used."""
    config = loaded.config
    context = Context(
        Current(loaded, clock), Health(), clock, Figures(), watchdog_seconds=mode.watchdog_seconds
    )
    configured = Configured(
        config, clock, once=mode.once, chosen=chosen or {},
        descriptors=descriptors or Descriptors(Notifier()), held=held or {},
    )  # fmt: skip
    refuse_foreign(config)
    threads.require()
    starts = Starts(Path(spool_path(config)), memory, clock) if memory else None
    with _panics_logged(), opened(config, clock, context.health, starts, working) as (disk, marks):
        yield Daemon(disk, marks, configured, context, mode=mode, starts=starts, replayed=replayed)


@contextmanager
def _panics_logged() -> Iterator[None]:
    """Raise StoreError in place of a panic of the Delta library, which panics if it cannot start a thread."""
    try:
        yield
    except BaseException as error:
        if panics := [each for each in causes(error) if type(each).__module__ == "pyo3_runtime"]:
            raise StoreError(
                f"{panics[0]}: raise the limit of processes (ulimit -u, TasksMax=)"
            ) from None
        raise
