"""Run a collector around one program: listen, run the program, wait for its events, and write the run certificate.

Once the program has ended, the collector runs a second time for a moment, to read trace files to their end. If the
collector fails, the program still runs to its end.
"""

from __future__ import annotations

import glob
import os
import platform
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path

import msgspec
import trio
from msgspec import structs

from tailrace import __version__, threads
from tailrace.clock import Clock, SystemClock
from tailrace.config.load import Loaded, store_path
from tailrace.config.schema import Config, HeartbeatConfig, TailConfig
from tailrace.daemon.daemon import Daemon, Mode, collecting
from tailrace.daemon.receiving import Receiving
from tailrace.daemon.status import source_status, status
from tailrace.errors import ConfigError, TailraceError, causes, first_failure
from tailrace.figures import Status
from tailrace.filesystem import spelled
from tailrace.importing.discover import Why, find, shows_nothing
from tailrace.query.engine import Engine
from tailrace.run import program
from tailrace.run.certificate import (
    KIND,
    VERSION,
    Certificate,
    Machine,
    Program,
    digest,
    stream_evidence,
    total,
    tracing_cost,
)
from tailrace.run.program import CUT_OFF, NOT_TRACED, RunDone, Warn
from tailrace.run.surroundings import RunToken, located, made, sources, unguarded, variables
from tailrace.sources.source import Refusal
from tailrace.sources.tail.watch import Chosen
from tailrace.store.durable import occupy_thread

SETTLE_SECONDS = 0.5
SETTLE_MOST = 60.0
LOOK_SECONDS = 0.05

OF_OTHERS = (Refusal.USER, Refusal.USER_UNKNOWN, Refusal.NO_TOKEN, Refusal.WRONG_TOKEN)

FOR_ROOM = (
    Refusal.DESCRIPTORS, Refusal.CONNECTIONS, Refusal.CONNECTIONS_OF_ADDRESS, Refusal.CONNECTIONS_OF_USER, Refusal.NEW_PEERS
)  # fmt: skip


class Collecting(ABC):
    """Runs a collector beside an activity, such as a program, and stops the collector when the activity has ended.
    `failure` is the exception that ended the collector early, or None."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.refused: dict[str, int] = {}
        """Number of refused connections and datagrams of other users, by cause."""
        self.no_room: dict[str, int] = {}
        """Number of connections and datagrams that were refused because a limit was reached, by cause."""
        self._stop = trio.Event()
        self._ready = trio.Event()

    async def main(self, daemon: Daemon) -> None:
        """Run the collector and, at the same time, `_run`. Return when both have ended. If the collector fails, still
        wait for `_run`. If the collector's worker threads cannot start, run neither of them."""
        try:
            await threads.hold()
        except TailraceError as error:
            self.failure = error
            return
        async with trio.open_nursery() as beside:
            beside.start_soon(threads.occupy, partial(occupy_thread, daemon.spool.directory))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._collect, daemon)
                await self._ready.wait()
                if self.failure is None:
                    await self._run(daemon)
                self._stop.set()
            self.refused = _refused(daemon, OF_OTHERS)
            self.no_room = _refused(daemon, FOR_ROOM)
            beside.cancel_scope.cancel()

    async def _collect(self, daemon: Daemon) -> None:
        try:
            await daemon.run(self._stop, started=self._ready.set, beside=self._receive)
        except* Exception as group:  # noqa: BLE001 - the program runs on after any error
            self.failure = next(error for error in causes(group) if isinstance(error, Exception))
        finally:
            self._ready.set()

    @abstractmethod
    async def _run(self, daemon: Daemon) -> None:
        """Run the activity beside the collector, such as a program. When this method returns, the collector stops."""

    async def _receive(self, _: Receiving) -> None:
        # A subclass overrides this method to change the sources while they receive data.
        await trio.sleep_forever()

    async def _settle(self, daemon: Daemon) -> None:
        """Wait until no data has arrived for `SETTLE_SECONDS`, but at most `SETTLE_MOST` seconds."""
        with trio.move_on_after(SETTLE_MOST):
            before, quiet_since = _received(daemon), trio.current_time()
            while trio.current_time() - quiet_since < SETTLE_SECONDS:
                await trio.sleep(LOOK_SECONDS)
                now = _received(daemon)
                if now != before:
                    before, quiet_since = now, trio.current_time()


class Tracing(Collecting):
    """A collector that runs beside one program. `status` is the program's exit status, or None if the program did
    not run. `refusal` is the error that prevented its start."""

    def __init__(self, arguments: Sequence[str], traces: Path, token: RunToken) -> None:
        super().__init__()
        self.status: int | None = None
        self.refusal: ConfigError | None = None
        self._arguments = arguments
        self._traces = traces
        self._token = token

    async def _run(self, daemon: Daemon) -> None:
        addresses = {name: source.address for name, source in daemon.sources.items()}
        try:
            for directory in made(self._traces):
                directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self.failure = error
            return
        store = located(daemon.config)
        given = variables(self._traces, os.environ, addresses, self._token.text, store)
        try:
            self.status = await program.run(self._arguments, given)
        except ConfigError as error:
            self.refusal = error
            return
        if self.failure is None:
            await self._settle(daemon)


def _refused(daemon: Daemon, causes: Sequence[Refusal]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for source in daemon.sources.values():
        refused = source.figures().refused
        found.update({cause: refused[cause] for cause in causes if cause in refused})
    return dict(found)


def _received(daemon: Daemon) -> tuple[int, ...]:
    figures = [source.figures() for source in daemon.sources.values()]
    return tuple(figure.bytes + figure.queue_bytes for figure in figures)


PARTS = ("msgspec", "deltalake", "duckdb", "trio")


class RunRequest(msgspec.Struct, kw_only=True):
    """The program to run, and the settings of the run. `files` are trace files to follow, as FORMAT=PATH. `traces`
    is the directory into which tracers write by default. With `require`, the program does not start unless it is
    traced."""

    arguments: Sequence[str]
    files: Sequence[str]
    max_loss: int
    traces: Path
    require: bool


def run(loaded: Loaded, wanted: RunRequest, warn: Warn) -> RunDone:
    """Run the program, collect its events and certify what was stored. Raise ConfigError if the program does not
    exist; with `wanted.require`, also any error that keeps the collector from starting."""
    clock = SystemClock()
    token = RunToken.drawn()
    found = sources(wanted.traces, os.environ, wanted.files, token)
    for problem in unguarded(found):
        warn("events of other users are not refused", TailraceError(problem))
    # Switch heartbeats off, because the table of a run shall contain only the program's events.
    config = structs.replace(loaded.config, sources=found, heartbeat=HeartbeatConfig(interval=None))
    began = clock.wall_ns()
    around = Tracing(wanted.arguments, wanted.traces, token)
    collect(loaded._replace(config=config), clock, around)
    if around.refusal is not None:
        raise around.refusal
    if around.status is None:
        failure = around.failure or TailraceError("the collector ended before it listened")
        if wanted.require:
            raise failure
        warn(NOT_TRACED, failure)
        return program.untraced(wanted.arguments)
    if around.failure is not None:
        warn(CUT_OFF, around.failure)
        return RunDone(around.status)
    about = Program(
        arguments=[*map(spelled, wanted.arguments)], exit_status=around.status,
        started=began, ended=clock.wall_ns(),
    )  # fmt: skip
    tails = {name: source for name, source in found.items() if isinstance(source, TailConfig)}
    try:
        read_rest(loaded, structs.replace(config, sources=dict(tails)), clock)
        empty = empty_traces(tails.values(), began)
        certificate = certify(loaded, about, wanted.max_loss, around.no_room, empty)
        return RunDone(around.status, certificate, refused=around.refused)
    except Exception as error:  # noqa: BLE001 - the program's exit status must be returned
        warn(CUT_OFF, error)
        return RunDone(around.status)


def empty_traces(tails: Iterable[TailConfig], since: int) -> list[str]:
    """Return the paths of the followed trace files that have no content, or that are missing although their metadata
    name them. Leave out a file that was last written before `since` (Unix ns), unless the configuration names this very
    file.

    A tracer that keeps events in memory creates its file at once. If its process is killed, the file stays empty, or
    has only the beginning of a compressed member.
    """
    found: set[str] = set()
    named = {spelled(path) for tail in tails for path in tail.paths}
    for tail in tails:
        there = (path for pattern in tail.paths for path in glob.glob(pattern))  # noqa: PTH207 - they are absolute
        paths = [Path(path) for path in there if os.path.isdir(path) or os.path.isfile(path)]  # noqa: PTH112, PTH113 - these raise no error
        traces, left_out, _ = find(paths, tail.format, unreadable=True)
        hollow = {Why.EMPTY, Why.ABSENT}
        found.update(left.path for left in left_out if left.trace and left.why in hollow)
        found.update(spelled(f) for files in traces.values() for f in files if shows_nothing(f))
    for path in found - named:
        with suppress(OSError):
            if Path(path).stat().st_mtime_ns < since:
                found.remove(path)
    return sorted(found)


def certify(
    loaded: Loaded, about: Program, max_loss: int, no_room: dict[str, int], empty: list[str]
) -> Certificate:
    """Return a certificate of all sessions in the store that were opened or closed after the program's start, with
    the refusals `no_room` and the paths of empty trace files."""
    store = store_path(loaded.config)
    engine = Engine(store, loaded.config.store.options)
    try:
        began = about.started
        since = f"SELECT session FROM sessions WHERE opened >= {began} OR closed_at >= {began}"  # noqa: S608 - a number
        sessions = {session for (session,) in engine.rows(since)}
        streams, tracing = stream_evidence(engine, sessions), tracing_cost(engine, sessions)
    finally:
        engine.close()
    system = os.uname()
    machine = Machine(
        host=system.nodename, system=system.sysname, release=system.release,
        architecture=system.machine, processors=os.cpu_count() or 0,
    )  # fmt: skip
    versions = {"tailrace": __version__, "python": platform.python_version()}
    certificate = Certificate(
        kind=KIND, version=VERSION, program=about, machine=machine,
        versions=versions | {part: version(part) for part in PARTS},
        store=spelled(located(loaded.config)),
        max_loss=max_loss, totals=total(streams, no_room, empty), streams=streams, no_room=no_room, empty=empty,
        tracing=tracing if tracing.processes else None,
    )  # fmt: skip
    certificate.sha256 = digest(certificate).hex()
    return certificate


def collect(loaded: Loaded, clock: Clock, around: Collecting) -> None:
    """Run a collector beside an activity, such as a program. Store an error of the collector in `around.failure`."""
    try:
        with collecting(loaded, clock, Mode(last=True)) as daemon:
            trio.run(around.main, daemon)
    except Exception as error:  # noqa: BLE001 - the program runs after any error here
        around.failure = around.failure or error


def read_rest(
    loaded: Loaded,
    config: Config,
    clock: Clock,
    *,
    last: bool = False,
    chosen: Mapping[str, Chosen] | None = None,
) -> Status:
    """Run the collector a second time, to read files to their end and to close their sessions. With `last`, it closes
    all sessions of the store. `chosen` has, by the name of a source, the files that the source leaves out. Return the
    last status of this second run."""
    loaded_again, mode = loaded._replace(config=config), Mode(once=True, last=last)
    with collecting(loaded_again, clock, mode, chosen=chosen) as daemon:

        async def main() -> None:
            await daemon.run(trio.Event(), started=lambda: None)

        try:
            trio.run(main)
        except* TailraceError as group:
            raise first_failure(group) from None
        found = status(daemon)
        found.sources = {
            name: source_status(daemon, name, source)
            for name, source in loaded.config.sources.items()
        }
        return found
