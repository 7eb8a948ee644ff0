"""Datagram sockets, with the kernel's figures of them, and the peers that send to them.

`SystemSocket` is the kernel's, and `PumpedSocket` the same with a thread that reads it; the simulator has one of its
own.

`Peers` has the sessions of a bounded number of peers. Peers that sent only one datagram are evicted first: a sender with
many forged addresses evicts these, and not the peers that have proved to be there.
"""

from __future__ import annotations

import errno
import logging
import select
import socket
import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from tailrace.kernels import active
from tailrace.sources.connection import REST_MAX
from tailrace.sources.listening import count_drops, drops_of
from tailrace.sources.source import CHUNK_MAX
from tailrace.spool.entry import pack_datagrams

if TYPE_CHECKING or active():
    from tailrace.sources._pump import Pump

Address = tuple[str, int]


class Peer:
    """One datagram peer."""

    __slots__ = ("active_at", "address", "allowance", "needed", "number")

    def __init__(self, address: Address, number: int, now: float) -> None:
        self.address = address
        self.number = number
        """The number of its session."""
        self.active_at = now
        """When its last datagram came."""
        self.allowance = 0
        """Bytes received from it, less the bytes sent to it. Its address may be forged: the owner of
        the address gets no more from us than was sent to us in its name."""
        self.needed = 1
        """The allowance needed before the next try, because a packet was too large."""


_ByActivity = OrderedDict[Address, Peer]
"""Peers, longest silent first."""


class Peers:
    def __init__(self, most: int) -> None:
        self._most = most
        self._once: _ByActivity = OrderedDict()
        self._again: _ByActivity = OrderedDict()
        self._of_session: dict[int, Peer] = {}

    def __len__(self) -> int:
        return len(self._of_session)

    def refresh(self, address: Address, now: float) -> Peer | None:
        """Note that a peer sends; return it, None if it is not known."""
        peer = self._again.pop(address, None) or self._once.pop(address, None)
        if peer is not None:
            peer.active_at = now
            self._again[address] = peer
        return peer

    def add(self, address: Address, number: int, now: float) -> Peer:
        """Add a peer at its first datagram. Make room before."""
        peer = self._once[address] = self._of_session[number] = Peer(address, number, now)
        return peer

    def of_session(self, number: int) -> Peer | None:
        return self._of_session.get(number)

    def make_room(self) -> Iterator[int]:
        """Forget peers until there is room for one more; yield their sessions."""
        while len(self) >= self._most:
            yield self._forget(self._once or self._again)

    def forget_silent(self, horizon: float) -> Iterator[int]:
        """Forget the peers that have sent nothing since `horizon`; yield their sessions."""
        for peers in (self._once, self._again):
            while peers and next(iter(peers.values())).active_at <= horizon:
                yield self._forget(peers)

    def _forget(self, peers: _ByActivity) -> int:
        _, peer = peers.popitem(last=False)
        del self._of_session[peer.number]
        return peer.number


class Newcomers:
    """A limit for new peers: `rate` a second, and `beforehand` more after a time without any."""

    def __init__(self, rate: int, beforehand: int, now: float) -> None:
        self._rate = rate
        self._most = float(beforehand + rate)
        self._room = self._most
        self._since = now

    def admit(self, now: float) -> bool:
        """Admit one more if there is room for it; return whether there is."""
        self._room = min(self._most, self._room + (now - self._since) * self._rate)
        self._since = now
        if self._room < 1:
            return False
        self._room -= 1
        return True


logger = logging.getLogger(__name__)

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

PARTS_MAX = 8
"""The most parts into which the datagrams of one read are divided. Under overload the kernel drops some before every
datagram, and each part costs entries of the log."""

_ANCILLARY = socket.CMSG_SPACE(4)
_SO_MEMINFO = 55
_MEMINFO = struct.Struct("=9I")
_MEMINFO_RMEM, _MEMINFO_DROPS = 0, 8
_SO_COOKIE = 57
_COOKIE = struct.Struct("=q")


class KernelQueue(NamedTuple):
    """The kernel's figures of a socket: bytes that wait, and datagrams ever dropped (modulo 2^32)."""

    bytes: int
    drops: int


class QueuePart(NamedTuple):
    """Payloads of datagrams (see `spool.entry`) that were queued one after the other, by peer. `before` and `drops` are the kernel's counts when the first and
    the last of them were queued (modulo 2^32)."""

    by_peer: dict[Address, list[bytes]]
    before: int
    drops: int


class Received(NamedTuple):
    """Datagrams in parts, which begin where the kernel's count has grown. `emptied`: whether no more waited in the socket's
    queue."""

    parts: list[QueuePart]
    emptied: bool

    @classmethod
    def of(cls, queued: Sequence[tuple[Address, bytes, int]]) -> Self:
        """Pack what was read from a queue, at most DRAIN_MAX datagrams: each with its peer and the kernel's count."""
        least, parts = len(queued) // PARTS_MAX, []
        begin = 0
        for at, (_, _, drops) in enumerate(queued):
            if at - begin > least and drops != queued[at - 1][2]:
                parts.append(queued[begin:at])
                begin = at
        parts.append(queued[begin:])
        return cls([_packed(part) for part in parts if part], len(queued) < DRAIN_MAX)


def _packed(queued: Sequence[tuple[Address, bytes, int]]) -> QueuePart:
    by_peer: dict[Address, list[bytes]] = {}
    for peer, datagram, _ in queued:
        by_peer.setdefault(peer, []).append(datagram)
    packed = {peer: list(map(pack_datagrams, chunks(each))) for peer, each in by_peer.items()}
    return QueuePart(packed, queued[0][2], queued[-1][2])


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

    def idle(self) -> bool:
        """Return whether no datagram waits to be read."""
        ...

    def cookie(self) -> int:
        """Return the kernel's number of the socket, which no other socket has until the next boot."""
        ...


class SystemSocket:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        count_drops(sock)

    def read(self) -> Received:
        received: list[tuple[Address, bytes, int]] = []
        receive = self._sock.recvmsg
        try:
            while len(received) < DRAIN_MAX:
                data, ancillary, _, address = receive(65535, _ANCILLARY)
                received.append((address[:2], data, drops_of(ancillary) if ancillary else 0))
        except BlockingIOError:
            pass
        except OSError as error:
            # An ICMP error of an earlier send: the peer that asked for an answer is gone.
            if error.errno not in {errno.ECONNREFUSED, errno.EINTR}:
                raise
        return Received.of(received)

    def send(self, data: bytes, address: Address) -> None:
        self._sock.sendto(data, address)

    def queue(self) -> KernelQueue:
        data = self._sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        memory = _MEMINFO.unpack(data)
        return KernelQueue(memory[_MEMINFO_RMEM], memory[_MEMINFO_DROPS])

    def idle(self) -> bool:
        return not self.queue().bytes

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
        taken = self._pump.take(CHUNK_MAX, PARTS_MAX)
        if not taken and self._stopped:
            return super().read()
        return Received([QueuePart(*part) for part in taken], not self._stopped)

    def idle(self) -> bool:
        waits, _, _ = select.select([self._pump.wake], [], [], 0)
        return not waits and super().idle()

    def stop(self) -> None:
        """End the thread. `read` returns what it has read, and then what waits in the kernel."""
        self._stopped = True
        self._pump.stop()


def system_socket(sock: socket.socket) -> SystemSocket:
    """Return a socket of the kernel, with a thread that reads it where there are kernels and a thread can be had."""
    if active():
        try:
            return PumpedSocket(sock)
        except (OSError, MemoryError) as error:
            logger.warning("datagrams are read without a thread of their own: %s", error)
    return SystemSocket(sock)
