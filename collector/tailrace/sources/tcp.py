"""Connections over TCP; a peer is an address."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.config.schema import TcpConfig
from tailrace.security.guard import OPEN, Guard
from tailrace.sources.address import join, named
from tailrace.sources.connections import ConnectedPeer
from tailrace.sources.listening import Listening, of_connections
from tailrace.sources.owner import is_trusted, owner
from tailrace.sources.refusal import Refusal

_KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4))


class TcpListener:
    transport = "tcp"
    crowd = Refusal.CONNECTIONS_OF_ADDRESS
    enough = 32 * 1024
    """Half of the 64 KiB that Linux lets a new connection send before we read."""
    look_seconds = math.inf

    def __init__(
        self, config: TcpConfig, guard: Guard = OPEN, listening: Listening | None = None
    ) -> None:
        self.guard = guard
        self.greeting_timeout = float(config.greeting_timeout)
        self._same_user = config.same_user
        self._listening = listening or of_connections(config.listen)

    @contextmanager
    def listening(self) -> Iterator[tuple[socket.socket, str]]:
        with self._listening.reading() as sock:
            yield sock, named(sock)

    def renewed(self) -> socket.socket:
        return self._listening.open()

    def greet(
        self, sock: socket.socket, address: tuple[str, int] | tuple[str, int, int, int]
    ) -> ConnectedPeer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        user = None
        if self._same_user:
            user = owner(socket.SOCK_STREAM, address, sock.getsockname())
        return ConnectedPeer(join(address), address[0], user)

    def refusal(self, peer: ConnectedPeer) -> Refusal | None:
        if not self.guard.networks.allows(peer.whose):
            return Refusal.ADDRESS
        if not self._same_user or is_trusted(peer.user):
            return None
        if peer.user is not None:
            return Refusal.USER
        return Refusal.USER_UNKNOWN if self.guard.tokens is None else None

    def demands(self, peer: ConnectedPeer) -> Guard:
        known = self._same_user and is_trusted(peer.user)
        return self.guard._replace(tokens=None) if known else self.guard
