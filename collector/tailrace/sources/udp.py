"""Receive datagrams from one socket, decide to which session they belong, and count those that the kernel drops.

With compiled code, a thread reads the socket independently of Python (`PumpedSocket`). Otherwise, each wake-up of the
event loop reads until the socket is empty or `DRAIN_MAX` datagrams were read, because one await for each datagram would
lose half of a burst (7.4 µs instead of 1.4 µs for each). The datagrams of one peer that were read together are passed
on as one chunk.

A peer gets a session with its first readable datagram, and keeps it across a restart of the daemon. A peer is forgotten
after `idle_timeout` without a datagram, or for a new peer beyond `peers_max`: first a peer that sent only one datagram,
then the peer that has been silent longest. So a sender with many forged addresses does not evict peers that sent
several datagrams.

Unreadable datagrams of peers without a session belong to one shared session, *strangers*, so noise costs few rows and
no memory. Each new peer costs table rows, so the source accepts only `new_peers_rate` a second, after a burst of up to
`peers_max`. Datagrams of further peers are dropped, and the session *strangers* reports them as a gap."""

from __future__ import annotations

import errno
import logging
import select
import socket
import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import trio

from tailrace.clock import Clock
from tailrace.config.schema import UdpConfig
from tailrace.decoding.formats import FORMATS
from tailrace.kernels import active
from tailrace.pauses import pause
from tailrace.security.guard import Networks
from tailrace.sources.connection import REST_MAX
from tailrace.sources.listening import (
    Listening,
    count_drops,
    drops_of,
    is_trusted,
    join,
    named,
    of_datagrams,
    owner,
    size_buffer,
    split,
)
from tailrace.sources.source import (
    CHUNK_MAX,
    PUMP_ROOM,
    Intake,
    Outcome,
    Refusal,
    Source,
    SourceFigures,
)
from tailrace.spool.entry import Datagrams, EntryKind, measure_datagrams, pack_datagrams
from tailrace.spool.payloads import FileLoss

if TYPE_CHECKING or active():
    from tailrace.sources._pump import Pump

logger = logging.getLogger(__name__)

SMALL_BUFFER = 4 * 2**20
"""Size (bytes) of a receive buffer that suffices for usual bursts. If the kernel grants less than this and than
requested, the source logs a warning."""

LOOK_EVERY = 1.0

BURST_BYTES = 2000
"""Maximum rate (bytes per microsecond) at which a burst of small datagrams fills a socket's buffer."""

NAP_MIN, NAP_MAX = 100, 1000
"""Minimum and maximum time (µs) for which the reading thread sleeps, so that the next call reads several datagrams."""

DRAIN_MAX = 4096
"""Maximum number of datagrams that are read before other tasks run (about 8 ms).

Receiving comes before decoding, because the kernel may drop datagrams that wait."""

PARTS_MAX = 8
"""The datagrams of one read are divided where the kernel has dropped others, but into at most this number of parts,
because each part costs log entries."""

_ANCILLARY = socket.CMSG_SPACE(4)
_SO_MEMINFO = 55
_MEMINFO = struct.Struct("=9I")
_MEMINFO_RMEM, _MEMINFO_DROPS = 0, 8
_SO_COOKIE = 57
_COOKIE = struct.Struct("=q")


Address = tuple[str, int]

STRANGERS = "strangers"
"""Name, in place of a peer's name, of the session that all peers without a session of their own share. This session has
the unreadable datagrams of these peers."""


class Peer:
    """A peer that sends datagrams: its address, its session, and the number of bytes that may still be sent to it."""

    __slots__ = ("active_at", "address", "allowance", "needed", "number")

    def __init__(self, address: Address, number: int, now: float) -> None:
        self.address = address
        self.number = number
        self.active_at = now
        self.allowance = 0
        """Number of bytes that may be sent to the peer: bytes received from it less bytes sent to it. So a sender with
        a forged address cannot make the collector flood that address."""
        self.needed = 1
        """Value of `allowance` from which on the next packet may be sent: the size (bytes) of the last packet if it was
        too large to be sent, otherwise 1."""


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
        peer = self._once[address] = self._of_session[number] = Peer(address, number, now)
        return peer

    def of_session(self, number: int) -> Peer | None:
        return self._of_session.get(number)

    def make_room(self) -> Iterator[int]:
        """Evict peers until there is room for one more; yield the sessions of the evicted peers."""
        while len(self) >= self._most:
            yield self._forget(self._once or self._again)

    def forget_silent(self, horizon: float) -> Iterator[int]:
        """Evict the peers that have sent nothing since the time `horizon`. Yield the sessions of these peers."""
        for peers in (self._once, self._again):
            while peers and next(iter(peers.values())).active_at <= horizon:
                yield self._forget(peers)

    def _forget(self, peers: _ByActivity) -> int:
        _, peer = peers.popitem(last=False)
        del self._of_session[peer.number]
        return peer.number


class Newcomers:
    """Limits the number of new peers to `rate` a second. After a time with few new peers, up to `beforehand` additional
    ones are accepted at once."""

    def __init__(self, rate: int, beforehand: int, now: float) -> None:
        self._rate = rate
        self._most = float(beforehand + rate)
        self._room = self._most
        self._since = now

    def admit(self, now: float) -> bool:
        self._room = min(self._most, self._room + (now - self._since) * self._rate)
        self._since = now
        if self._room < 1:
            return False
        self._room -= 1
        return True


def chunks(datagrams: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Divide datagrams into groups of at most CHUNK_MAX bytes."""
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


class Admission:
    """The peers of one source that have sessions, and the session that all other senders share (`STRANGERS`)."""

    def __init__(self, config: UdpConfig, clock: Clock, figures: SourceFigures) -> None:
        self.config = config
        self.peers = Peers(config.peers_max)
        self.ours: tuple[Any, ...] = ("0.0.0.0", 0)  # noqa: S104 - nobody listens there
        """The socket's local address while the source runs."""
        self._clock = clock
        self._figures = figures
        self._networks = Networks(config.allow)
        self._newcomers = Newcomers(config.new_peers_rate, config.peers_max, clock.monotonic())
        self._shed = 0
        """Number of bytes in datagrams that were dropped because of too many new peers, and that no gap reports yet."""
        self._noise: list[bytes] = []
        self._strangers: tuple[int, float] | None = None
        """Number and start time of the session that all peers without a session of their own share; None while there is
        no such session."""

    def resume(self, intake: Intake) -> None:
        now = self._clock.monotonic()
        for number, info in intake.sessions().items():
            if info.peer == STRANGERS:
                self._strangers = (number, now)
                continue
            address = split(info.peer)
            self.peers.add(address, number, now)
            self.peers.refresh(address, now)

    def peer_of(self, address: Address, payloads: list[bytes], intake: Intake) -> Peer | None:
        """Return the peer to whose session these datagrams belong. Return None if they are empty or rejected, or if
        they are unreadable and are kept for the session that peers without a session share (`STRANGERS`)."""
        now = self._clock.monotonic()
        measures = [measure_datagrams(payload) for payload in payloads]
        count = sum(each for each, _ in measures)
        if self._networks and not self._networks.allows(address[0]):
            self._figures.refuse(Refusal.ADDRESS, count)
        elif self.config.same_user and (stranger := self._stranger(address, now)):
            self._figures.refuse(stranger, count)
        elif not any(size for _, size in measures):
            self._figures.empty += count
        else:
            known = self.peers.refresh(address, now)
            return known or self._newcomer(address, payloads, now, intake)
        return None

    def _stranger(self, address: Address, now: float) -> Refusal | None:
        """Return why datagrams are rejected: another user sends them, or may do so. Return None if they are accepted."""
        # The user is unknown if the sender's socket is already closed.
        user = owner(socket.SOCK_DGRAM, address, self.ours)
        if is_trusted(user) or (user is None and self.peers.refresh(address, now)):
            return None
        return Refusal.USER_UNKNOWN if user is None else Refusal.USER

    def _newcomer(
        self, address: Address, payloads: list[bytes], now: float, intake: Intake
    ) -> Peer | None:
        """Open a session for a new peer, and return the peer. Return None if there are too many new peers, or if no
        datagram is readable; unreadable datagrams are kept for the common session of unknown peers (`STRANGERS`)."""
        format_, limit = FORMATS[self.config.format], self.config.record_max
        datagrams = list(chain.from_iterable(map(Datagrams, payloads)))
        if not any(format_.recognises_datagram(datagram, limit) for datagram in datagrams):
            self._noise += filter(None, datagrams)
            return None
        if not self._newcomers.admit(now):
            self._figures.refuse(Refusal.NEW_PEERS, len(datagrams))
            self._shed += sum(map(len, datagrams))
            return None
        for oldest in self.peers.make_room():
            intake.close(oldest, Refusal.PEERS)
            self._figures.refuse(Refusal.PEERS)
        return self.peers.add(address, intake.open("udp", join(address), record_max=limit), now)

    @property
    def noise_bytes(self) -> int:
        return sum(map(len, self._noise))

    def hand_on_noise(self, intake: Intake) -> None:
        """Append unreadable datagrams and the number of dropped bytes to the common session of unknown peers."""
        if not self._noise and not self._shed:
            return
        if self._strangers is None:
            number = intake.open("udp", STRANGERS, record_max=self.config.record_max)
            self._strangers = (number, self._clock.monotonic())
        if self._shed:
            intake.loss(self._strangers[0], FileLoss(detail="shed", size=self._shed))
        for payload in map(pack_datagrams, chunks(self._noise)):
            intake.append(EntryKind.DATAGRAMS, self._strangers[0], payload)
            self._figures.count_chunk(measure_datagrams(payload)[1])
        self._noise, self._shed = [], 0

    def forget_silent(self, intake: Intake) -> None:
        """End the sessions of peers that were silent for `idle_timeout`, and the common session of unknown peers
        (`STRANGERS`) if it began at least `idle_timeout` ago."""
        horizon = self._clock.monotonic() - self.config.idle_timeout
        for number in self.peers.forget_silent(horizon):
            intake.close(number, "idle")
        # End this session even if peers without a session of their own still send: a session can store only a limited
        # number of bytes in the quarantine.
        if self._strangers and self._strangers[1] <= horizon:
            intake.close(self._strangers[0], "idle")
            self._strangers = None


class KernelQueue(NamedTuple):
    """The kernel's counters of a socket: the number of waiting bytes, and of all dropped datagrams (modulo 2^32)."""

    bytes: int
    drops: int


class QueuePart(NamedTuple):
    """Datagrams that followed one another in the kernel's queue, packed for the spool by peer. `before` and `drops` are
    the numbers of datagrams (modulo 2^32) that the kernel had dropped when the part's first and last datagram were
    queued."""

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
        packed = []
        for part in filter(None, parts):
            by_peer: dict[Address, list[bytes]] = {}
            for peer, datagram, _ in part:
                by_peer.setdefault(peer, []).append(datagram)
            payloads = {a: list(map(pack_datagrams, chunks(each))) for a, each in by_peer.items()}
            packed.append(QueuePart(payloads, part[0][2], part[-1][2]))
        return cls(packed, len(queued) < DRAIN_MAX)


def nap(sock: socket.socket) -> int:
    """Return the time (µs) for which a socket's reading thread may sleep so that a burst fills at most a quarter of the
    buffer meanwhile."""
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
            # Ignore the kernel's report that an earlier reply did not reach its peer.
            if error.errno not in {errno.ECONNREFUSED, errno.EINTR}:
                raise
        return Received.of(received)

    def send(self, data: bytes, address: Address) -> None:
        """Send a datagram. Raise OSError if the kernel refuses it."""
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
    """Pause (seconds) between two reads: zero, because the kernel's queue might overflow during a pause."""

    def stop(self) -> None:
        """Do nothing, because no thread reads a socket of this kind."""


class PumpedSocket(SystemSocket):
    """A kernel socket that a thread reads without waiting for Python (see `_pump`)."""

    # A shorter pause costs more CPU time for each datagram (docs/decisions/sources.md, D91).
    rest = REST_MAX
    """Pause (seconds) between two calls of `read`. If the process is killed, the datagrams that the thread has received
    since the last call are lost."""

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
    """Receives datagrams and passes them to the daemon. The simulator in the tests calls only the methods that do not
    wait."""

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
        """Start of the period that the next report of dropped datagrams covers, as a time (ns) of the spool's log."""
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
        """Receive datagrams that wait in the socket, and append them to their sessions. Return whether all were
        received."""
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
        """Report the datagrams that were dropped after the last datagram that was read, according to the socket's
        counter."""
        self._measure_queue()
        with intake.moment():
            self._count_drops(self._figures.kernel_drops, intake)

    async def _look_again(self, intake: Intake) -> None:
        while True:
            await pause(LOOK_EVERY)
            self.look_around(intake)

    def look_around(self, intake: Intake) -> None:
        """Append unreadable datagrams to their session, report datagrams that the kernel has dropped at an idle socket,
        and end the sessions of silent peers."""
        self._admission.hand_on_noise(intake)
        if self._sock is not None and self._quiet and self._sock.idle():
            self._count_last_drops(intake)
        self._quiet = True
        self._admission.forget_silent(intake)
