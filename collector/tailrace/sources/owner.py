"""Ask the kernel which user has the socket at the other end, if that end is on this host.

The kernel names the user of a unix socket's peer directly. For TCP and UDP, sock_diag finds the user of a socket by both
its addresses. It finds none once the user has closed the socket, and on a host without sock_diag.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST = 1
_HEADER = struct.Struct("=IHHII")
_ASKED = struct.Struct("=BBBxI")
_PORTS = struct.Struct("!HH")
_ADDRESSES = struct.Struct("16s16s")
_ANY_COOKIE = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_FOUND = struct.Struct("=4x2s2x16x16x12x12xII")
"""The socket's own port, its user and its inode."""


def owner(kind: socket.SocketKind, peer: Sequence[Any], ours: Sequence[Any]) -> int | None:
    """Return the user of the socket at `peer` that is connected to `ours`, or None if the kernel finds none."""
    family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
    near, far = _packed(peer), _packed(ours)
    if len(near[1]) != len(far[1]):
        far = (far[0], bytes(len(near[1])))  # bound to both families
    if family == socket.AF_INET6 and near[1].startswith(b"\0" * 10 + b"\xff\xff"):
        family, near, far = socket.AF_INET, (near[0], near[1][12:]), (far[0], far[1][12:])
    if not any(far[1]):  # a source on the unspecified address has the peer's own address
        far = (far[0], near[1])
    stream = kind == socket.SOCK_STREAM
    # For UDP, the kernel expects the addresses of a datagram that arrives at the peer's socket.
    first, second = (near, far) if stream else (far, near)
    asked = (
        _ASKED.pack(family, socket.IPPROTO_TCP if stream else socket.IPPROTO_UDP, 0, 0xFFFFFFFF)
        + _PORTS.pack(first[0], second[0])
        + _ADDRESSES.pack(first[1], second[1])
        + _ANY_COOKIE
    )
    header = _HEADER.pack(_HEADER.size + len(asked), _SOCK_DIAG_BY_FAMILY, _REQUEST, 1, 0)
    with suppress(OSError):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(0)
            kernel.sendto(header + asked, (0, 0))
            answer = kernel.recv(4096)
        if _HEADER.unpack_from(answer)[1] == _SOCK_DIAG_BY_FAMILY:
            port, user, inode = _FOUND.unpack_from(answer, _HEADER.size)
            if inode and int.from_bytes(port, "big") == near[0]:
                return int(user)
    return None


def names_users() -> bool:
    """Return whether the kernel names users at all. Some sandboxes have no sock_diag, or forbid AF_NETLINK."""
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname()) as peer,
        ):
            return owner(socket.SOCK_STREAM, peer.getsockname(), server.getsockname()) is not None
    except OSError:
        return False


def is_trusted(user: int | None) -> bool:
    """Return whether a user is the collector's own, or root."""
    return user in {os.geteuid(), 0}


def _packed(address: Sequence[Any]) -> tuple[int, bytes]:
    host = address[0].partition("%")[0]
    return address[1], socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
