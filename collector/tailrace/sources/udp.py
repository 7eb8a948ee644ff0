"""Receive datagrams from one socket, and read the kernel's counts of waiting bytes and dropped datagrams.

With compiled code, a thread reads the socket independently of Python (`PumpedSocket`). Otherwise, each wake-up of the
event loop reads until the socket is empty or `DRAIN_MAX` datagrams were read, because one await for each datagram would
lose half of a burst (7.4 µs instead of 1.4 µs for each). The datagrams of one peer that were read together are passed
on as one chunk."""

from __future__ import annotations

import errno
import logging
import select
import socket
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

import trio

from tailrace.clock import Clock
from tailrace.config.schema import UdpConfig
from tailrace.kernels import active
from tailrace.pauses import pause
from tailrace.sources.connection import REST_MAX
from tailrace.sources.listening import (
    Listening,
    count_drops,
    drops_of,
    named,
    of_datagrams,
    size_buffer,
)
from tailrace.sources.peers import Address, Admission, Peer, chunks
from tailrace.sources.source import CHUNK_MAX, PUMP_ROOM, Intake, Outcome, Source, SourceFigures
from tailrace.spool.entry import EntryKind, measure_datagrams, pack_datagrams

if TYPE_CHECKING or active():
    from tailrace.sources._pump import Pump

logger = logging.getLogger(__name__)

SMALL_BUFFER = 4 * 2**20
"""Size (bytes) of a receive buffer that suffices for usual bursts. A smaller one causes a warning."""

LOOK_EVERY = 1.0

BURST_BYTES = 2000
"""Maximum rate (bytes per microsecond) at which a burst of small datagrams fills a socket's buffer."""

NAP_MIN, NAP_MAX = 100, 1000
"""Minimum and maximum time (µs) for which the reading thread sleeps, so that the next call reads several datagrams."""

DRAIN_MAX = 4096
"""Maximum number of datagrams that are read before other tasks run (about 8 ms).

Receiving comes before decoding, because the kernel may drop datagrams that wait."""

PARTS_MAX = 8
"""Maximum number of parts into which the datagrams of one read are divided, because each part costs log entries."""

_ANCILLARY = socket.CMSG_SPACE(4)
_SO_MEMINFO = 55
_MEMINFO = struct.Struct("=9I")
_MEMINFO_RMEM, _MEMINFO_DROPS = 0, 8
_SO_COOKIE = 57
_COOKIE = struct.Struct("=q")


class KernelQueue(NamedTuple):
    """The kernel's counters of a socket: the number of waiting bytes, and of all dropped datagrams (modulo 2^32)."""

    bytes: int
    drops: int


class QueuePart(NamedTuple):
    """Datagrams that followed one another in the kernel's queue, packed for the spool by peer. `before` and `drops` are
    the numbers of datagrams (modulo 2^32) that the kernel had dropped when the first and the last was queued."""

    by_peer: dict[Address, list[bytes]]
    before: int
    drops: int


class Received(NamedTuple):
    """The datagrams of one read, in parts between which the kernel has dropped datagrams.

    `emptied` states whether the read took all datagrams from the socket's queue."""

    parts: list[QueuePart]
    emptied: bool

    @classmethod
    def of(cls, queued: Sequence[tuple[Address, bytes, int]]) -> Self:
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


def nap(sock: socket.socket) -> int:
    """Return for how long (µs) a socket's thread may sleep: a burst then fills at most a quarter of the buffer."""
    longest = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // (4 * BURST_BYTES)
    return min(NAP_MAX, longest) if longest >= NAP_MIN else 0


class SystemSocket:
    """A kernel socket that receives datagrams. None of its methods blocks."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        count_drops(sock)

    def read(self) -> Received:
        """Return datagrams that wait in the socket; more may be left for the next call."""
        received: list[tuple[Address, bytes, int]] = []
        receive = self._sock.recvmsg
        try:
            while len(received) < DRAIN_MAX:
                data, ancillary, _, address = receive(65535, _ANCILLARY)
                received.append((address[:2], data, drops_of(ancillary) if ancillary else 0))
        except BlockingIOError:
            pass
        except OSError as error:
            # Ignore a report of the system that an earlier reply did not reach its peer.
            if error.errno not in {errno.ECONNREFUSED, errno.EINTR}:
                raise
        return Received.of(received)

    def send(self, data: bytes, address: Address) -> None:
        self._sock.sendto(data, address)

    def queue(self) -> KernelQueue:
        memory = _MEMINFO.unpack(
            self._sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        )
        return KernelQueue(memory[_MEMINFO_RMEM], memory[_MEMINFO_DROPS])

    def idle(self) -> bool:
        return not self.queue().bytes

    def cookie(self) -> int:
        """Return the number by which the kernel identifies the socket, unique until the next boot."""
        data = self._sock.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, _COOKIE.size)
        return int(_COOKIE.unpack(data)[0])

    @property
    def waitable(self) -> int:
        """Return the file descriptor that becomes readable when `read` can return datagrams."""
        return self._sock.fileno()

    rest = 0.0
    """Pause (seconds) between two reads: zero, because the kernel's queue might overflow."""

    def stop(self) -> None:
        """Do nothing, because no thread reads a socket of this kind."""


class PumpedSocket(SystemSocket):
    """A kernel socket that a thread reads without waiting for Python (see `_pump`)."""

    # A shorter pause costs more CPU time for each datagram (docs/decisions/sources.md, D91).
    rest = REST_MAX
    """Pause (seconds) between two calls of `read`. A kill loses the datagrams that the thread received since the
    last."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._pump = Pump(sock.fileno(), PUMP_ROOM, nap(sock))
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
        """Stop the thread. Later calls of `read` return what it has read, and then what waits in the kernel."""
        self._stopped = True
        self._pump.stop()


def system_socket(sock: socket.socket) -> SystemSocket:
    """Wrap a kernel socket for datagrams, with a reading thread if the compiled code is in use."""
    if active():
        try:
            return PumpedSocket(sock)
        except (OSError, MemoryError) as error:
            logger.warning("datagrams are read without a thread of their own: %s", error)
    return SystemSocket(sock)


class UdpSource(Source):
    """Receives datagrams and passes them to the daemon. The simulator calls the methods that do not wait."""

    def __init__(
        self, name: str, config: UdpConfig, clock: Clock, listening: Listening | None = None
    ) -> None:
        self._listening = listening or of_datagrams(config.listen)
        self._name = name
        self._figures = SourceFigures()
        self._sock: SystemSocket | None = None
        self._admission = Admission(config, clock, self._figures)
        self._peers = self._admission.peers
        self._counted = 0
        """Start (log time, ns) of the period that the next report of dropped datagrams covers."""
        self._quiet = False
        """Whether no datagram arrived since the last call of `look_around`."""

    async def run(
        self, intake: Intake, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with self._listening.reading() as sock:
            self.address = named(sock)
            self._admission.ours = sock.getsockname()
            asked = int(self._admission.config.receive_buffer)
            granted = size_buffer(sock, asked)
            self._figures.buffer_asked, self._figures.buffer_bytes = asked, granted
            if granted < min(asked, SMALL_BUFFER):
                logger.warning(
                    "source %s: asked for a receive buffer of %d bytes, got %d: bursts will be lost; "
                    "raise it with: sysctl -w net.core.rmem_max=%d",
                    self._name, asked, granted, asked // 2, extra={"source": self._name},
                )  # fmt: skip
            datagrams = system_socket(sock)
            self.begin(datagrams, intake)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._look_again, intake)
                task_status.started()
                try:
                    while True:
                        await intake.room()
                        await trio.lowlevel.wait_readable(datagrams.waitable)
                        self.drain(intake)
                        await trio.sleep(datagrams.rest)
                finally:
                    datagrams.stop()
                    self.finish(intake)

    def begin(self, sock: SystemSocket, intake: Intake) -> None:
        """Continue the sessions and the count of dropped datagrams that an earlier run of the daemon left."""
        self._sock = sock
        self._admission.resume(intake)
        # The first period for which drops are reported includes the time in which no process read the socket.
        listening, held = self._listening, self._listening.held_since
        self._counted = intake.now() if held is None else intake.at(held)
        listening.held_since = None
        if listening.inherited and not listening.drops_reported:
            listening.drops_reported, self._counted = intake.drops_before(sock.cookie())

    def finish(self, intake: Intake) -> None:
        while not self.drain(intake):
            pass
        self._admission.hand_on_noise(intake)
        self._count_last_drops(intake)
        self._sock = None

    def reconfigure(self, config: UdpConfig) -> None:
        self._admission.config = config

    def can_reply(self, number: int) -> bool:
        peer = self._peers.of_session(number)
        return peer is not None and peer.allowance >= peer.needed

    def reply(self, number: int, data: bytes) -> bool:
        return self._figures.replied(self._reply(self._peers.of_session(number), data))

    def figures(self) -> SourceFigures:
        self._measure_queue()
        self._figures.open = len(self._peers)
        return self._figures

    def _measure_queue(self) -> None:
        if self._sock is not None:
            self._figures.queue_bytes, self._figures.kernel_drops = self._sock.queue()

    def _reply(self, peer: Peer | None, data: bytes) -> Outcome:
        if peer is None or self._sock is None:
            return Outcome.GONE
        if len(data) > peer.allowance:
            peer.needed = len(data)
            return Outcome.EXCESS
        try:
            self._sock.send(data, peer.address)
        except OSError:
            return Outcome.REFUSED
        peer.allowance -= len(data)
        peer.needed = 1
        return Outcome.SENT

    def drain(self, intake: Intake) -> bool:
        """Receive the datagrams that wait in the socket; return whether none is left."""
        assert self._sock is not None  # noqa: S101 - `begin` comes first
        admission, figures = self._admission, self._figures
        received = self._sock.read()
        for part in received.parts:
            self._count_drops(part.before, intake)
            with intake.moment():
                self._count_drops(part.drops, intake)
                for address, payloads in part.by_peer.items():
                    if (peer := admission.peer_of(address, payloads, intake)) is not None:
                        for payload in payloads:
                            intake.append(EntryKind.DATAGRAMS, peer.number, payload)
                            _, size = measure_datagrams(payload)
                            figures.count_chunk(size)
                            peer.allowance += size
                if admission.noise_bytes > CHUNK_MAX:
                    admission.hand_on_noise(intake)
        self._quiet = self._quiet and not received.parts
        return received.emptied

    def _count_drops(self, dropped: int, intake: Intake) -> None:
        """Report the datagrams that the kernel has dropped since the last report."""
        # `dropped` is 0 for datagrams that arrived before `count_drops` was called.
        now, more = intake.now(), (dropped - self._listening.drops_reported) % 2**32
        if 0 < more < 2**31:
            assert self._sock is not None  # noqa: S101 - it was just read
            intake.drops(more, min(self._counted, now), self._sock.cookie(), dropped)
            self._listening.drops_reported = dropped
        self._counted = now + 1

    def _count_last_drops(self, intake: Intake) -> None:
        """Report the drops after the last datagram that was read, by the socket's counter."""
        self._measure_queue()
        with intake.moment():
            self._count_drops(self._figures.kernel_drops, intake)

    async def _look_again(self, intake: Intake) -> None:
        while True:
            await pause(LOOK_EVERY)
            self.look_around(intake)

    def look_around(self, intake: Intake) -> None:
        """Pass on noise, report drops of an idle socket, and end the sessions of silent peers."""
        self._admission.hand_on_noise(intake)
        if self._sock is not None and self._quiet and self._sock.idle():
            self._count_last_drops(intake)
        self._quiet = True
        self._admission.forget_silent(intake)
