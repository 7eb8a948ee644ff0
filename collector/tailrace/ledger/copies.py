"""Recognise duplicate datagrams of a producer that writes no sequence numbers.

A datagram is a duplicate if an equal one is among the last `reorder_events` datagrams and arrived within the last
`reorder_time`. A producer that sends the same bytes twice looks like a network that duplicates datagrams. Therefore,
after a duplicate, the number of missing events according to a footer is an estimate.
"""

from __future__ import annotations

from hashlib import blake2b

from tailrace.config.schema import LedgerConfig
from tailrace.model.holding import Evicted

_Copies = dict[bytes, tuple[int, int]]
"""The remembered datagrams by their digests, in order of arrival: the arrival time (Unix ns) and the number of events
of each."""


COPY_BYTES = 256


class Copies:
    """Remembers digests of the recent datagrams of one session, to recognise duplicates."""

    what = Evicted.COPIES

    def __init__(self, limits: LedgerConfig, state: _Copies) -> None:
        self._most = limits.reorder_events
        self._time = limits.reorder_time.ns
        self._known = state
        self.evicted = 0

    @property
    def held(self) -> int:
        return COPY_BYTES * len(self._known)

    def give_way(self, size: int) -> None:
        while size > 0 and self._known:
            del self._known[next(iter(self._known))]
            self.evicted += 1
            size -= COPY_BYTES

    def events_of(self, datagram: bytes, now: int) -> int | None:
        """Return the number of events in a remembered datagram with the same bytes; None if there is none."""
        self._forget(now)
        known = self._known.get(_digest(datagram))
        return None if known is None else known[1]

    def remember(self, datagram: bytes, events: int, now: int) -> None:
        self._known[_digest(datagram)] = (now, events)
        if len(self._known) > self._most:
            del self._known[next(iter(self._known))]

    def _forget(self, now: int) -> None:
        known = self._known
        while known:
            digest = next(iter(known))
            if known[digest][0] > now - self._time:
                return
            del known[digest]


def _digest(datagram: bytes) -> bytes:
    return blake2b(datagram, digest_size=16).digest()
