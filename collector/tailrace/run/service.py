"""Run a collector around one program: listen, run the program, wait for its events, certify.

A second, short run of the collector on the same store reads files to their end, as a restarted daemon
does. The program runs whatever goes wrong with the collector.
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
from tailrace.daemon.daemon import Mode, collecting
from tailrace.daemon.service import first_failure, tamed_garbage_collection
from tailrace.daemon.status import source_status, status
from tailrace.errors import TailraceError
from tailrace.figures import Status
from tailrace.model.spelling import spelled
from tailrace.query.engine import Engine
from tailrace.run import evidence, program
from tailrace.run.around import Collecting, Tracing
from tailrace.run.certificate import KIND, VERSION, Certificate, Machine, Program, digest, total
from tailrace.run.program import CUT_OFF, NOT_TRACED, RunDone, Warn
from tailrace.run.surroundings import RunToken, located, sources, unguarded

PARTS = ("msgspec", "deltalake", "duckdb", "trio")


class RunRequest(msgspec.Struct, kw_only=True):
    """The program to run, and how. `files` are FORMAT=PATH; `traces` is the directory that tracers are
    told to write to. With `require`, the program does not start unless it is traced."""

    arguments: Sequence[str]
    files: Sequence[str]
    max_loss: int
    traces: Path
    require: bool


def run(loaded: Loaded, wanted: RunRequest, warn: Warn) -> RunDone:
    """Run the program, collect its events and certify what was stored.

    Raise ConfigError when there is no such program. With `wanted.require`, also raise whatever keeps the
    collector from starting."""
    clock = SystemClock()
    token = RunToken.drawn()
    found = sources(wanted.traces, os.environ, wanted.files, token)
    for problem in unguarded(found):
        warn("events of other users are not refused", TailraceError(problem))
    # The table of a run has only the program's events, and none of our own.
    config = structs.replace(loaded.config, sources=found, heartbeat=HeartbeatConfig(interval=None))
    began = clock.wall_ns()
    around = Tracing(wanted.arguments, wanted.traces, token)
    with tamed_garbage_collection():
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
            certificate = certify(loaded, about, wanted.max_loss, around.no_room)
            return RunDone(around.status, certificate, refused=around.refused)
        except Exception as error:  # noqa: BLE001 - the program's exit status must be returned
            warn(CUT_OFF, error)
            return RunDone(around.status)


def certify(loaded: Loaded, about: Program, max_loss: int, no_room: dict[str, int]) -> Certificate:
    """Return a certificate of all sessions since the program was started, and of what the collector had no room for."""
    store = store_path(loaded.config)
    engine = Engine(store, loaded.config.store.options)
    try:
        began = about.started
        since = f"SELECT session FROM sessions WHERE opened >= {began} OR closed_at >= {began}"  # noqa: S608 - a number
        streams = evidence.collect(engine, {session for (session,) in engine.rows(since)})
    finally:
        engine.close()
    certificate = Certificate(
        kind=KIND, version=VERSION, program=about, machine=_machine(), versions=_versions(),
        store=spelled(located(loaded.config)),
        max_loss=max_loss, totals=total(streams, no_room), streams=streams, no_room=no_room,
    )  # fmt: skip
    certificate.sha256 = digest(certificate).hex()
    return certificate


def collect(loaded: Loaded, clock: Clock, around: Collecting) -> None:
    """Run a collector around a program, or around whatever it is beside; `around.failure` says what went wrong."""
    try:
        with collecting(loaded, clock, Mode(last=True)) as daemon:
            trio.run(around.main, daemon)
    except Exception as error:  # noqa: BLE001 - the program runs after any error here
        around.failure = around.failure or error


def read_rest(loaded: Loaded, config: Config, clock: Clock, *, last: bool = False) -> Status:
    """Run the collector again to read files to their end and close their sessions; with `last`, close all sessions. Return
    its last status."""
    with collecting(loaded._replace(config=config), clock, Mode(once=True, last=last)) as daemon:

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


def _machine() -> Machine:
    system = os.uname()
    return Machine(
        host=system.nodename, system=system.sysname, release=system.release,
        architecture=system.machine, processors=os.cpu_count() or 0,
    )  # fmt: skip


def _versions() -> dict[str, str]:
    ours = {"tailrace": __version__, "python": platform.python_version()}
    return ours | {part: version(part) for part in PARTS}
