"""A collector around one program: listen, run it, wait until all it sent is here, certify.

Files are read to their end by a second, short life of the collector on the same store: what a
restarted daemon does anyway.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec
import trio
from msgspec import structs

from tailrace import __version__
from tailrace.clock import Clock, SystemClock
from tailrace.config.load import Loaded, store_path
from tailrace.config.schema import Config, HeartbeatConfig, TailConfig
from tailrace.errors import TailraceError
from tailrace.model.spelling import spelled
from tailrace.pipeline.daemon import Daemon
from tailrace.pipeline.service import first_failure, tamed_garbage_collection
from tailrace.query.engine import Engine
from tailrace.run import program
from tailrace.run.certificate import KIND, VERSION, Certificate, Machine, Program, digest, total
from tailrace.run.evidence import collect
from tailrace.run.surroundings import made, sources, variables

SETTLE_SECONDS = 0.5
SETTLE_MOST = 60.0
LOOK_SECONDS = 0.05

PARTS = ("msgspec", "deltalake", "duckdb", "trio")


class Run(msgspec.Struct, kw_only=True):
    """What to run, and how. `files` are FORMAT=PATH; `traces` is where tracers are told to write."""

    arguments: Sequence[str]
    files: Sequence[str]
    max_loss: int
    traces: Path


def run(loaded: Loaded, wanted: Run) -> Certificate:
    """Run it and certify what came. Raise TailraceError for what prevents it."""
    clock = SystemClock()
    found = sources(wanted.traces, os.environ, wanted.files)
    # What a run leaves behind is the program's, and nothing of ours.
    config = structs.replace(loaded.config, sources=found, heartbeat=HeartbeatConfig(interval=None))
    began = clock.wall_ns()
    tails = {name: source for name, source in found.items() if isinstance(source, TailConfig)}
    with tamed_garbage_collection():
        status = _collect(loaded, config, clock, wanted)
        ended = clock.wall_ns()
        _finish(loaded, structs.replace(config, sources=dict(tails)), clock)
    about = Program(
        arguments=[*map(spelled, wanted.arguments)], exit_status=status, started=began, ended=ended
    )
    return certify(loaded, about, wanted.max_loss)


def certify(loaded: Loaded, about: Program, max_loss: int) -> Certificate:
    """A certificate of all sessions since the program was started."""
    store = store_path(loaded.config)
    engine = Engine(store, loaded.config.store.options)
    try:
        began = about.started
        since = f"SELECT session FROM sessions WHERE opened >= {began} OR closed_at >= {began}"  # noqa: S608 - a number
        streams = collect(engine, {session for (session,) in engine.rows(since)})
    finally:
        engine.close()
    certificate = Certificate(
        kind=KIND, version=VERSION, program=about, machine=_machine(), versions=_versions(),
        store=spelled(str(Path(store).absolute())) if "://" not in store else store,
        max_loss=max_loss, totals=total(streams), streams=streams,
    )  # fmt: skip
    certificate.sha256 = digest(certificate).hex()
    return certificate


def _collect(loaded: Loaded, config: Config, clock: Clock, wanted: Run) -> int:
    """One life of a collector around the program; the program's exit status."""
    with Daemon(loaded._replace(config=config), clock, last=True) as daemon:
        work = _Around(daemon, wanted)
        try:
            trio.run(work.main)
        except* TailraceError as group:
            raise first_failure(group) from None
        return work.status


def _finish(loaded: Loaded, config: Config, clock: Clock) -> None:
    """Another life, in which files are read to their end and their sessions closed."""
    with Daemon(loaded._replace(config=config), clock, once=True) as daemon:

        async def main() -> None:
            await daemon.run(trio.Event(), started=lambda: None)

        try:
            trio.run(main)
        except* TailraceError as group:
            raise first_failure(group) from None


class _Around:
    def __init__(self, daemon: Daemon, wanted: Run) -> None:
        self.status = 0
        self._daemon = daemon
        self._wanted = wanted
        self._stop = trio.Event()
        self._ready = trio.Event()

    async def main(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._work)
            await self._daemon.run(self._stop, started=self._ready.set)

    async def _work(self) -> None:
        await self._ready.wait()
        addresses = {
            name: source.address for name, source in self._daemon.receiving.sources.items()
        }
        for directory in made(self._wanted.traces):
            directory.mkdir(parents=True, exist_ok=True)
        given = variables(self._wanted.traces, os.environ, addresses)
        try:
            self.status = await program.run(self._wanted.arguments, given)
            await self._settle()
        finally:
            self._stop.set()

    async def _settle(self) -> None:
        """Return when nothing has come for a while and no connection is open."""
        with trio.move_on_after(SETTLE_MOST):
            before, quiet_since = self._received(), trio.current_time()
            while trio.current_time() - quiet_since < SETTLE_SECONDS:
                await trio.sleep(LOOK_SECONDS)
                now = self._received()
                if now != before:
                    before, quiet_since = now, trio.current_time()

    def _received(self) -> tuple[int, ...]:
        figures = [source.figures() for source in self._daemon.receiving.sources.values()]
        return tuple(figure.bytes + figure.queue_bytes for figure in figures)


def _machine() -> Machine:
    system = os.uname()
    return Machine(
        host=system.nodename, system=system.sysname, release=system.release,
        architecture=system.machine, processors=os.cpu_count() or 0,
    )  # fmt: skip


def _versions() -> dict[str, str]:
    ours = {"tailrace": __version__, "python": platform.python_version()}
    return ours | {part: version(part) for part in PARTS}
