"""Addresses as people write them, `host:port` and `[v6]:port`."""

from __future__ import annotations

import socket
from typing import cast


def split(address: str) -> tuple[str, int]:
    """`[::1]:80` is ("::1", 80). The configuration has been checked: it has this form."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def join(sockname: tuple[str, int] | tuple[str, int, int, int]) -> str:
    host, port = sockname[0], sockname[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bound(listen: str, kind: socket.SocketKind) -> socket.socket:
    """A non-blocking socket of this kind, bound. Raise OSError."""
    family, proto, address = _resolved(listen, kind)
    sock = socket.socket(family, kind, proto)
    try:
        if kind == socket.SOCK_STREAM:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.settimeout(0)
    except OSError:
        sock.close()
        raise
    return sock


def has(sock: socket.socket, listen: str, kind: socket.SocketKind) -> bool:
    """Whether a socket is of this kind and bound to this address; any port is port 0."""
    try:
        family, _, (host, port, *_) = _resolved(listen, kind)
        if (sock.family, sock.type) != (family, kind):
            return False
        bound_host, bound_port, *_ = sock.getsockname()
    except OSError:
        return False
    return bool(bound_host == host and port in {0, bound_port})


def _resolved(
    listen: str, kind: socket.SocketKind
) -> tuple[socket.AddressFamily, int, tuple[str, int]]:
    """Family, protocol and address, of which IPv6 may have more parts. Raise OSError."""
    host, port = split(listen)
    family, _, proto, _, address = socket.getaddrinfo(
        host or None, port, type=kind, flags=socket.AI_PASSIVE
    )[0]
    return family, proto, cast("tuple[str, int]", address)
