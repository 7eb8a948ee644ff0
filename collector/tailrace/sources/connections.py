"""Accept connections and receive their bytes; each connection has its own session.

A peer can harm only its own connections. A source limits the number of connections, in total and for each peer. It
closes a connection, with a reason, if the peer is silent too long, takes too long for the greeting or for one record
(slow loris), or sends nothing readable. TCP keep-alive detects a vanished peer after about two minutes, or fifteen if a
reply is unconfirmed.

A connection gets its session when its first byte arrives, after TLS and token, so a port scan opens no session."""

from __future__ import annotations

import errno
import logging
import resource
import socket
from collections import Counter, OrderedDict
from contextlib import closing
from functools import partial
from itertools import takewhile

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
)
from tailrace.sources.listeners import ConnectedPeer, Listener
from tailrace.sources.source import RESERVE, Intake, Outcome, Refusal, Source, SourceFigures
from tailrace.spool.entry import EntryKind

DRAIN_MAX = 8 * 2**20
"""Maximum number of bytes received from one connection after the daemon has begun to stop."""

TURN_BYTES = 2**20
"""Number of bytes that the receiving task receives before other tasks run."""

TURN_RECEIPT = TURN_BYTES // 64
"""Minimum number of bytes by which each receive call counts towards `TURN_BYTES`, because even a call that receives few
bytes takes some time."""

_OUT_OF_DESCRIPTORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

logger = logging.getLogger(__name__)


class ConnectionSource(Source):
    """Accepts connections and passes their bytes on. The simulator calls the methods that wait for no socket."""

    def __init__(self, config: ConnectionConfig, listener: Listener) -> None:
        self._config = config
        self._listener = listener
        self._figures = SourceFigures()
        self._each: Counter[str] = Counter()
        self._served: OrderedDict[Connection, None] = OrderedDict()
        """Connections that have passed the TLS handshake and the check of the token. The connection that has been
        silent longest is first."""
        self._with_session: dict[int, Connection] = {}
        self._readiness: Readiness | None = None
        self._intake: Intake | None = None
        self._waiting: trio.CancelScope | None = None
        self._resting = trio.CancelScope()

    async def run(
        self, intake: Intake, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        self.begin(intake)
        with (
            self._listener.listening() as (first, self.address),
            closing(Readiness()) as readiness,
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
                    try:
                        sock = self._listener.renewed()
                    except OSError as error:
                        text = f"{self.address} is gone and cannot be made again: {error}"
                        self._figures.unreachable = text
                    else:
                        self._figures.unreachable = ""

    def reconfigure(self, config: ConnectionConfig) -> None:
        self._config = config
        if self._waiting is not None:
            # Let the receiving task wait again, with the new `idle_timeout`.
            self._waiting.cancel()

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

    # The following methods accept connections.

    async def _accept(self, listener: socket.socket, nursery: trio.Nursery, intake: Intake) -> None:
        """Accept one connection. Before the next connection is accepted, wake the receiving task, which removes closed
        connections."""
        self._resting.cancel()
        try:
            sock, address = listener.accept()
        except OSError as error:
            # Count only a lack of descriptors or memory: any other error means that the peer disconnected before it was
            # accepted.
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
        # A flood of connections is accepted faster than tasks start, so count the connection here.
        self._figures.open += 1
        self._each[peer.whose] += 1
        connection = Connection(sock, peer.name, peer.whose)
        demanded = self._listener.demands(peer)
        if demanded.certificates is not None or demanded.tokens is not None:
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
        """Check TLS and token of a connection. Then serve it, with the data that arrived together with the greeting."""
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
        connection.answer(partial(nursery.start_soon, connection.send_rest))
        connection.active_at = trio.current_time()
        self._served[connection] = None
        if self._readiness is not None:
            self._readiness.add(connection)

    # The following methods receive from accepted connections.

    async def _receive(self, readiness: Readiness, intake: Intake) -> None:
        served = self._served
        rest = AdaptiveRest(self._listener.enough)
        try:
            while True:
                # Wait until data arrives, or until the connection that has been silent longest exceeds `idle_timeout`.
                longest = next(iter(served), None)
                begun = trio.current_time() if longest is None else longest.active_at
                with trio.move_on_at(begun + self._config.idle_timeout) as self._waiting:
                    await readiness.wait()
                self._waiting = None
                found = readiness.found()
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

    def _end_silent(self, found: set[Connection], intake: Intake) -> None:
        """Close the connections that have been silent longer than `idle_timeout`, except those in `found`."""
        since = trio.current_time() - self._config.idle_timeout
        for connection in list(takewhile(lambda each: each.active_at <= since, self._served)):
            if connection not in found:
                self._figures.refuse(Refusal.IDLE)
                self._end(connection, Refusal.IDLE, intake)

    def _receive_from(self, connection: Connection, intake: Intake) -> int:
        before = self._figures.bytes
        ended = self.take_in(connection, intake)
        if ended is not None:
            self._end(connection, ended, intake)
        else:
            connection.active_at = trio.current_time()
            self._served.move_to_end(connection)
        return self._figures.bytes - before

    def _end(self, connection: Connection, reason: str, intake: Intake) -> None:
        connection.reason = reason
        self._close(connection)
        del self._served[connection]
        self.over(connection, intake)

    def _close(self, connection: Connection) -> None:
        if self._readiness is not None:
            self._readiness.remove(connection)
        with connection.sock:
            # End the task that waits to send the connection's buffered bytes.
            trio.lowlevel.notify_closing(connection.sock)
            connection.close()
        self._figures.open -= 1
        self._each[connection.whose] -= 1
        if not self._each[connection.whose]:
            del self._each[connection.whose]

    def begin(self, intake: Intake) -> None:
        """Close the sessions that an earlier run of the daemon left open, because their connections no longer exist."""
        for number in intake.sessions():
            intake.close(number, "collector restart")

    def take_in(self, connection: Connection, intake: Intake) -> str | None:
        """Receive bytes from a connection, and append them to its session. Return the reason why no more bytes will
        follow, or None."""
        data, ended = connection.receive()
        self._take(connection, data, intake)
        if ended == Refusal.TLS:
            self._figures.refuse(ended)
        return ended

    def drain(self, connection: Connection, intake: Intake) -> None:
        """Receive at most `DRAIN_MAX` bytes that still wait in the kernel, because the source stops."""
        taken, ended = 0, None
        while taken < DRAIN_MAX and ended is None:
            data, ended = connection.receive()
            if not data:
                break
            self._take(connection, data, intake)
            taken += len(data)
        connection.reason = ended or connection.reason

    def over(self, connection: Connection, intake: Intake) -> None:
        """End the session of a connection, if it has one. The bytes of an incomplete token line count as data."""
        self._take(connection, connection.opening or b"", intake)
        if (number := connection.number) is None:
            self._figures.empty += 1
        else:
            intake.close(number, connection.reason)
            del self._with_session[number]

    def _take(self, connection: Connection, data: bytes, intake: Intake) -> None:
        if not data:
            return
        if connection.number is None:
            connection.number = intake.open(
                self._listener.transport, connection.name,
                record_max=self._config.record_max, garbage_max=self._config.garbage_max,
            )  # fmt: skip
            self._with_session[connection.number] = connection
        intake.append(EntryKind.DATA, connection.number, data)
        self._figures.count_chunk(len(data))
