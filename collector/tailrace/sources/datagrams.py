"""Datagram sockets, with the kernel's figures of them.

`SystemSocket` is the kernel's; the simulator has one of its own.
"""

from __future__ import annotations

import errno
import socket
import struct
from typing import NamedTuple, Protocol

from tailrace.sources.peers import Address

DRAIN_MAX = 4096
"""Datagrams read before other tasks run, some 8 ms. Receiving goes first, because datagrams that wait
in the kernel can be lost and chunks that wait in the spool cannot."""

_SO_MEMINFO = 55
_MEMINFO = struct.Struct("=9I")
_MEMINFO_RMEM, _MEMINFO_DROPS = 0, 8
_SO_COOKIE = 57
_COOKIE = struct.Struct("=q")


class KernelQueue(NamedTuple):
    """The kernel's figures of a socket: bytes that wait, and datagrams ever dropped (modulo 2^32)."""

    bytes: int
    drops: int


class DatagramSocket(Protocol):
    """A socket for datagrams. No call waits."""

    def read(self) -> tuple[dict[Address, list[bytes]], int]:
        """Return datagrams by peer, and their number: all that wait, or DRAIN_MAX."""
        ...

    def send(self, data: bytes, address: Address) -> None:
        """Send a datagram. Raise OSError."""
        ...

    def queue(self) -> KernelQueue: ...

    def cookie(self) -> int:
        """Return the kernel's number of the socket, which no other socket has until the next boot."""
        ...


class SystemSocket:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def read(self) -> tuple[dict[Address, list[bytes]], int]:
        received: dict[Address, list[bytes]] = {}
        receive = self._sock.recvfrom
        count = 0
        try:
            while count < DRAIN_MAX:
                data, address = receive(65535)
                count += 1
                peer = address[:2]
                if peer in received:
                    received[peer].append(data)
                else:
                    received[peer] = [data]
        except BlockingIOError:
            pass
        except OSError as error:
            # An ICMP error of an earlier send: the peer that asked for an answer is gone.
            if error.errno not in {errno.ECONNREFUSED, errno.EINTR}:
                raise
        return received, count

    def send(self, data: bytes, address: Address) -> None:
        self._sock.sendto(data, address)

    def queue(self) -> KernelQueue:
        data = self._sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        memory = _MEMINFO.unpack(data)
        return KernelQueue(memory[_MEMINFO_RMEM], memory[_MEMINFO_DROPS])

    def cookie(self) -> int:
        data = self._sock.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, _COOKIE.size)
        (number,) = _COOKIE.unpack(data)
        return int(number)
