"""Sources of connections: each connection has a session of its own.

A peer harms nobody but itself. A source limits its connections, in all and for each peer. It closes,
with the reason, a connection that is silent too long, that takes too long over its greeting or over
one record (slow loris), or that sends nothing readable. After about two minutes, keep-alive probes
find a peer that vanished without a word. If an acknowledgement is still on its way to that peer, the
kernel gives up after about fifteen.

A connection gets its session with its first byte, behind TLS and the token where there are any. Until then it only
counts towards the limits: a probe that connects and says nothing leaves no trace but a figure.
"""

from __future__ import annotations

import errno
import logging
import resource
import socket
from collections import Counter, OrderedDict
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, closing, suppress
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple, Protocol

import trio

from tailrace.config.schema import ConnectionConfig
from tailrace.security.guard import Guard
from tailrace.sources.connection import (
    SEND_BUFFER,
    AdaptiveRest,
    Connection,
    GreetingRefusedError,
    Readiness,
    greet,
    greets,
)
from tailrace.sources.source import RESERVE, Intake, Outcome, Refusal, SourceFigures
from tailrace.spool.entry import EntryKind

DRAIN_MAX = 8 * 2**20
"""Bytes taken from one connection after the daemon was told to stop."""

TURN_BYTES = 2**20
"""Bytes that are received before other tasks run: more than are decoded in a turn, since what is received is soon on
disk."""

TURN_RECEIPT = TURN_BYTES // 64
"""Bytes that a receipt counts as at least, since it takes time however short it is."""

_OUT_OF_DESCRIPTORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

logger = logging.getLogger(__name__)


class ConnectedPeer(NamedTuple):
    """The other end of a connection: its name, the key under which the limit for each peer counts it, and its user, if the
    source needs the user and the kernel names it."""

    name: str
    whose: str
    user: int | None = None


class Listener(Protocol):
    """One kind of connections: the parts in which TCP and unix sockets differ."""

    transport: str
    """The transport that sessions name."""
    crowd: Refusal
    """The cause for which further connections of one peer are refused."""
    guard: Guard
    greeting_timeout: float
    """Seconds."""
    enough: int
    """Bytes that one look should find at a socket, well below what a socket holds before its writer waits."""
    look_seconds: float
    """Seconds between two calls of `renewed` while nobody connects."""

    def listening(self) -> AbstractContextManager[tuple[socket.socket, str]]:
        """Yield a socket that listens, and its address for people. Raise OSError."""
        ...

    def renewed(self) -> socket.socket:
        """Return the socket to listen at: a new one if clients cannot reach the former any more. Raise OSError."""
        ...

    def greet(self, sock: socket.socket, address: Any) -> ConnectedPeer:  # noqa: ANN401 - what `accept` gave
        """Set up an accepted connection; return its peer. Raise OSError if the peer has gone."""
        ...

    def refusal(self, peer: ConnectedPeer) -> Refusal | None:
        """Return the reason to refuse a peer before its greeting, or None."""
        ...

    def demands(self, peer: ConnectedPeer) -> Guard:
        """Return the guard for a peer's greeting."""
        ...


class ConnectionSource:
    """Accepts connections and hands on their bytes.

    One task receives from all connections that have shown what is demanded. `begin`, `take_in`, `drain` and `over`
    decide everything about such a connection; the simulator calls them for its own connections."""

    def __init__(self, config: ConnectionConfig, listener: Listener) -> None:
        self.address = ""
        self._config = config
        self._listener = listener
        self._figures = SourceFigures()
        self._each: Counter[str] = Counter()
        """Connections of each peer, including those that have yet to pass TLS and show a token."""
        self._served: OrderedDict[Connection, None] = OrderedDict()
        """Connections that may bring something; the one that has been silent longest is first."""
        self._with_session: dict[int, Connection] = {}
        """The connections on which something came, by their session's number."""
        self._readiness: Readiness[Connection] | None = None
        """The sockets of the connections that are served, while the source runs."""
        self._intake: Intake | None = None
        self._waiting: trio.CancelScope | None = None
        """The time in which the task that receives waits for something to receive."""
        self._resting = trio.CancelScope()
        """The rest of that task between two looks. Cancel it to let the task look at once."""

    async def run(
        self, intake: Intake, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        self.begin(intake)
        with (
            self._listener.listening() as (first, self.address),
            closing(Readiness[Connection]()) as readiness,
        ):
            sock = first
            self._readiness, self._intake = readiness, intake
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._receive, readiness, intake)
                task_status.started()
                while True:
                    with trio.move_on_after(self._listener.look_seconds):
                        await trio.lowlevel.wait_readable(sock)
                        await self._accept(sock, nursery, intake)
                        continue
                    sock = self._renewed(sock)

    def reconfigure(self, config: ConnectionConfig) -> None:
        self._config = config
        if self._waiting is not None:
            self._waiting.cancel()  # it waits for as long as another configuration said

    def cut(self, number: int, reason: str) -> None:
        connection = self._with_session.get(number)
        if connection is not None and self._intake is not None:
            self._figures.refuse(reason)
            self._end(connection, reason, self._intake)

    def can_reply(self, number: int) -> bool:
        connection = self._with_session.get(number)
        return connection is not None and connection.can_reply

    def reply(self, number: int, data: bytes) -> bool:
        connection = self._with_session.get(number)
        return self._figures.replied(connection.reply(data) if connection else Outcome.GONE)

    def figures(self) -> SourceFigures:
        guard = self._listener.guard
        self._figures.problems, self._figures.certificate_expires = guard.problems, guard.expires
        return self._figures

    # Connections that come

    def _renewed(self, sock: socket.socket) -> socket.socket:
        """Return the socket to listen at from now on: the same one if another cannot be had."""
        try:
            sock = self._listener.renewed()
        except OSError as error:
            self._figures.unreachable = f"{self.address} is gone and cannot be made again: {error}"
        else:
            self._figures.unreachable = ""
        return sock

    async def _accept(self, listener: socket.socket, nursery: trio.Nursery, intake: Intake) -> None:
        """Accept one connection. The task that receives has its turn before the next: of connections that come and
        go one after the other, those that are over must not count against the limits."""
        self._resting.cancel()
        try:
            sock, address = listener.accept()
        except OSError as error:
            # Other errors mean that the peer went away before we accepted it.
            if error.errno in _OUT_OF_DESCRIPTORS:
                self._figures.refuse(Refusal.DESCRIPTORS)
                await trio.sleep(0.1)
            return
        try:
            peer = self._listener.greet(sock, address)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        except OSError:
            sock.close()
            return
        if (refusal := self._refusal(sock, peer)) is not None:
            self._figures.refuse(refusal)
            sock.close()
            return
        # Count here and not in a task, because a flood is accepted faster than tasks start.
        self._figures.open += 1
        self._each[peer.whose] += 1
        connection = Connection(sock, peer.name, peer.whose)
        demanded = self._listener.demands(peer)
        if greets(demanded):
            nursery.start_soon(self._greet, connection, demanded, nursery, intake)
        else:
            self._serve(connection, nursery)

    def _refusal(self, sock: socket.socket, peer: ConnectedPeer) -> Refusal | None:
        if (refusal := self._listener.refusal(peer)) is not None:
            return refusal
        if sock.fileno() > resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVE:
            return Refusal.DESCRIPTORS
        if self._figures.open >= self._config.connections_max:
            return Refusal.CONNECTIONS
        if self._each[peer.whose] >= self._config.connections_per_peer_max:
            return self._listener.crowd
        return None

    async def _greet(
        self, connection: Connection, demanded: Guard, nursery: trio.Nursery, intake: Intake
    ) -> None:
        """Let a connection show what is demanded, and take in what came behind that."""
        try:
            await greet(connection, demanded, self._listener.greeting_timeout)
        except GreetingRefusedError as refused:
            self._figures.refuse(refused.cause)
            logger.info("%s: refused %s: %s", self.address, connection.name, refused)
            return
        else:
            self._serve(connection, nursery)
        finally:
            if connection not in self._served:
                self._close(connection)
        await intake.room()
        if connection.ready and connection in self._served:
            self._receive_from(connection, intake)

    def _serve(self, connection: Connection, nursery: trio.Nursery) -> None:
        """Hand a connection to the task that receives."""
        connection.answer(partial(nursery.start_soon, self._send_rest, connection))
        connection.active_at = trio.current_time()
        self._served[connection] = None
        if self._readiness is not None:
            self._readiness.add(connection.sock, connection)

    async def _send_rest(self, connection: Connection) -> None:
        with suppress(trio.ClosedResourceError):  # the connection is over
            await connection.send_rest()

    # Connections that are served

    async def _receive(self, readiness: Readiness[Connection], intake: Intake) -> None:
        """Take in what comes on all connections, until cancelled."""
        served = self._served
        rest = AdaptiveRest(self._listener.enough)
        try:
            while True:
                await self._wait(readiness)
                found = list(readiness.found())
                self._end_silent({*found}, intake)
                taken = most = 0
                for connection in found:
                    await intake.room()
                    if connection in served:
                        size = self._receive_from(connection, intake)
                        most, taken = max(most, size), taken + max(size, TURN_RECEIPT)
                    if taken >= TURN_BYTES:
                        taken = 0
                        await trio.lowlevel.checkpoint()
                with trio.move_on_after(rest.after(most)) as self._resting:
                    await trio.sleep_forever()
        except trio.Cancelled:
            for connection in served:
                self.drain(connection, intake)
            raise
        finally:
            for connection in list(served):
                self._end(connection, connection.reason, intake)

    async def _wait(self, readiness: Readiness[Connection]) -> None:
        """Return once a connection can be read, or has been silent too long."""
        longest = next(iter(self._served), None)
        begun = trio.current_time() if longest is None else longest.active_at
        with trio.move_on_at(begun + self._config.idle_timeout) as self._waiting:
            await readiness.wait()
        self._waiting = None

    def _end_silent(self, found: AbstractSet[Connection], intake: Intake) -> None:
        """End the connections that have been silent too long: all but those `found` to have something now."""
        since = trio.current_time() - self._config.idle_timeout
        for connection in list(takewhile(lambda each: each.active_at <= since, self._served)):
            if connection not in found:
                self._figures.refuse(Refusal.IDLE)
                self._end(connection, Refusal.IDLE, intake)

    def _receive_from(self, connection: Connection, intake: Intake) -> int:
        """Take in what was received on a connection, and end it if no more will follow. Return how many bytes came."""
        before = self._figures.bytes
        ended = self.take_in(connection, intake)
        if ended is not None:
            self._end(connection, ended, intake)
        else:
            connection.active_at = trio.current_time()
            self._served.move_to_end(connection)
        return self._figures.bytes - before

    def _end(self, connection: Connection, reason: str, intake: Intake) -> None:
        """Close a connection that is served, and end its session."""
        connection.reason = reason
        self._close(connection)
        del self._served[connection]
        self.over(connection, intake)

    def _close(self, connection: Connection) -> None:
        if self._readiness is not None:
            self._readiness.remove(connection.sock)
        with connection.sock:
            trio.lowlevel.notify_closing(connection.sock)  # somebody may wait to send the rest
            connection.close()
        self._figures.open -= 1
        self._each[connection.whose] -= 1
        if not self._each[connection.whose]:
            del self._each[connection.whose]

    def begin(self, intake: Intake) -> None:
        """End the sessions of an earlier life, whose connections are gone."""
        for number in intake.sessions():
            intake.close(number, "collector restart")

    def take_in(self, connection: Connection, intake: Intake) -> str | None:
        """Take in what was received; return why no more will follow, None if more may."""
        data, ended = connection.receive()
        self._take(connection, data, intake)
        if ended == Refusal.TLS:
            self._figures.refuse(ended)
        return ended

    def drain(self, connection: Connection, intake: Intake) -> None:
        """Take in, at a stop, what the kernel has queued: it was sent while we were up. Note whether it was all."""
        taken, ended = 0, None
        while taken < DRAIN_MAX and ended is None:
            data, ended = connection.receive()
            if not data:
                break
            self._take(connection, data, intake)
            taken += len(data)
        connection.reason = ended or connection.reason

    def over(self, connection: Connection, intake: Intake) -> None:
        """End the session of a connection, if anything came, with the connection's `reason`."""
        self._take(connection, connection.opening or b"", intake)
        if (number := connection.number) is None:
            self._figures.empty += 1
        else:
            intake.close(number, connection.reason)
            del self._with_session[number]

    def _take(self, connection: Connection, data: bytes, intake: Intake) -> None:
        """Hand on what came on a connection, whose session begins with its first byte."""
        if not data:
            return
        if connection.number is None:
            connection.number = intake.open(
                self._listener.transport, connection.name,
                record_max=self._config.record_max, garbage_max=self._config.garbage_max,
            )  # fmt: skip
            self._with_session[connection.number] = connection
        intake.append(EntryKind.DATA, connection.number, data)
        self._figures.chunks += 1
        self._figures.bytes += len(data)
