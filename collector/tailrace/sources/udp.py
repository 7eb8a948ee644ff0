"""Receive datagrams from one socket, with one session for each peer.

With compiled code, a thread reads the socket independently of Python (`datagrams.PumpedSocket`), and the event loop
takes the datagrams every few milliseconds. Without compiled code, each wake-up of the event loop reads until the socket
is empty or `DRAIN_MAX` datagrams were read. One await for each datagram would lose half of a burst (measured: 7.4 µs
instead of 1.4 µs for each datagram). In both cases, the datagrams of one peer that were read together are passed on as
one chunk.

A peer's session continues after a restart of the daemon. The peer's event numbers therefore continue, too, and a
restart does not appear as a gap. A peer is forgotten after `idle_timeout` without a datagram. If a new peer comes and
there are `peers_max` peers, another peer is forgotten: first a peer that sent only one datagram, then the peer that has
been silent longest.

A peer gets a session with its first readable datagram. Unreadable datagrams of peers without a session belong to one
shared session, *strangers*, and are passed on once a second. Noise from many addresses therefore costs few rows and no
memory, and evicts no peer.

Addresses can be forged. The source never sends more bytes to a peer than it received from the peer's address, and sends
nothing to strangers. Each new peer costs table rows, so the source accepts only `new_peers_rate` new peers a second,
and up to `peers_max` more at once after a time without new peers. Datagrams of further peers are dropped, and the
strangers' session reports the dropped datagrams in one gap a second. Datagrams from outside the allowed networks are
counted and dropped.
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
"""Size (bytes) of a receive buffer that suffices for usual bursts. If the kernel grants less, and
less than requested, a warning is logged.
"""

LOOK_EVERY = 1.0
"""Interval (seconds) between two calls of `look_around`."""

STRANGERS = "strangers"
"""Name that the session for unreadable datagrams has as its peer. All peers without a session of their own share this
session."""

logger = logging.getLogger(__name__)


class UdpSource:
    """Receives datagrams and passes them to the daemon.

    `run` only waits on a real socket. All other work is done by the methods `begin`, `drain`, `look_around` and
    `finish`; the simulator calls these methods with its own socket.
    """

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
        """The socket's local address while the source runs."""
        self._networks = Networks(config.allow)
        self._peers = Peers(config.peers_max)
        self._newcomers = Newcomers(config.new_peers_rate, config.peers_max, clock.monotonic())
        self._shed = 0
        """Number of bytes in datagrams that were dropped because of `new_peers_rate` and not reported as a gap yet."""
        self._noise: list[bytes] = []
        self._strangers: tuple[int, float] | None = None
        """Number and start time of the session for unreadable datagrams (`STRANGERS`); None while there is none."""
        self._counted = 0
        """Start (log time, as the spool counts it) of the period that the next report of dropped datagrams covers."""
        self._quiet = False
        """Whether no datagram arrived since the last call of `look_around`."""

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
        """Continue the sessions and the count of dropped datagrams that an earlier run of the daemon left."""
        self._sock = sock
        self._resume(intake)
        self._count_from(sock, intake)

    def finish(self, intake: Intake) -> None:
        """Receive all datagrams that the peers sent before the source stops and that still wait in the kernel."""
        while not self.drain(intake):
            pass
        self._hand_on_noise(intake)
        self._count_last_drops(intake)
        self._sock = None

    def reconfigure(self, config: UdpConfig) -> None:
        self._config = config

    def cut(self, number: int, reason: str) -> None:
        """Do nothing, because a datagram peer cannot be disconnected.

        A peer's unreadable datagrams cost only rows of its own session.
        """

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
        """Restore the peers whose sessions an earlier run of the daemon left open."""
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
        """Receive the datagrams that wait in the socket; return whether none is left."""
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
        """Return the peer to whose session these datagrams belong.

        Return None if the datagrams were rejected and counted. Also return None if they are unreadable and kept for
        `STRANGERS`, the session that all peers without a session share.
        """
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
        """Return the reason for rejecting datagrams because another user sent them, or may have sent them. Return None
        to accept them.

        If the sender's socket is already closed, its user is unknown; accept the datagrams if the peer is known.
        """
        user = owner(socket.SOCK_DGRAM, address, self._ours)
        if is_trusted(user) or (user is None and self._peers.refresh(address, now)):
            return None
        return Refusal.USER_UNKNOWN if user is None else Refusal.USER

    def _count_from(self, sock: DatagramSocket, intake: Intake) -> None:
        """Set the time at which the period of the first report about dropped datagrams begins.

        The period includes the time in which the socket was open and no process read it.
        """
        held = self._listening.held_since
        self._counted = intake.now() if held is None else intake.at(held)
        self._listening.held_since = None
        if self._listening.inherited and not self._listening.drops_reported:
            self._listening.drops_reported, self._counted = intake.drops_before(sock.cookie())

    def _count_drops(self, dropped: int, intake: Intake) -> None:
        """Report the datagrams that the kernel has dropped since the last report. Call this before the datagram that
        revealed the drops is passed on.

        `dropped` is the socket's total number of drops, which the kernel attached to this datagram. The total is 0 for
        datagrams that arrived before `count_drops` was called.
        """
        now, more = intake.now(), (dropped - self._listening.drops_reported) % 2**32
        if 0 < more < 2**31:
            assert self._sock is not None  # noqa: S101 - it was just read
            intake.drops(more, min(self._counted, now), self._sock.cookie(), dropped)
            self._listening.drops_reported = dropped
        self._counted = now + 1

    def _count_last_drops(self, intake: Intake) -> None:
        """Report datagrams that the kernel dropped after the last datagram that was read.

        No later datagram reveals these drops, so read the socket's counter.
        """
        self._measure_queue()
        with intake.moment():
            self._count_drops(self._figures.kernel_drops, intake)

    def _count(self, payload: bytes) -> int:
        """Count a packed group of datagrams that was passed on. Return the total size (bytes) of its datagrams."""
        _, size = measure_datagrams(payload)
        self._figures.chunks += 1
        self._figures.bytes += size
        return size

    def _newcomer(
        self, address: Address, payloads: list[bytes], now: float, intake: Intake
    ) -> Peer | None:
        """Open a session for a new peer. Return the peer, or None if no session is opened.

        If none of the datagrams is readable, keep them for `STRANGERS`, the session that all peers without a session
        share. If there are too many new peers, drop the datagrams.
        """
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
        """Pass the unreadable datagrams of peers without a session to the shared session of `STRANGERS`.

        Also report there how many bytes of rejected new peers were dropped.
        """
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
        """Do the work that is due once a second: pass on unreadable datagrams of unknown peers, report dropped
        datagrams if the socket is idle, and end the sessions of peers that were silent for `idle_timeout`.

        Also end the session for unreadable datagrams (`STRANGERS`) once it is `idle_timeout` old. The next such session
        may again store bytes in the quarantine (files of unreadable bytes).
        """
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
