"""Sources of connections: each connection has a session of its own.

A peer harms nobody but itself. A source limits its connections, in all and for each peer. It closes,
with the reason, a connection that is silent too long, that takes too long over its greeting or over
one record (slow loris), or that sends nothing readable. After about two minutes, keep-alive probes
find a peer that vanished without a word. If an acknowledgement is still on its way to that peer, the
kernel gives up after about fifteen.

A connection gets its session at once or, where the source demands TLS or a token, once it has shown
them. Until then it only counts towards the limits.
"""

from __future__ import annotations

import errno
import logging
import resource
import socket
from collections import Counter
from contextlib import AbstractContextManager, closing
from functools import partial
from typing import Any, NamedTuple, Protocol

import trio

from tailrace.config.schema import ConnectionConfig
from tailrace.security.guard import Guard
from tailrace.sources.connection import SEND_BUFFER, Connection
from tailrace.sources.greeting import GreetingRefusedError, greet
from tailrace.sources.refusal import Refusal
from tailrace.sources.source import RESERVE, Intake, Outcome, SourceFigures

DRAIN_MAX = 8 * 2**20
"""Bytes taken from one connection after the daemon was told to stop."""
_OUT_OF_DESCRIPTORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

logger = logging.getLogger(__name__)


class ConnectedPeer(NamedTuple):
    """The other end of a connection: its name, and the key under which the limit for each peer counts
    it."""

    name: str
    whose: str


class Listener(Protocol):
    """One kind of connections: the parts in which TCP and unix sockets differ."""

    transport: str
    """The transport that sessions name."""
    crowd: Refusal
    """The cause for which further connections of one peer are refused."""
    guard: Guard
    greeting_timeout: float
    """Seconds."""

    def listening(self) -> AbstractContextManager[tuple[socket.socket, str]]:
        """Yield a socket that listens, and its address for people. Raise OSError."""
        ...

    def greet(self, sock: socket.socket, address: Any) -> ConnectedPeer:  # noqa: ANN401 - what `accept` gave
        """Set up an accepted connection; return its peer. Raise OSError if the peer has gone."""
        ...

    def allows(self, peer: ConnectedPeer) -> bool:
        """Return whether a peer's address may talk to us."""
        ...


class ConnectionSource:
    """Accepts connections and hands on their bytes.

    `run` only waits. `begin`, `open`, `take_in`, `drain` and `over` decide everything about a
    connection with a session; the simulator calls them for its own connections."""

    def __init__(self, config: ConnectionConfig, listener: Listener) -> None:
        self.address = ""
        self._config = config
        self._listener = listener
        self._figures = SourceFigures()
        self._each: Counter[str] = Counter()
        """Connections of each peer, with those that have no session yet."""
        self._connections: dict[int, Connection] = {}
        """Connections with a session, by the session's number."""

    async def run(
        self, intake: Intake, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        self.begin(intake)
        with self._listener.listening() as (sock, self.address):
            async with trio.open_nursery() as nursery:
                task_status.started()
                while True:
                    await trio.lowlevel.wait_readable(sock)
                    await self._accept(sock, nursery, intake)

    def reconfigure(self, config: ConnectionConfig) -> None:
        self._config = config

    def cut(self, number: int, reason: str) -> None:
        if (connection := self._connections.get(number)) is not None:
            connection.cut(reason)

    def hears(self, number: int) -> bool:
        connection = self._connections.get(number)
        return connection is not None and connection.hears

    def reply(self, number: int, data: bytes) -> bool:
        connection = self._connections.get(number)
        return self._figures.replied(connection.reply(data) if connection else Outcome.GONE)

    def figures(self) -> SourceFigures:
        guard = self._listener.guard
        self._figures.problems, self._figures.certificate_expires = guard.problems, guard.expires
        return self._figures

    async def _accept(self, listener: socket.socket, nursery: trio.Nursery, intake: Intake) -> None:
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
        # Count here and not in the task, because a flood is accepted faster than tasks start.
        self._figures.open += 1
        self._each[peer.whose] += 1
        nursery.start_soon(self._serve, Connection(sock, *peer), intake)

    def _refusal(self, sock: socket.socket, peer: ConnectedPeer) -> Refusal | None:
        if not self._listener.allows(peer):
            return Refusal.ADDRESS
        if sock.fileno() > resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVE:
            return Refusal.DESCRIPTORS
        if self._figures.open >= self._config.connections_max:
            return Refusal.CONNECTIONS
        if self._each[peer.whose] >= self._config.connections_per_peer_max:
            return self._listener.crowd
        return None

    async def _serve(self, connection: Connection, intake: Intake) -> None:
        try:
            with connection.sock, closing(connection):
                async with trio.open_nursery() as nursery:
                    with connection.answering(partial(nursery.start_soon, connection.send_rest)):
                        await self._talk(connection, intake)
                    nursery.cancel_scope.cancel()
        finally:
            self.over(connection, intake)
            self._figures.open -= 1
            self._each[connection.whose] -= 1
            if not self._each[connection.whose]:
                del self._each[connection.whose]

    async def _talk(self, connection: Connection, intake: Intake) -> None:
        listener = self._listener
        try:
            await greet(connection, listener.guard, listener.greeting_timeout)
        except GreetingRefusedError as refused:
            self._figures.refuse(refused.cause)
            logger.info("%s: refused %s: %s", self.address, connection.name, refused)
            return
        self.open(connection, intake)
        with connection.scope:
            connection.reason = await self._receive(connection, intake)
        if connection.scope.cancelled_caught:
            self._figures.refuse(connection.reason)

    async def _receive(self, connection: Connection, intake: Intake) -> str:
        """Take in bytes until the connection ends; return why it ended."""
        while True:
            with trio.move_on_after(self._config.idle_timeout) as idle:
                try:
                    await intake.room()
                    await connection.readable()
                except trio.Cancelled:
                    if not idle.cancel_called and not connection.scope.cancel_called:
                        self.drain(connection, intake)
                    raise
            if idle.cancelled_caught:
                self._figures.refuse(Refusal.IDLE)
                return Refusal.IDLE
            if (ended := self.take_in(connection, intake)) is not None:
                return ended

    def begin(self, intake: Intake) -> None:
        """End the sessions of an earlier life, whose connections are gone."""
        for number in intake.sessions():
            intake.close(number, "collector restart")

    def open(self, connection: Connection, intake: Intake) -> None:
        """Begin the session of a connection."""
        number = connection.number = intake.open(
            self._listener.transport, connection.name,
            record_max=self._config.record_max, garbage_max=self._config.garbage_max,
        )  # fmt: skip
        self._connections[number] = connection

    def take_in(self, connection: Connection, intake: Intake) -> str | None:
        """Take in what was received; return why no more will follow, None if more may."""
        data, ended = connection.receive()
        self._take(connection, data, intake)
        if ended == Refusal.TLS:
            self._figures.refuse(ended)
        return ended

    def drain(self, connection: Connection, intake: Intake) -> None:
        """Take in, at a stop, what the kernel has queued: it was sent while we were up."""
        taken, ended = 0, None
        while taken < DRAIN_MAX and ended is None:
            data, ended = connection.receive()
            if not data:
                break
            self._take(connection, data, intake)
            taken += len(data)

    def over(self, connection: Connection, intake: Intake) -> None:
        """End the session of a connection, if it has one, with the connection's `reason`."""
        if (number := connection.number) is not None:
            self._take(connection, connection.opening or b"", intake)
            intake.close(number, connection.reason)
            del self._connections[number]

    def _take(self, connection: Connection, data: bytes, intake: Intake) -> None:
        if data and connection.number is not None:
            intake.data(connection.number, data)
            self._figures.chunks += 1
            self._figures.bytes += len(data)
