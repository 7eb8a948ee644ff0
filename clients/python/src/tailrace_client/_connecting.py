"""Connect and poll the sockets of all transports."""

from __future__ import annotations

import errno
import select
import socket
from contextlib import suppress

CONNECT_SECONDS = 2.0
"""How long a peer may take to accept."""


def connect(host: bytes, port: int, kind: socket.SocketKind) -> socket.socket:
    """Return a connected, non-blocking socket to the first address of `host` that accepts it."""
    failure = OSError(f"{host.decode()} has no address")
    for family, type_, protocol, _, address in socket.getaddrinfo(host, port, type=kind):
        connection = socket.socket(family, type_, protocol)
        try:
            connection.settimeout(CONNECT_SECONDS)
            connection.connect(address)
            if connection.getsockname() == connection.getpeername():
                # The kernel may give our end the very port, if that is ephemeral and nobody listens.
                raise ConnectionRefusedError(errno.ECONNREFUSED, "connected to itself")
        except OSError as error:
            connection.close()
            failure = error
        else:
            connection.settimeout(0)
            return connection
    raise failure


def wait(connection: socket.socket | None, seconds: float, *, to_send: bool) -> None:
    """Wait at most `seconds` until bytes have come or, with `to_send`, there is room to send."""
    if connection is not None:
        poll = select.poll()
        with suppress(ValueError):  # closed by another thread just now
            poll.register(connection, select.POLLIN | (select.POLLOUT if to_send else 0))
            poll.poll(max(0.0, seconds) * 1000)
