"""Addresses in the form `host:port` or `[v6]:port`, and sockets bound to them."""

from __future__ import annotations

import errno
import socket
from typing import cast

from tailrace.errors import AddressError, ConfigError


def split(address: str) -> tuple[str, int]:
    """Return host and port: `[::1]:80` is ("::1", 80). The configuration was checked for this form."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def join(sockname: tuple[str, int] | tuple[str, int, int, int]) -> str:
    host, port = sockname[0], sockname[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bound(listen: str, kind: socket.SocketKind, *, shared: bool = False) -> socket.socket:
    """Return a non-blocking socket of this kind, bound to an address, which it may share with sockets of other
    processes. Raise OSError."""
    family, proto, address = _resolved(listen, kind)
    sock = socket.socket(family, kind, proto)
    try:
        if kind == socket.SOCK_STREAM:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address)
        sock.settimeout(0)
    except OSError:
        sock.close()
        raise
    return sock


def has(sock: socket.socket, listen: str, kind: socket.SocketKind) -> bool:
    """Return whether a socket is of this kind and bound to this address. Port 0 matches every port."""
    try:
        family, _, (host, port, *_) = _resolved(listen, kind)
        if (sock.family, sock.type) != (family, kind):
            return False
        bound_host, bound_port, *_ = sock.getsockname()
    except OSError:
        return False
    return bool(bound_host == host and port in {0, bound_port})


def refusal(key: str, listen: str, error: OSError) -> ConfigError:
    """Return the error to raise when the address `listen` of a key is not available: AddressError if
    it may become available. The text names the address, the cause and the remedy."""
    match error:
        case PermissionError():
            remedy = "change the key, or let this user"
        case OSError(errno=errno.EADDRINUSE):
            remedy = "`ss -lntuxp` says which process; end it, or change the key"
        case OSError(errno=errno.EADDRNOTAVAIL):
            remedy = "`ip -brief address` lists this host's; wait for this one, or change the key"
        case _:
            remedy = "change the key, or wait and start again"
    kind = ConfigError if isinstance(error, PermissionError) else AddressError
    return kind([f"{key}: cannot listen on {listen}: {cause(error)}; {remedy}"])


def cause(error: OSError) -> str:
    """Return in words why an address is not available."""
    match error:
        case OSError(errno=errno.EADDRINUSE):
            return "another process does"
        case OSError(errno=errno.EADDRNOTAVAIL):
            return "this host has no such address"
        case socket.gaierror():
            return "the name has no address"
        case _:
            return error.strerror or str(error)


def _resolved(
    listen: str, kind: socket.SocketKind
) -> tuple[socket.AddressFamily, int, tuple[str, int]]:
    """Return family, protocol and address; an IPv6 address may have more parts. Raise OSError."""
    host, port = split(listen)
    family, _, proto, _, address = socket.getaddrinfo(
        host or None, port, type=kind, flags=socket.AI_PASSIVE
    )[0]
    return family, proto, cast("tuple[str, int]", address)
