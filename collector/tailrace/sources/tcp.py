"""Connections: a session for each, its bytes as they come.

A peer costs itself and nobody else: the number of connections is limited, in all and for each
address; one that is silent too long, that takes too long over one record (slow loris) or that sends
nothing readable is closed, with the reason; one that vanished without a word is found by keep-alive
probes after about two minutes.
"""

from __future__ import annotations

import errno
import logging
import resource
import socket
from collections import Counter

import trio

from tailrace.config.schema import TcpConfig
from tailrace.sources.address import bound, join
from tailrace.sources.source import CHUNK_MAX, Intake, SourceFigures

BACKLOG = 512
DRAIN_MAX = 8 * 2**20
"""Bytes taken from one connection after the daemon was told to stop."""
RESERVE = 64
"""Descriptors left to the rest of the process, whatever peers do: the table's library ends it without."""
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))
_OUT_OF_DESCRIPTORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

logger = logging.getLogger(__name__)


class TcpSource:
    def __init__(self, name: str, config: TcpConfig) -> None:
        self.address = ""
        self._name = name
        self._config = config
        self._figures = SourceFigures()
        self._per_host: Counter[str] = Counter()
        self._cuts: dict[int, _Cut] = {}

    async def run(
        self, intake: Intake, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        for number in intake.sessions():
            intake.close(number, "collector restart")
        with bound(self._config.listen, socket.SOCK_STREAM) as listener:
            listener.listen(BACKLOG)
            self.address = join(listener.getsockname())
            async with trio.open_nursery() as nursery:
                task_status.started()
                while True:
                    await trio.lowlevel.wait_readable(listener)
                    await self._accept(listener, nursery, intake)

    def cut(self, number: int, reason: str) -> None:
        if (cut := self._cuts.get(number)) is not None:
            cut.reason = reason
            cut.scope.cancel()

    def figures(self) -> SourceFigures:
        self._figures.open = len(self._cuts)
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
        sock.settimeout(0)
        host = address[0]
        if sock.fileno() > resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVE:
            self._refused("out of descriptors")
        elif len(self._cuts) >= self._config.connections_max:
            self._refused("too many connections")
        elif self._per_host[host] >= self._config.connections_per_peer_max:
            self._refused("too many connections from one address")
        else:
            # Counted here and not in the task: a flood is accepted faster than tasks start.
            self._per_host[host] += 1
            garbage_max = self._config.garbage_max
            number = intake.open(
                "tcp", join(address), record_max=self._config.record_max, garbage_max=garbage_max
            )
            self._cuts[number] = _Cut()
            nursery.start_soon(self._connection, sock, host, number, intake)
            return
        sock.close()

    async def _connection(
        self, sock: socket.socket, host: str, number: int, intake: Intake
    ) -> None:
        cut = self._cuts[number]
        reason = "stop"
        try:
            with sock:
                with cut.scope:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                    for option, value in _KEEPALIVE:
                        sock.setsockopt(socket.IPPROTO_TCP, option, value)
                    reason = await self._receive(sock, number, intake)
                if cut.scope.cancelled_caught:
                    reason = cut.reason
                    self._refused(reason)
        finally:
            intake.close(number, reason)
            del self._cuts[number]
            self._per_host[host] -= 1
            if not self._per_host[host]:
                del self._per_host[host]

    async def _receive(self, sock: socket.socket, number: int, intake: Intake) -> str:
        """Take in until the peer ends it; why it ended."""
        while True:
            with trio.move_on_after(self._config.idle_timeout) as idle:
                try:
                    await intake.room()
                    await trio.lowlevel.wait_readable(sock)
                except trio.Cancelled:
                    if not idle.cancel_called and not self._cuts[number].scope.cancel_called:
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


class _Cut:
    """How a connection is ended from outside, and why."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.reason = "stop"
