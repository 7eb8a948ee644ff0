"""Connections: a session for each, its bytes as they come.

A peer costs itself and nobody else: the number of connections is limited, in all and for each
peer; one that is silent too long, that takes too long over one record (slow loris) or that sends
nothing readable is closed, with the reason; one that vanished without a word is found by keep-alive
probes after about two minutes, or, with an acknowledgement still on its way to it, when the kernel
gives that up after some fifteen.
"""

from __future__ import annotations

import errno
import resource
import socket
from collections import Counter
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import trio

from tailrace.config.schema import ConnectionConfig
from tailrace.sources.connection import SEND_BUFFER, Connection
from tailrace.sources.source import CHUNK_MAX, Intake, Outcome, SourceFigures

DRAIN_MAX = 8 * 2**20
"""Bytes taken from one connection after the daemon was told to stop."""
RESERVE = 64
"""Descriptors left to the rest of the process, whatever peers do: the table's library ends it without."""
_OUT_OF_DESCRIPTORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Peer(NamedTuple):
    """The other end of a connection: how it is called, and whom the limit for each peer counts it to."""

    name: str
    whose: str


class Listener(Protocol):
    """What kinds of connections do not have in common."""

    transport: str
    """As sessions have it."""
    each: str
    """What a peer is to the limit for each."""

    def listening(self) -> AbstractContextManager[tuple[socket.socket, str]]:
        """A socket that listens, until the end, and its address for people. Raise OSError."""
        ...

    def greet(self, sock: socket.socket, address: Any) -> Peer:  # noqa: ANN401 - what `accept` gave
        """Set up a connection just accepted; who is at its other end. Raise OSError: nobody any more."""
        ...


class ConnectionSource:
    def __init__(self, config: ConnectionConfig, listener: Listener) -> None:
        self.address = ""
        self._config = config
        self._listener = listener
        self._figures = SourceFigures()
        self._each: Counter[str] = Counter()
        self._connections: dict[int, Connection] = {}

    async def run(
        self, intake: Intake, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        for number in intake.sessions():
            intake.close(number, "collector restart")
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
        self._figures.open = len(self._connections)
        return self._figures

    async def _accept(self, listener: socket.socket, nursery: trio.Nursery, intake: Intake) -> None:
        try:
            sock, address = listener.accept()
        except OSError as error:
            # Anything else is the peer's doing: it went away before we took it.
            if error.errno in _OUT_OF_DESCRIPTORS:
                self._refused("out of descriptors")
                await trio.sleep(0.1)
            return
        try:
            peer = self._listener.greet(sock, address)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        except OSError:
            sock.close()
            return
        if (refusal := self._refusal(sock, peer)) is not None:
            self._refused(refusal)
            sock.close()
            return
        # Counted here and not in the task: a flood is accepted faster than tasks start.
        self._each[peer.whose] += 1
        number = intake.open(
            self._listener.transport, peer.name,
            record_max=self._config.record_max, garbage_max=self._config.garbage_max,
        )  # fmt: skip
        self._connections[number] = Connection(sock, peer.whose)
        nursery.start_soon(self._serve, number, intake)

    def _refusal(self, sock: socket.socket, peer: Peer) -> str | None:
        if sock.fileno() > resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVE:
            return "out of descriptors"
        if len(self._connections) >= self._config.connections_max:
            return "too many connections"
        if self._each[peer.whose] >= self._config.connections_per_peer_max:
            return f"too many connections from one {self._listener.each}"
        return None

    async def _serve(self, number: int, intake: Intake) -> None:
        connection = self._connections[number]
        reason = "stop"
        try:
            with connection.sock:
                with connection.scope:
                    async with trio.open_nursery() as nursery:
                        with connection.answering(nursery):
                            reason = await self._receive(connection, number, intake)
                        nursery.cancel_scope.cancel()
                if connection.scope.cancelled_caught:
                    reason = connection.reason
                    self._refused(reason)
        finally:
            intake.close(number, reason)
            del self._connections[number]
            self._each[connection.whose] -= 1
            if not self._each[connection.whose]:
                del self._each[connection.whose]

    async def _receive(self, connection: Connection, number: int, intake: Intake) -> str:
        """Take in until the peer ends it; why it ended."""
        sock = connection.sock
        while True:
            with trio.move_on_after(self._config.idle_timeout) as idle:
                try:
                    await intake.room()
                    await trio.lowlevel.wait_readable(sock)
                except trio.Cancelled:
                    if not idle.cancel_called and not connection.scope.cancel_called:
                        self._drain(sock, number, intake)
                    raise
            if idle.cancelled_caught:
                self._refused("idle")
                return "idle"
            if (ended := self._read(sock, number, intake)) is not None:
                return ended

    def _read(self, sock: socket.socket, number: int, intake: Intake) -> str | None:
        """Take in one chunk; why the connection ended, if it did."""
        try:
            data = sock.recv(CHUNK_MAX)
        except BlockingIOError:
            return None
        except OSError as error:
            return f"reset: {errno.errorcode.get(error.errno or 0, 'unknown')}"
        if not data:
            return "eof"
        intake.data(number, data)
        self._figures.chunks += 1
        self._figures.bytes += len(data)
        return None

    def _drain(self, sock: socket.socket, number: int, intake: Intake) -> None:
        """The daemon stops: what the kernel has queued was sent while we were up."""
        before = self._figures.bytes
        while self._figures.bytes - before < DRAIN_MAX:
            chunks = self._figures.chunks
            if self._read(sock, number, intake) is not None or self._figures.chunks == chunks:
                break

    def _refused(self, reason: str) -> None:
        self._figures.refused[reason] = self._figures.refused.get(reason, 0) + 1
