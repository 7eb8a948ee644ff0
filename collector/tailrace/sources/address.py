"""Addresses as people write them, `host:port` and `[v6]:port`."""

from __future__ import annotations

import socket


def split(address: str) -> tuple[str, int]:
    """`[::1]:80` is ("::1", 80). The configuration has been checked: it has this form."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def join(sockname: tuple[str, int] | tuple[str, int, int, int]) -> str:
    host, port = sockname[0], sockname[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bound(listen: str, kind: socket.SocketKind) -> socket.socket:
    """A non-blocking socket of this kind, bound. Raise OSError."""
    host, port = split(listen)
    family, _, proto, _, address = socket.getaddrinfo(
        host or None, port, type=kind, flags=socket.AI_PASSIVE
    )[0]
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
