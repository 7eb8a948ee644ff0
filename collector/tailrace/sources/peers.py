"""Decide to which session the datagrams of an address belong.

A peer gets a session with its first readable datagram, and keeps it across a restart of the daemon. A peer is forgotten
after `idle_timeout` without a datagram, or for a new peer beyond `peers_max`: first a peer that sent only one datagram,
then the peer that has been silent longest. So a sender with many forged addresses does not evict peers that sent
several.

Unreadable datagrams of peers without a session belong to one shared session, *strangers*, so noise costs few rows and
no memory. Each new peer costs table rows, so the source accepts only `new_peers_rate` a second, after a burst of up to
`peers_max`. Datagrams of further peers are dropped, which the strangers' session reports as a gap."""

from __future__ import annotations

import socket
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from tailrace.clock import Clock
from tailrace.config.schema import UdpConfig
from tailrace.decoding.formats import FORMATS
from tailrace.security.guard import Networks
from tailrace.sources.listening import is_trusted, join, owner, split
from tailrace.sources.source import CHUNK_MAX, Intake, Refusal, SourceFigures
from tailrace.spool.entry import Datagrams, EntryKind, measure_datagrams, pack_datagrams
from tailrace.spool.payloads import FileLoss

Address = tuple[str, int]

STRANGERS = "strangers"
"""Name of the peer in the shared session for unreadable datagrams of peers without a session."""


class Peer:
    """A peer that sends datagrams: its address, its session, and the number of bytes that may be sent to it."""

    __slots__ = ("active_at", "address", "allowance", "needed", "number")

    def __init__(self, address: Address, number: int, now: float) -> None:
        self.address = address
        self.number = number
        self.active_at = now
        self.allowance = 0
        """Number of bytes that may be sent to the peer: bytes received from it less bytes sent to it. So a sender with
        a forged address cannot make the collector flood that address."""
        self.needed = 1
        """Size (bytes) of a packet that waits until `allowance` reaches it."""


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
        """Evict the peers that have sent nothing since the time `horizon`. Yield their sessions."""
        for peers in (self._once, self._again):
            while peers and next(iter(peers.values())).active_at <= horizon:
                yield self._forget(peers)

    def _forget(self, peers: _ByActivity) -> int:
        _, peer = peers.popitem(last=False)
        del self._of_session[peer.number]
        return peer.number


class Newcomers:
    """Limits the number of new peers to `rate` a second, with bursts of up to `beforehand` more after a quiet time."""

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
    """The peers of one source, and the session for the datagrams of all other addresses (`STRANGERS`)."""

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
        """Number of bytes in datagrams of rejected new peers that are not reported as a gap yet."""
        self._noise: list[bytes] = []
        self._strangers: tuple[int, float] | None = None
        """Number and start time of the session for unreadable datagrams; None while there is none."""

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
        """Return the peer to whose session these datagrams belong; None if they were rejected, or kept for `STRANGERS`."""
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
        """Open a session for a new peer. Return None for too many new peers, or for unreadable datagrams."""
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
        """Append unreadable datagrams and the number of dropped bytes to the session of `STRANGERS`."""
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
        """End the sessions of peers that were silent for `idle_timeout`, and the session of `STRANGERS` if it began at
        least `idle_timeout` ago."""
        horizon = self._clock.monotonic() - self.config.idle_timeout
        for number in self.peers.forget_silent(horizon):
            intake.close(number, "idle")
        # End this session even if strangers still send: a session can store only a limited number of bytes in the
        # quarantine.
        if self._strangers and self._strangers[1] <= horizon:
            intake.close(self._strangers[0], "idle")
            self._strangers = None
