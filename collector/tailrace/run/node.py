"""Run the collector of one node of a job, in a process of its own, as long as ranks of the node run.

The command is `python -I …/interpreter.py tailrace.run SPECIFICATION`. The collector inherits the lock of its
`Meeting`. A rank is present from its `Hello` until its connection ends, even by a kill. Launchers send signals to
all processes of a job, so after a signal the collector still waits until the present ranks have left.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import trio
from msgspec import structs

from tailrace import log, standard
from tailrace.clock import Clock, SystemClock
from tailrace.config.load import Loaded
from tailrace.config.schema import HeartbeatConfig, JobConfig, SourceConfig, TailConfig
from tailrace.configuration import choose
from tailrace.daemon.daemon import Daemon, raise_descriptor_limit
from tailrace.daemon.receiving import Receiving
from tailrace.errors import TailraceError
from tailrace.run import certificate as certificates
from tailrace.run.certificate import Certificate, Program
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
from tailrace.run.ranks import NodeBegan, NodeEnded, RankCame, RankLeft, RankLine, RankLog
from tailrace.run.service import LOOK_SECONDS, Collecting, certify, collect, empty_traces, read_rest
from tailrace.run.surroundings import RunToken, located, of_node, of_rank, rank_directory, unguarded

LINGER_SECONDS = 2.0
"""Time (seconds) for which the collector waits for further ranks after the last one has left, if the launcher does
not state the number of ranks on the node."""

FIRST_SECONDS = 20.0
"""Time (seconds) for which the collector waits for its first rank, which may have been killed."""

logger = logging.getLogger(__name__)


class NodeCollecting(Collecting):
    """The collector of a node, and the service through which ranks of the node join and leave at any time."""

    def __init__(
        self, spec: NodeSpec, listener: socket.socket, token: RunToken, clock: Clock
    ) -> None:
        super().__init__()
        self.arguments: list[str] = []
        self.worst = 0
        """The highest exit status of the programs that have ended so far. A killed program counts as 128 + SIGKILL."""
        self.problems: list[str] = []
        self.last: socket.socket | None = None
        """The connection of the rank whose program ended last. This rank waits for the path of the
        node's run certificate, a file which states the missing events. `Released` contains this path."""
        self._spec = spec
        self._listener = listener
        self._token = token
        self._clock = clock
        self._log = RankLog(Path(spec.directory))
        self._traces = Path(spec.directory).absolute() / "traces"
        self._here: dict[trio.SocketStream, int | None] = {}
        """The rank of each open connection; None until the `Hello` of the connection has arrived."""
        self._came: set[int] = set()
        self._waiting: tuple[trio.SocketStream, int] | None = None
        """Connection and number of the rank that waits until the node's run certificate is written; None while programs
        of other ranks run."""
        self._hurried = False
        self._quiet_since = 0.0
        self._receiving: Receiving | None = None
        self.followed: dict[str, SourceConfig] = {}
        self._changing = trio.Lock()

    def note(self, line: RankLine) -> None:
        try:
            self._log.append(line)
        except OSError as error:
            logger.warning("the log of ranks: %s", error)

    async def _receive(self, receiving: Receiving) -> None:
        self._receiving = receiving
        await trio.sleep_forever()

    async def _run(self, daemon: Daemon) -> None:
        self._quiet_since = trio.current_time()
        self.note(
            NodeBegan(
                time=self._clock.wall_ns(), node=self._spec.node, host=os.uname().nodename,
                job=self._spec.job, size=self._spec.size, local_size=self._spec.local_size,
            )
        )  # fmt: skip
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(self._listener))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._hurry)
            nursery.start_soon(self._accept, listener, daemon)
            sys.stdout.write("ready\n")
            # Ignore the error if the process that waits for the line "ready" has ended
            with suppress(OSError):
                sys.stdout.flush()
            while not self._is_over():  # noqa: ASYNC110 - time ends it, too
                await trio.sleep(LOOK_SECONDS)
            # Ignore the error if another process has removed the file of the socket
            with suppress(OSError):
                os.unlink(self._listener.getsockname())  # noqa: PTH108 - in a directory of memory or the local disk
            nursery.cancel_scope.cancel()
        if self._waiting is not None:
            self.last = socket.socket(fileno=os.dup(self._waiting[0].socket.fileno()))
            self.last.settimeout(None)
        self.followed = dict(daemon.config.sources)
        if self.failure is None:
            await self._settle(daemon)

    def _is_over(self) -> bool:
        if self.failure is not None:
            return True
        if self._here:
            return False
        awaited = self._spec.local_size
        if self._hurried or (awaited is not None and len(self._came) >= awaited):
            return True
        patience = LINGER_SECONDS if self._came else FIRST_SECONDS
        return trio.current_time() - self._quiet_since >= patience

    async def _hurry(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            async for number in signals:
                logger.info("signal %d: ends when all present ranks have left", number)
                self._hurried = True

    async def _accept(self, listener: trio.SocketListener, daemon: Daemon) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                nursery.start_soon(self._attend, await listener.accept(), daemon)

    async def _attend(self, stream: trio.SocketStream, daemon: Daemon) -> None:
        """Serve the connection of a rank from the message `Hello` to the connection's end. If this rank's program is
        the last one to end, let the rank wait until the node's run certificate is written."""
        lines = _StreamLines(stream)
        self._here[stream] = None
        try:
            line = await lines.next()
            if line is None:
                return
            hello = msgspec.json.decode(line, type=Hello)
            waits = self._waiting is not None and self._waiting[1] == hello.rank
            if waits or hello.rank in self._here.values():
                await _send(stream, Taken())
                return
            self._here[stream] = hello.rank
            await self._come(hello, stream, daemon)
            line = await lines.next()
            status = None if line is None else msgspec.json.decode(line, type=Bye).exit_status
            self.worst = max(self.worst, 128 + signal.SIGKILL if status is None else status)
            self.note(
                RankLeft(
                    time=self._clock.wall_ns(), rank=hello.rank, job=hello.job, exit_status=status
                )
            )  # fmt: skip
        except msgspec.DecodeError as error:
            logger.warning("a rank sent an invalid message: %s", error)
            return
        finally:
            del self._here[stream]
            self._quiet_since = trio.current_time()
        if status is None:
            await stream.aclose()
        elif self._here:
            await _send(stream, Released(others=True))
        else:
            self._waiting = stream, hello.rank

    async def _come(self, hello: Hello, stream: trio.SocketStream, daemon: Daemon) -> None:
        self.arguments = self.arguments or hello.arguments
        self._came.add(hello.rank)
        self.note(
            RankCame(
                time=self._clock.wall_ns(), rank=hello.rank, job=hello.job, size=hello.size,
                pid=hello.pid, arguments=hello.arguments,
            )
        )  # fmt: skip
        await self._follow(of_rank(hello.files, hello.own), daemon)
        if self._waiting is not None:
            (waiting, _), self._waiting = self._waiting, None
            await _send(waiting, Released(others=True))
        addresses = {name: source.address for name, source in daemon.sources.items()}
        traces = str(rank_directory(self._traces, hello.rank))
        store = located(daemon.config)
        welcome = Welcome(addresses=addresses, token=self._token.text, traces=traces, store=store)
        await _send(stream, welcome)

    async def _follow(self, sources: dict[str, SourceConfig], daemon: Daemon) -> None:
        """Add the given sources to those of the running collector, except sources that it already has."""
        async with self._changing:
            known = daemon.config.sources
            new = {name: each for name, each in sources.items() if each not in known.values()}
            if not new or self._receiving is None:
                return
            loaded = daemon.current.loaded
            config = structs.replace(loaded.config, sources=known | new)
            changed = loaded._replace(config=config)
            try:
                await self._receiving.replace(config, put=lambda: daemon.current.put(changed))
            except TailraceError as error:
                self.problems.append(f"a rank's files are not followed: {error}")


class _StreamLines:
    """A reader of lines from a stream. `next` returns None at the end of the stream."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._rest = b""

    async def next(self) -> bytes | None:
        while b"\n" not in self._rest and len(self._rest) < LINE_MAX:
            try:
                data = await self._stream.receive_some()
            except trio.BrokenResourceError:
                return None
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line


async def _send(stream: trio.SocketStream, message: msgspec.Struct) -> None:
    with suppress(trio.BrokenResourceError):
        await stream.send_all(packed(message))


def main(arguments: Sequence[str]) -> int:
    """Collect the events of a node's ranks. Print "ready" on standard output when ranks can join, or else an error
    message. Return the exit status."""
    standard.begin()
    spec = msgspec.json.decode(arguments[0], type=NodeSpec)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    meeting = Meeting(Path(spec.meeting))
    try:
        loaded = choose(Path(spec.config) if spec.config else None, spec.store)
        log.configure(loaded.config.log, quiet=True)
        released = _collect(loaded, spec, meeting)
    except (TailraceError, OSError) as error:
        sys.stdout.write(f"{error}\n")
        return 1
    return 1 if released.failures else 0


def _collect(loaded: Loaded, spec: NodeSpec, meeting: Meeting) -> Released:
    """Collect events until all ranks have left, write the node's certificate, and send `Released` to the last rank."""
    raise_descriptor_limit()
    clock = SystemClock()
    token = RunToken.drawn()
    job = loaded.config.job
    config = structs.replace(
        loaded.config,
        sources=of_node(Path(spec.directory).absolute() / "traces", token),
        # Switch heartbeats off, because the table of a run shall contain only the program's events.
        heartbeat=HeartbeatConfig(interval=None),
        job=JobConfig(id=job.id or spec.job, node=job.node or spec.node),
    )
    around = NodeCollecting(spec, meeting.listener(), token, clock)
    began = clock.wall_ns()
    collect(loaded._replace(config=config), clock, around)
    if around.failure is not None and not around.arguments:
        raise around.failure
    problems = [*around.problems, *unguarded(config.sources)]
    released = Released(others=False, failures=problems, refused=around.refused)
    failure = around.failure
    tails = {n: s for n, s in around.followed.items() if isinstance(s, TailConfig)}
    empty: list[str] | None = None
    if failure is None:
        try:
            # Leave out the listeners: only the file sources are needed to read the files to their end.
            read_rest(loaded, structs.replace(config, sources=dict(tails)), clock)
            empty = empty_traces(tails.values(), began)
            about = Program(
                arguments=around.arguments, exit_status=around.worst, started=began,
                ended=clock.wall_ns(),
            )  # fmt: skip
            certificate = certify(loaded, about, spec.max_loss, around.no_room, empty)
            released.failures += _unsigned(certificate, spec.sign)
            path = certificates.write(certificate, Path(spec.certificate))
            released.certificate = str(path.absolute())
        except Exception as error:  # noqa: BLE001 - the rank must be released
            failure = error
    if failure is not None:
        logger.warning("no certificate: %s", failure)
        released.failures.append(str(failure) or repr(failure))
    count = None if empty is None else len(empty)
    around.note(NodeEnded(time=clock.wall_ns(), no_room=around.no_room, empty=count))
    meeting.remove()
    if around.last is not None:
        with suppress(OSError):
            around.last.sendall(packed(released))
    return released


def _unsigned(certificate: Certificate, key: str | None) -> list[str]:
    """Sign a certificate with the private key in the file `key`, if given. Return error messages; the certificate
    then stays unsigned."""
    try:
        if key:
            from tailrace.run import signature  # noqa: PLC0415 - needs a package that few have

            signature.sign(certificate, signature.load(Path(key)))
    except (TailraceError, ImportError) as error:
        return [f"the certificate is not signed: {error}"]
    return []
