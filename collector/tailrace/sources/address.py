"""Addresses in the form `host:port` or `[v6]:port`, and sockets bound to them.

`localhost` is 127.0.0.1 and ::1, and programs differ in which they try, or try first. So a socket at
`localhost` is one of both families, bound to the loopback device: only this host reaches it.
"""

from __future__ import annotations

import errno
import logging
import socket
from typing import NamedTuple, cast

from tailrace.config.listen import is_localhost
from tailrace.errors import AddressError, ConfigError

LOOPBACK = b"lo"
"""The loopback device."""

_WITHOUT_IPV6 = {
    errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.ENOPROTOOPT, errno.EPERM, errno.EPROTONOSUPPORT,
}  # fmt: skip
"""Errors of a host that has no IPv6, or a kernel before 5.7, which lets only root choose a device."""

logger = logging.getLogger(__name__)


class _Bind(NamedTuple):
    """Where to bind a socket. With a `device`, it takes both families."""

    family: socket.AddressFamily
    proto: int
    address: tuple[str, int]
    device: bytes = b""


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
    first, *rest = _resolved(listen, kind)
    try:
        return _bound(first, kind, shared=shared)
    except OSError as error:
        if not rest or error.errno not in _WITHOUT_IPV6:
            raise
        logger.warning("%s: listening on %s alone: %s", listen, rest[0].address[0], error.strerror)
    return _bound(rest[0], kind, shared=shared)


def _bound(at: _Bind, kind: socket.SocketKind, *, shared: bool) -> socket.socket:
    sock = socket.socket(at.family, kind, at.proto)
    try:
        if at.device:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, at.device)
        if kind == socket.SOCK_STREAM:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(at.address)
        sock.settimeout(0)
    except OSError:
        sock.close()
        raise
    return sock


def has(sock: socket.socket, listen: str, kind: socket.SocketKind) -> bool:
    """Return whether a socket is of this kind and bound to this address. Port 0 matches every port."""
    try:
        wanted = _resolved(listen, kind)
        host, port, *_ = sock.getsockname()
        found = sock.family, host, _device(sock)
    except OSError:
        return False
    return sock.type == kind and any(
        found == (each.family, each.address[0], each.device) and each.address[1] in {0, port}
        for each in wanted
    )


def named(sock: socket.socket) -> str:
    """Return the address at which peers on this host, at least, reach a socket that `bound` returned."""
    name = sock.getsockname()
    return f"localhost:{name[1]}" if _device(sock) == LOOPBACK else join(name)


def _device(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\0")


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


def _resolved(listen: str, kind: socket.SocketKind) -> list[_Bind]:
    """Return where to bind, the best first. Raise OSError."""
    host, port = split(listen)
    if is_localhost(host):
        both = _Bind(socket.AF_INET6, 0, ("::", port), LOOPBACK)
        return [both, _Bind(socket.AF_INET, 0, ("127.0.0.1", port))]
    family, _, proto, _, address = socket.getaddrinfo(
        host or None, port, type=kind, flags=socket.AI_PASSIVE
    )[0]
    return [_Bind(family, proto, cast("tuple[str, int]", address))]
