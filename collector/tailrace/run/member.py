"""Run the program of one rank of a job, and pass its events to the collector of the rank's node.

The node's first rank starts the collector. If there is no collector, the program runs untraced.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import msgspec
import trio
from msgspec.json import Decoder

from tailrace.errors import ConfigError, TailraceError
from tailrace.filesystem import spelled
from tailrace.interpreter import command
from tailrace.run import program
from tailrace.run.launcher import LaunchedRank
from tailrace.run.meeting import (
    LINE_MAX,
    Bye,
    Hello,
    Meeting,
    NodeSpec,
    Released,
    Taken,
    Welcome,
    packed,
)
from tailrace.run.program import CUT_OFF, NOT_TRACED, RunDone, Warn
from tailrace.run.surroundings import followed, made, own_directories, variables

JOIN_SECONDS = 60.0
"""Maximum time (seconds) for which a program waits for its node's collector, and then runs untraced."""

LOOK_SECONDS = 0.02

NO_PROGRAM = 127
"""Exit status that a rank reports for a program that could not be started. A shell returns the same."""

M = TypeVar("M")


class RankWanted(NamedTuple):
    rank: LaunchedRank
    arguments: Sequence[str]
    files: Sequence[str]
    store: str | None
    """The store as the user specified it, which is the same on all nodes."""
    prepare: Callable[[LaunchedRank], NodeSpec]
    """Function that makes the directories for a node's collector and returns its settings, if this rank starts it.
    It raises TailraceError or OSError if the directories cannot be made."""
    require: bool


def run(wanted: RankWanted, warn: Warn) -> tuple[RunDone, Path | None]:
    """Run the program of a rank, traced if possible. Return its result and, if it was the node's last rank, the path
    of the node's certificate (otherwise None). Raise ConfigError if the program does not exist. With
    `wanted.require`, also raise any error that prevents tracing."""
    try:
        membership = join(wanted)
        given = membership.variables()
    except (TailraceError, OSError) as error:
        if wanted.require:
            raise
        warn(NOT_TRACED, error)
        return program.untraced(wanted.arguments), None
    try:
        status = trio.run(program.run, wanted.arguments, given)
    except ConfigError:
        with suppress(TailraceError, OSError):
            membership.leave(NO_PROGRAM)
        raise
    try:
        released = membership.leave(status)
        what = CUT_OFF if released.certificate is None else "the node's collector"
        for failure in released.failures:
            warn(what, TailraceError(failure))
        if released.others or released.certificate is None:
            return RunDone(status, others=released.others), None
        from tailrace.run import certificate as certificates  # noqa: PLC0415 - loads the database, for the last rank

        path = Path(released.certificate)
        return RunDone(status, certificates.read(path), refused=released.refused), path
    except (TailraceError, OSError, ImportError) as error:
        warn(CUT_OFF, error)
        return RunDone(status), None


class Membership:
    """A rank's connection to its node's collector. The kernel closes it when the rank's process ends."""

    def __init__(self, connection: socket.socket, lines: BinaryIO, welcome: Welcome) -> None:
        self._connection = connection
        self._lines = lines
        self._welcome = welcome

    def variables(self) -> dict[str, str]:
        """Return the environment variables to set for the program, and make the directories that they name. Raise
        OSError if a directory cannot be made."""
        about = self._welcome
        traces = Path(about.traces)
        for directory in made(traces):
            directory.mkdir(parents=True, exist_ok=True)
        return variables(traces, os.environ, about.addresses, about.token, about.store)

    def leave(self, status: int) -> Released:
        """Report the program's exit status to the collector, and wait until it releases this rank. Raise OSError or
        TailraceError if the connection or the collector ends."""
        # Ignore the signals by which launchers end ranks: the rank has nothing left to do and ends by itself soon.
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
        try:
            self._connection.sendall(packed(Bye(exit_status=status)))
            return _next_message(self._lines, Decoder(Released))
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


def join(wanted: RankWanted) -> Membership:
    """Join the node's collector, after starting it if none runs. Raise TailraceError or OSError if it cannot be
    started, or does not answer within `JOIN_SECONDS`."""
    meeting = Meeting.of(wanted.rank, wanted.store)
    hello = Hello(
        rank=wanted.rank.rank, job=wanted.rank.job, size=wanted.rank.size, pid=os.getpid(),
        arguments=[*map(spelled, wanted.arguments)],
        files=[f"{format_}={os.path.abspath(path)}" for format_, path in followed(wanted.files)],  # noqa: PTH100 - may be a pattern's text
        own=own_directories(os.environ),
    )  # fmt: skip
    until = time.monotonic() + JOIN_SECONDS
    while time.monotonic() < until:
        answer = _joined(meeting, hello)
        if isinstance(answer, Taken):
            return join(wanted._replace(rank=wanted.rank._replace(alone=True)))
        if answer is not None:
            return answer
        if (lock := meeting.lock()) is None:
            time.sleep(LOOK_SECONDS)
            continue
        try:
            if meeting.failure is not None:
                raise TailraceError(meeting.failure)
            _start(meeting, wanted, lock)
        finally:
            os.close(lock)
    raise TailraceError(f"the node's collector did not answer within {JOIN_SECONDS:.0f} s")


def _joined(meeting: Meeting, hello: Hello) -> Membership | Taken | None:
    """Try to join the node's collector. Return None if no collector runs or accepts further ranks, and `Taken` if
    another program of the same rank is connected."""
    connection = meeting.connect()
    if connection is None:
        return None
    connection.settimeout(JOIN_SECONDS)
    lines = connection.makefile("rb")
    try:
        connection.sendall(packed(hello))
        welcome = _next_message(lines, Decoder[Welcome | Taken](Welcome | Taken))
    except (OSError, TailraceError):
        # The connection was refused or closed, because the collector is about to end. `join` then tries again.
        connection.close()
        return None
    if isinstance(welcome, Taken):
        connection.close()
        return welcome
    connection.settimeout(None)
    return Membership(connection, lines, welcome)


def _start(meeting: Meeting, wanted: RankWanted, lock: int) -> None:
    """Start the node's collector, and return once ranks can join. The collector inherits the locked descriptor
    `lock`, so that no second one starts. Raise TailraceError or OSError if it cannot be started."""
    try:
        spec = wanted.prepare(wanted.rank)
        spec.meeting = str(meeting.directory)
        with (Path(spec.directory) / "collector.log").open("ab") as log:
            collector = subprocess.Popen(  # noqa: S603 - ourselves
                command("tailrace.run", msgspec.json.encode(spec).decode()),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                start_new_session=True, pass_fds=(lock,),
            )  # fmt: skip
    except (TailraceError, OSError) as error:
        meeting.failed(str(error))
        raise
    with collector.stdout or os.devnull as output:  # type: ignore[union-attr]  # it is a pipe
        word = output.readline().decode(errors="replace").strip()
    if word != "ready":
        message = word or f"the collector ended, see {log.name}"
        meeting.failed(message)
        raise TailraceError(message)


def _next_message(lines: BinaryIO, decoder: Decoder[M]) -> M:
    line = lines.readline(LINE_MAX)
    if not line.endswith(b"\n"):
        raise TailraceError("the node's collector ended")
    try:
        return decoder.decode(line)
    except msgspec.DecodeError as error:
        raise TailraceError(f"the node's collector is of another version: {error}") from error
