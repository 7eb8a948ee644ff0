"""The composition root: puts disk, sources and loops together, starts them, and ends them in order.

Start: the sources receive while what the log holds is decoded from the newest checkpoint on. Stop: clients get a last
acknowledgement of what is durable, sources drain and close, the spool is synced, everything is decoded and
committed, the state is saved. The order guarantees that nothing is decoded before it is durable, and nothing
is released before it is committed.

`bounded` limits the time that a daemon takes to end after a failure. A task waits for its thread even when the task is
cancelled. A thread that was refused memory as it handed over its answer never gives the answer; nor does a thread that
waits for a disk (1 of 100 starts under `ulimit -v` stood still, 2026-11-23). Where no service manager watches, nobody
would end such a process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

import trio

from tailrace import threads
from tailrace.clock import Clock
from tailrace.config.load import Loaded, spool_path
from tailrace.config.schema import Config
from tailrace.daemon import conditions
from tailrace.daemon.context import Context, Current, Health
from tailrace.daemon.disk import OpenedDisk, opened, refuse_foreign
from tailrace.daemon.loops import upkeep
from tailrace.daemon.loops.commit import Opened
from tailrace.daemon.loops.loops import Loops
from tailrace.daemon.loops.steps import drive, flagged
from tailrace.daemon.memory import ProcessMemory
from tailrace.daemon.receiving import Configured, Receiving, receive
from tailrace.daemon.starts import Starts
from tailrace.errors import FullError, LostError, StoreError, SyncError, causes
from tailrace.figures import Figures
from tailrace.ingest.machine import Rejected
from tailrace.service_manager.descriptors import Descriptors
from tailrace.service_manager.notify import Notifier
from tailrace.sources.listening import Listening, Place
from tailrace.sources.tail import Chosen
from tailrace.standard import last_words
from tailrace.store.presence import IMPORT

SECONDS = 30

P = ParamSpec("P")
T = TypeVar("T")
Failed = Callable[[BaseException], None]


@contextmanager
def bounded(message: Callable[[BaseException], str]) -> Iterator[Failed]:
    """Yield a function that takes a failure. `SECONDS` after its first call the process ends with 1, if the work
    within still runs, and writes the failure's `message` to standard error."""
    failures: list[BaseException] = []

    def failed(error: BaseException) -> None:
        signal.alarm(SECONDS)  # takes no memory
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


def reporting(failed: Failed, work: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Return the work of a task such that `failed` takes its failure before other tasks are waited for.

    To be cancelled is no failure."""

    async def reporting_work(*arguments: P.args, **more: P.kwargs) -> T:
        try:
            return await work(*arguments, **more)
        except BaseException as error:
            if any(not isinstance(cause, trio.Cancelled) for cause in causes(error)):
                failed(error)
            raise

    return reporting_work


class DaemonProgress(NamedTuple):
    """How far the daemon has come."""

    decoded: int
    """Position in the spool."""
    commits: int
    refusals: int
    """See `Health`."""
    replayed: int
    """Position in the spool, up to where the table stood at the start."""

    def lives_on(self, before: DaemonProgress) -> bool:
        """Return whether anything came through since then, or it is known why not."""
        return self[1:] != before[1:]


class Mode(NamedTuple):
    """How a collector lives.

    With `once`, it ends when its sources have read what they find: files are read to their end, and
    sessions that other sources have left open stay open. With `last`, no producer outlives it: what producers
    have left open is over at the end. With `imports`, only imports have this collector: it has not finished while a
    session is open. `watchdog_seconds` is how long somebody waits for its next commit."""

    once: bool = False
    last: bool = False
    imports: bool = False
    watchdog_seconds: float | None = None


async def _nothing(_: Receiving) -> None:
    await trio.sleep_forever()


class Daemon:
    """One collector on one store, opened by `collecting`."""

    def __init__(
        self,
        disk: OpenedDisk,
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
        self.disk = disk
        self.spool, self.ingest = disk.spool, disk.ingest
        self.sources = configured.sources
        self.starts = starts
        self.replayed = trio.Event()
        """Set once the ingest is where the table stood: its figures are those of all that is stored."""
        self.answering = trio.Event()
        """Set once there are figures to tell: when `replayed` is set, or if nothing is decoded for now."""
        self.loops = Loops(
            Opened(
                disk.spool, disk.ingest, disk.table, disk.quarantine, disk.checkpoints, disk.committed,
                disk.check_store,
            ),
            configured.sources, context, cut=self._cut, at_table=self._at_table,
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
        beside: Callable[[Receiving], Awaitable[None]] = _nothing,
        failed: Failed = lambda _: None,
    ) -> None:
        """Collect until `stop` is set, then end in order; `beside` runs while sources take in. A failure is
        given to `failed` as it occurs; the function raises it once all tasks have ended.
        Raise SyncError, LostError or FencedError when going on would break a promise."""
        loops = self.loops
        ahead = await drive(loops.begin())
        watched = partial(reporting, failed)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watched(drive), loops.syncing.run())
            nursery.start_soon(watched(self._decode))
            nursery.start_soon(watched(self._watch_start))
            nursery.start_soon(watched(drive), loops.commit())
            nursery.start_soon(watched(drive), loops.committing.land())
            nursery.start_soon(watched(drive), loops.tick())
            nursery.start_soon(watched(drive), loops.names.watch())
            nursery.start_soon(watched(self._keep_up))
            nursery.start_soon(watched(conditions.watch_state), self.ingest.budget, self.health)
            async with trio.open_nursery() as receiving:
                begin = partial(
                    receive, self._configured, self.context, loops.gate, ahead,
                    once=self._mode.once, ended=stop.set,
                )  # fmt: skip
                sources = await receiving.start(watched(begin))
                receiving.start_soon(watched(drive), loops.answer())
                loops.syncing.admit()
                self.health.started()
                if loops.heartbeats:
                    receiving.start_soon(watched(drive), loops.heartbeats.run())
                started()
                receiving.start_soon(watched(beside), sources)
                receiving.start_soon(self._end_with_names, stop)
                await stop.wait()
                self.health.stopping()
                await drive(loops.answer_last())
                receiving.cancel_scope.cancel()
            await watched(self._finish)()
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
        """Return the sentence that says why the daemon failed."""
        failures = [cause for cause in causes(error) if not isinstance(cause, trio.Cancelled)]
        if self.starts and any(isinstance(failure, MemoryError) for failure in failures):
            return str(self.starts.out_of_memory())
        return str(failures[0]) or type(failures[0]).__name__

    def write_ports(self, admin: str) -> None:
        """Write the file that says where we listen. Raise OSError."""
        sources = {name: source.address for name, source in self.sources.items()}
        self.disk.marks.write_ports({"sources": sources, "admin": admin, "pid": os.getpid()})

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
        if await drive(self.loops.finish(last=self._mode.last, decodes=decodes)):
            if self._mode.imports and self.ingest.open_sessions():
                self.disk.marks.begin(IMPORT)
            else:
                self.disk.marks.finish()

    async def _end_with_names(self, stop: trio.Event) -> None:
        """Stop once a name on disk is lost."""
        await flagged(self.loops.names.lost)
        stop.set()

    def _lost(self, loss: LostError) -> str:
        """Return the sentence that says which name was lost, and what is stored of what came."""
        rest = self.spool.end - self.loops.committing.committed
        if not rest:
            return f"{loss}; everything received is in the table"
        try:
            self.spool.check()
            where = f"{self.spool.directory} has them"
        except (LostError, FullError, SyncError, StoreError):
            where = f"no start finds them in {self.spool.directory}"
        return f"{loss}; {rest} bytes that came last are not in the table, and {where}"

    def _cut(self, rejected: Rejected) -> None:
        """Cut a session's peer."""
        source = self.sources.get(self.ingest.source_of(rejected.number))
        if source is not None:
            source.cut(rejected.number, rejected.why)

    def _describe(self) -> dict[str, int | float | str]:
        """Return what a heartbeat tells readers of the table, who may have no other way to ask."""
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
        """Keep up the table, and look at what is pending, from where the table stood on."""
        await self.replayed.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(conditions.watch_pending, self.ingest, self.context)
            committing = self.loops.committing
            nursery.start_soon(
                upkeep.run, self.disk.store, self.context, lambda: committing.commits
            )


@contextmanager
def collecting(
    loaded: Loaded,
    clock: Clock,
    mode: Mode = Mode(),  # noqa: B008 - cannot be changed
    *,
    chosen: Chosen | None = None,
    descriptors: Descriptors | None = None,
    held: Mapping[Place, Listening] | None = None,
    memory: ProcessMemory | None = None,
    working: Callable[[], None] = lambda: None,
    replayed: Callable[[Daemon], None] = lambda _: None,
) -> Iterator[Daemon]:
    """Open a collector on its store, and close what is on disk at the end.

    Sources of files read the `chosen` files, each for itself, or all files if None is given.
    `descriptors` keep the sources' sockets while no process has them, and sockets in `held` are there
    already. With `memory`, starts that do not fit into it are counted (see `starts`). `working` is called
    as a long start goes on, `replayed` when the ingest is where the table stood, before anything else is decoded.

    Raise ConfigError, LockedError, StoreError, SyncError, MemoryLimitError, OSError, or TailraceError without threads."""
    config = loaded.config
    context = Context(
        Current(loaded, clock), Health(), clock, Figures(), watchdog_seconds=mode.watchdog_seconds
    )
    configured = Configured(
        config, clock, once=mode.once, chosen=chosen,
        descriptors=descriptors or Descriptors(Notifier()), held=held or {},
    )  # fmt: skip
    refuse_foreign(config)
    threads.require()
    starts = Starts(Path(spool_path(config)), memory, clock) if memory else None
    with _panics_logged(), opened(config, clock, context.health, starts, working) as disk:
        yield Daemon(disk, configured, context, mode=mode, starts=starts, replayed=replayed)


@contextmanager
def _panics_logged() -> Iterator[None]:
    """Raise StoreError in place of a panic of the library that writes the table. It panics if it cannot start a
    thread."""
    try:
        yield
    except BaseException as error:
        if panics := [each for each in causes(error) if type(each).__module__ == "pyo3_runtime"]:
            raise StoreError(
                f"{panics[0]}: raise the limit of processes (ulimit -u, TasksMax=)"
            ) from None
        raise
