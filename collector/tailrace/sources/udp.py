"""A source of datagrams: one socket, drained on every wake-up, and a session for every peer.

Where there are kernels, a thread reads the socket whatever Python does meanwhile (`datagrams.PumpedSocket`), and
the loop takes what came in some milliseconds at a time. Else a wake-up reads until the socket is empty or
`DRAIN_MAX` datagrams are in hand: one await for each datagram would lose half of a burst (measured: 7.4 us
against 1.4 us a datagram). Either way each peer's datagrams are handed on as one chunk.

A peer's session outlives the daemon: its counters continue, so that our restart is no gap of the
peer's. Peers are forgotten after `idle_timeout`, or at `peers_max`, longest silent first.

A peer gets a session with its first readable datagram. Earlier datagrams, and those of peers that
send nothing readable, belong to one session of *strangers*, and are handed on once a second. Noise
from many addresses thus costs few rows and no memory, and evicts nobody.

Addresses can be forged. A peer is never sent more bytes than came from its address, and strangers are
sent nothing. Each new peer costs rows of the table, so only `new_peers_rate` peers may be new in a
second, and `peers_max` more after a quiet time. Datagrams of further peers are shed, and the
strangers' session says so in one gap a second. Datagrams from outside the allowed networks are
counted, and nothing else.
"""

from __future__ import annotations

import logging
import socket
from itertools import chain
from typing import Any

import trio

from tailrace.clock import Clock
from tailrace.config.schema import UdpConfig
from tailrace.decoding.formats import FORMATS
from tailrace.pauses import pause
from tailrace.security.guard import Networks
from tailrace.sources.datagrams import (
    Address,
    DatagramSocket,
    Newcomers,
    Peer,
    Peers,
    chunks,
    system_socket,
)
from tailrace.sources.listening import (
    Listening,
    is_trusted,
    join,
    named,
    of_datagrams,
    owner,
    size_buffer,
)
from tailrace.sources.source import CHUNK_MAX, Intake, Outcome, Refusal, SourceFigures
from tailrace.spool.entry import Datagrams, EntryKind, measure_datagrams, pack_datagrams
from tailrace.spool.payloads import FileLoss

SMALL_BUFFER = 4 * 2**20
"""Bytes of receive buffer below which usual bursts are lost."""

LOOK_EVERY = 1.0
"""Seconds between two calls of `look_around`."""

STRANGERS = "strangers"
"""The peer, in place of an address, of the session for all datagrams that have no session of their
own."""

logger = logging.getLogger(__name__)


class UdpSource:
    """Receives datagrams and hands them on.

    `run` only waits on a real socket. `begin`, `drain`, `look_around` and `finish` decide everything;
    the simulator calls them with a socket of its own."""

    def __init__(
        self, name: str, config: UdpConfig, clock: Clock, listening: Listening | None = None
    ) -> None:
        self.address = ""
        self._listening = listening or of_datagrams(config.listen)
        self._name = name
        self._config = config
        self._clock = clock
        self._figures = SourceFigures()
        self._sock: DatagramSocket | None = None
        self._ours: tuple[Any, ...] = ("0.0.0.0", 0)  # noqa: S104 - nobody listens there
        """The socket's address, while the source runs."""
        self._networks = Networks(config.allow)
        self._peers = Peers(config.peers_max)
        self._newcomers = Newcomers(config.new_peers_rate, config.peers_max, clock.monotonic())
        self._shed = 0
        """Bytes of datagrams shed since the last gap that named some."""
        self._noise: list[bytes] = []
        self._strangers: tuple[int, float] | None = None
        """The strangers' session, and when it began."""
        self._counted = 0
        """Since when the kernel's drops are not reported yet (log time)."""
        self._quiet = False
        """Whether nothing came since `look_around` was called."""

    async def run(
        self, intake: Intake, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with self._listening.reading() as sock:
            self.address = named(sock)
            self._ours = sock.getsockname()
            self._size_buffer(sock)
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

    def begin(self, sock: DatagramSocket, intake: Intake) -> None:
        """Continue where an earlier life ended."""
        self._sock = sock
        self._resume(intake)
        self._count_from(sock, intake)

    def finish(self, intake: Intake) -> None:
        """Take in what the kernel has queued, because it was sent while we were up."""
        while not self.drain(intake):
            pass
        self._hand_on_noise(intake)
        self._count_last_drops(intake)
        self._sock = None

    def reconfigure(self, config: UdpConfig) -> None:
        self._config = config

    def cut(self, number: int, reason: str) -> None:
        """Do nothing: a datagram peer cannot be disconnected, and its garbage costs only its own
        rows."""

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
            queue = self._sock.queue()
            self._figures.queue_bytes, self._figures.kernel_drops = queue

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

    def _size_buffer(self, sock: socket.socket) -> None:
        asked = int(self._config.receive_buffer)
        granted = size_buffer(sock, asked)
        self._figures.buffer_asked, self._figures.buffer_bytes = asked, granted
        if granted < min(asked, SMALL_BUFFER):
            logger.warning(
                "source %s: asked for a receive buffer of %d bytes, got %d: bursts will be lost; "
                "raise it with: sysctl -w net.core.rmem_max=%d",
                self._name, asked, granted, asked // 2, extra={"source": self._name},
            )  # fmt: skip

    def _resume(self, intake: Intake) -> None:
        """Restore the peers that an earlier life of the daemon knew."""
        now = self._clock.monotonic()
        for number, info in intake.sessions().items():
            if info.peer == STRANGERS:
                self._strangers = (number, now)
                continue
            host, _, port = info.peer.rpartition(":")
            address = (host.strip("[]"), int(port))
            self._peers.add(address, number, now)
            self._peers.refresh(address, now)

    def drain(self, intake: Intake) -> bool:
        """Take in what waits, or a part of it; return whether that was all."""
        assert self._sock is not None  # noqa: S101 - `begin` comes first
        received = self._sock.read()
        for part in received.parts:
            self._count_drops(part.before, intake)
            with intake.moment():
                self._count_drops(part.drops, intake)
                for address, payloads in part.by_peer.items():
                    if (peer := self._admitted(address, payloads, intake)) is not None:
                        for payload in payloads:
                            intake.append(EntryKind.DATAGRAMS, peer.number, payload)
                            peer.allowance += self._count(payload)
                if sum(map(len, self._noise)) > CHUNK_MAX:
                    self._hand_on_noise(intake)
        self._quiet = self._quiet and not received.parts
        return received.emptied

    def _admitted(self, address: Address, payloads: list[bytes], intake: Intake) -> Peer | None:
        """Return the peer at an address, whose datagrams are to be handed on. Return None after counting, keeping or shedding
        those that are not."""
        now = self._clock.monotonic()
        measures = [measure_datagrams(payload) for payload in payloads]
        count = sum(each for each, _ in measures)
        if self._networks and not self._networks.allows(address[0]):
            self._figures.refuse(Refusal.ADDRESS, count)
        elif self._config.same_user and (stranger := self._stranger(address, now)):
            self._figures.refuse(stranger, count)
        elif not any(size for _, size in measures):
            self._figures.empty += count
        else:
            known = self._peers.refresh(address, now)
            return known or self._newcomer(address, payloads, now, intake)
        return None

    def _stranger(self, address: Address, now: float) -> Refusal | None:
        """Return the reason to refuse datagrams from an address, because they may be another user's, or None. A known peer that has
        closed its socket is not refused."""
        user = owner(socket.SOCK_DGRAM, address, self._ours)
        if is_trusted(user) or (user is None and self._peers.refresh(address, now)):
            return None
        return Refusal.USER_UNKNOWN if user is None else Refusal.USER

    def _count_from(self, sock: DatagramSocket, intake: Intake) -> None:
        """Let the next count of drops include those from when no process had the socket."""
        held = self._listening.held_since
        self._counted = intake.now() if held is None else intake.at(held)
        self._listening.held_since = None
        if self._listening.inherited and not self._listening.drops_reported:
            self._listening.drops_reported, self._counted = intake.drops_before(sock.cookie())

    def _count_drops(self, dropped: int, intake: Intake) -> None:
        """Report what the kernel had dropped when a datagram was queued, before it is handed on.

        Datagrams that were queued before the kernel was asked to count carry 0."""
        now, more = intake.now(), (dropped - self._listening.drops_reported) % 2**32
        if 0 < more < 2**31:
            assert self._sock is not None  # noqa: S101 - it was just read
            intake.drops(more, min(self._counted, now), self._sock.cookie(), dropped)
            self._listening.drops_reported = dropped
        self._counted = now + 1

    def _count_last_drops(self, intake: Intake) -> None:
        """Report drops behind which no datagram was queued."""
        self._measure_queue()
        with intake.moment():
            self._count_drops(self._figures.kernel_drops, intake)

    def _count(self, payload: bytes) -> int:
        """Count a chunk of datagrams that was handed on; return how many bytes these have."""
        _, size = measure_datagrams(payload)
        self._figures.chunks += 1
        self._figures.bytes += size
        return size

    def _newcomer(
        self, address: Address, payloads: list[bytes], now: float, intake: Intake
    ) -> Peer | None:
        """Return the peer, which has a session from now on. Return None if it gets none: its
        datagrams are then kept as noise or shed."""
        format_, limit = FORMATS[self._config.format], self._config.record_max
        datagrams = list(chain.from_iterable(map(Datagrams, payloads)))
        if not any(format_.recognises_datagram(datagram, limit) for datagram in datagrams):
            self._noise += filter(None, datagrams)
            return None
        if not self._newcomers.admit(now):
            self._figures.refuse(Refusal.NEW_PEERS, len(datagrams))
            self._shed += sum(map(len, datagrams))
            return None
        for oldest in self._peers.make_room():
            intake.close(oldest, Refusal.PEERS)
            self._figures.refuse(Refusal.PEERS)
        return self._peers.add(address, intake.open("udp", join(address), record_max=limit), now)

    def _hand_on_noise(self, intake: Intake) -> None:
        """Hand on the datagrams that belong to no peer's session, and report those that were shed."""
        if not self._noise and not self._shed:
            return
        if self._strangers is None:
            number = intake.open("udp", STRANGERS, record_max=self._config.record_max)
            self._strangers = (number, self._clock.monotonic())
        if self._shed:
            intake.loss(self._strangers[0], FileLoss(detail="shed", size=self._shed))
        for payload in map(pack_datagrams, chunks(self._noise)):
            intake.append(EntryKind.DATAGRAMS, self._strangers[0], payload)
            self._count(payload)
        self._noise, self._shed = [], 0

    async def _look_again(self, intake: Intake) -> None:
        while True:
            await pause(LOOK_EVERY)
            self.look_around(intake)

    def look_around(self, intake: Intake) -> None:
        """Hand on the noise, and forget silent peers. A new strangers' session begins every
        `idle_timeout`, with a share of the quarantine of its own."""
        self._hand_on_noise(intake)
        if self._sock is not None and self._quiet and self._sock.idle():
            self._count_last_drops(intake)
        self._quiet = True
        horizon = self._clock.monotonic() - self._config.idle_timeout
        for number in self._peers.forget_silent(horizon):
            intake.close(number, "idle")
        if self._strangers and self._strangers[1] <= horizon:
            intake.close(self._strangers[0], "idle")
            self._strangers = None
