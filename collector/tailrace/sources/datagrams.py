"""Datagram sockets, with the kernel's figures of them.

`SystemSocket` is the kernel's, and `PumpedSocket` the same with a thread that reads it; the simulator has one of
its own.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from tailrace.kernels import active
from tailrace.sources.peers import Address
from tailrace.sources.rest import REST_MAX
from tailrace.sources.source import CHUNK_MAX
from tailrace.spool.entry import Datagrams

if TYPE_CHECKING or active():
    from tailrace.sources._pump import Pump

ROOM = 4 * 2**20
"""Bytes of datagrams that a socket's thread keeps, twice, while Python does not take them."""

BURST_BYTES = 2000
"""Bytes of a socket's buffer that a burst fills in a microsecond: less than two small datagrams."""

NAP_MIN, NAP_MAX = 100, 1000
"""Microseconds. A shorter nap brings nothing, and a longer nap hardly more."""

PUMP_BYTES = 2 * ROOM + 2 * 2**20
"""Bytes that the thread takes at most, with its buffers for 32 datagrams of any length."""

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


class Received(NamedTuple):
    """Datagrams by peer. `emptied`: whether no more waited in the socket's queue."""

    by_peer: dict[Address, list[Datagrams]]
    emptied: bool

    @classmethod
    def of(cls, by_peer: Mapping[Address, list[bytes]], count: int) -> Self:
        """Pack what was read from a queue: so many datagrams, of which at most DRAIN_MAX are read at a time."""
        packed = {
            peer: [Datagrams.pack(chunk) for chunk in chunks(datagrams)]
            for peer, datagrams in by_peer.items()
        }
        return cls(packed, count < DRAIN_MAX)


def chunks(datagrams: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield groups of datagrams of at most CHUNK_MAX bytes together."""
    group: list[bytes] = []
    size = 0
    for datagram in datagrams:
        if group and size + len(datagram) > CHUNK_MAX:
            yield group
            group, size = [], 0
        group.append(datagram)
        size += len(datagram)
    if group:
        yield group


def nap(sock: socket.socket) -> int:
    """Return how long datagrams may wait for more (µs): as long as they fill no quarter of the socket's buffer."""
    longest = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // (4 * BURST_BYTES)
    return min(NAP_MAX, longest) if longest >= NAP_MIN else 0


class DatagramSocket(Protocol):
    """A socket for datagrams. No call waits."""

    def read(self) -> Received:
        """Return the datagrams that wait, or a part of them."""
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

    def read(self) -> Received:
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
        return Received.of(received, count)

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

    @property
    def waitable(self) -> int:
        """Return the descriptor that can be read when `read` has something."""
        return self._sock.fileno()

    rest = 0.0
    """Seconds to wait between two reads: none, or the kernel's queue might overflow."""

    def stop(self) -> None:
        """Do nothing: nobody reads but `read`."""


class PumpedSocket(SystemSocket):
    """The kernel's socket, read by a thread that does not wait for Python (see `_pump`)."""

    rest = REST_MAX
    """Seconds. A killed process loses what came in them; in shorter ones each datagram costs more (D91)."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._pump = Pump(sock.fileno(), ROOM, nap(sock))
        self._stopped = False

    @property
    def waitable(self) -> int:
        return self._pump.wake

    def read(self) -> Received:
        by_peer, count = self._pump.take(CHUNK_MAX)
        if not count and self._stopped:
            return super().read()
        packed = {
            peer: [Datagrams(payload) for payload in payloads] for peer, payloads in by_peer.items()
        }
        return Received(packed, not self._stopped)

    def stop(self) -> None:
        """End the thread. `read` returns what it has read, and then what waits in the kernel."""
        self._stopped = True
        self._pump.stop()


def system_socket(sock: socket.socket) -> SystemSocket:
    """Return a socket of the kernel, with a thread that reads it where there are kernels."""
    return PumpedSocket(sock) if active() else SystemSocket(sock)
