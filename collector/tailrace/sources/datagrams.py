"""Receive datagrams from sockets, read the kernel's counts of waiting bytes and dropped datagrams,
and keep track of the peers.

`SystemSocket` is a kernel socket. `PumpedSocket` is a kernel socket that a separate thread reads.
The simulator has a socket of its own. `Peers` remembers which session each peer has, for a limited
number of peers. Peers that sent only one datagram are evicted first. A sender with many forged
addresses therefore does not evict peers that sent several datagrams.
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
    """A peer that sends datagrams: its address, its session, and the number of bytes that may be sent to it."""

    __slots__ = ("active_at", "address", "allowance", "needed", "number")

    def __init__(self, address: Address, number: int, now: float) -> None:
        self.address = address
        self.number = number
        """The number of the peer's session."""
        self.active_at = now
        """Time at which the peer's last datagram arrived."""
        self.allowance = 0
        """Number of bytes that may be sent to the peer: the bytes received from it, less the bytes sent to it.

        If a sender forges the address of another host, that host thus receives no more bytes than the forger sent.
        """
        self.needed = 1
        """Size (bytes) of a packet that was not sent because it exceeded `allowance`.

        The next attempt waits until `allowance` has reached this size.
        """


_ByActivity = OrderedDict[Address, Peer]
"""Peers by address. The peer that has been silent longest is first."""


class Peers:
    def __init__(self, most: int) -> None:
        self._most = most
        self._once: _ByActivity = OrderedDict()
        self._again: _ByActivity = OrderedDict()
        self._of_session: dict[int, Peer] = {}

    def __len__(self) -> int:
        return len(self._of_session)

    def refresh(self, address: Address, now: float) -> Peer | None:
        """Record that a datagram of a peer has arrived. Return the peer, or None for an unknown address."""
        peer = self._again.pop(address, None) or self._once.pop(address, None)
        if peer is not None:
            peer.active_at = now
            self._again[address] = peer
        return peer

    def add(self, address: Address, number: int, now: float) -> Peer:
        """Add a peer whose first datagram has arrived.

        The caller must call `make_room` before, so that the number of peers stays within its limit.
        """
        peer = self._once[address] = self._of_session[number] = Peer(address, number, now)
        return peer

    def of_session(self, number: int) -> Peer | None:
        return self._of_session.get(number)

    def make_room(self) -> Iterator[int]:
        """Evict peers until there is room for one more; yield the sessions of the evicted peers."""
        while len(self) >= self._most:
            yield self._forget(self._once or self._again)

    def forget_silent(self, horizon: float) -> Iterator[int]:
        """Evict the peers that have sent nothing since the time `horizon`. Yield their sessions."""
        for peers in (self._once, self._again):
            while peers and next(iter(peers.values())).active_at <= horizon:
                yield self._forget(peers)

    def _forget(self, peers: _ByActivity) -> int:
        _, peer = peers.popitem(last=False)
        del self._of_session[peer.number]
        return peer.number


class Newcomers:
    """Limits the number of new peers.

    It admits `rate` peers a second. After a time without new peers, it admits up to `beforehand` more at once.
    """

    def __init__(self, rate: int, beforehand: int, now: float) -> None:
        self._rate = rate
        self._most = float(beforehand + rate)
        self._room = self._most
        self._since = now

    def admit(self, now: float) -> bool:
        """Admit one more peer if the limit allows; return whether the peer was admitted."""
        self._room = min(self._most, self._room + (now - self._since) * self._rate)
        self._since = now
        if self._room < 1:
            return False
        self._room -= 1
        return True


logger = logging.getLogger(__name__)

ROOM = 4 * 2**20
"""Size (bytes) of each of the two buffers in which a socket's thread stores datagrams until Python
takes them.
"""

BURST_BYTES = 2000
"""Maximum growth (bytes a microsecond, as the kernel counts them) of a socket's buffer during a burst of small
datagrams.

The kernel adds its own overhead to each datagram. So this growth is less than two datagrams a microsecond.
"""

NAP_MIN, NAP_MAX = 100, 1000
"""Minimum and maximum time (µs) for which the reading thread sleeps, so that the next call reads several datagrams.

A shorter sleep saves no CPU time, and a longer one hardly saves more.
"""

PUMP_BYTES = 2 * ROOM + 2 * 2**20
"""Maximum memory (bytes) of a thread that reads datagrams: its two buffers of `ROOM` bytes, and 32 buffers for
datagrams of any length.
"""

DRAIN_MAX = 4096
"""Maximum number of datagrams that are read before other tasks run (about 8 ms).

Receiving has priority over decoding: the kernel may drop datagrams that wait, but the spool keeps all chunks that wait.
"""

PARTS_MAX = 8
"""Maximum number of parts into which the datagrams of one read are divided. The boundaries of the parts show where the
kernel dropped datagrams.

The limit is needed under overload: then the kernel drops datagrams before almost every queued datagram, and each part
costs log entries.
"""

_ANCILLARY = socket.CMSG_SPACE(4)
_SO_MEMINFO = 55
_MEMINFO = struct.Struct("=9I")
_MEMINFO_RMEM, _MEMINFO_DROPS = 0, 8
_SO_COOKIE = 57
_COOKIE = struct.Struct("=q")


class KernelQueue(NamedTuple):
    """The kernel's counters of a socket: the number of waiting bytes, and the total number of
    dropped datagrams (modulo 2^32).
    """

    bytes: int
    drops: int


class QueuePart(NamedTuple):
    """Datagrams that followed one another in the kernel's queue, packed for the spool by peer (see `spool.entry`).

    `before` is the number of datagrams (modulo 2^32) that the kernel had dropped when it queued the first of them,
    `drops` the number when it queued the last.
    """

    by_peer: dict[Address, list[bytes]]
    before: int
    drops: int


class Received(NamedTuple):
    """The datagrams of one read, in order. A new part begins only where the kernel has dropped datagrams.

    `emptied` states whether the read took all datagrams from the socket's queue.
    """

    parts: list[QueuePart]
    emptied: bool

    @classmethod
    def of(cls, queued: Sequence[tuple[Address, bytes, int]]) -> Self:
        """Pack datagrams that were read from the kernel's queue.

        Each item of `queued` has the sender, the bytes, and the number of datagrams that the kernel had dropped before.
        """
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
    """Divide datagrams into groups of at most CHUNK_MAX bytes. Yield the groups."""
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
    """Return the time (µs) for which the reading thread may sleep between two reads of a socket, so that one call reads
    several datagrams.

    In this time, a burst fills at most a quarter of the socket's buffer. The result is 0 if the buffer is too small for
    any sleep.
    """
    longest = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // (4 * BURST_BYTES)
    return min(NAP_MAX, longest) if longest >= NAP_MIN else 0


class DatagramSocket(Protocol):
    """The interface to a socket that receives datagrams. None of its methods blocks."""

    def read(self) -> Received:
        """Return datagrams that wait in the socket; more may be left for the next call."""
        ...

    def send(self, data: bytes, address: Address) -> None:
        """Send a datagram to an address. Raise OSError if the kernel refuses it."""
        ...

    def queue(self) -> KernelQueue: ...

    def idle(self) -> bool:
        """Return whether no datagram waits in the socket."""
        ...

    def cookie(self) -> int:
        """Return the socket's cookie: a number by which the kernel identifies the socket, unique until the next boot."""
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
            # Ignore errors by which the operating system reports that an earlier reply did not reach its peer.
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
        """Return the file descriptor that becomes readable when `read` can return datagrams."""
        return self._sock.fileno()

    rest = 0.0
    """Pause (seconds) between two reads: zero, because the kernel's queue might overflow during a pause."""

    def stop(self) -> None:
        """Do nothing, because no thread reads a socket of this kind."""


class PumpedSocket(SystemSocket):
    """A kernel socket that a thread reads without waiting for Python (see `_pump`)."""

    rest = REST_MAX
    """Pause (seconds) between two calls of `read`.

    If the process is killed, the datagrams that its thread read during the pause are lost. A shorter pause would cost
    more CPU time for each datagram (docs/decisions/sources.md, D91).
    """

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
        """Stop the thread. Later calls of `read` first return the datagrams that the thread has
        read, and then those that wait in the kernel.
        """
        self._stopped = True
        self._pump.stop()


def system_socket(sock: socket.socket) -> SystemSocket:
    """Wrap a kernel socket for datagrams. If the compiled code is in use and a thread can be started, return a
    `PumpedSocket`, which the thread reads."""
    if active():
        try:
            return PumpedSocket(sock)
        except (OSError, MemoryError) as error:
            logger.warning("datagrams are read without a thread of their own: %s", error)
    return SystemSocket(sock)
