"""Recognise duplicate datagrams of a producer without sequence numbers.

Equal datagrams of a session count once while the first datagram is remembered: for `reorder_time`, and among the last
`reorder_events` datagrams. A producer that sends the same bytes twice within `reorder_time` cannot be distinguished
from a network that duplicates datagrams. After a duplicate, the number of events missing from a footer's total is an
estimate.

Memory: `COPY_BYTES` for each remembered datagram.
"""

from __future__ import annotations

from hashlib import blake2b

from tailrace.config.schema import LedgerConfig
from tailrace.model.holding import Evicted

_Copies = dict[bytes, tuple[int, int]]
"""Arrival time (Unix ns) and number of events by a datagram's digest, in order of arrival."""


COPY_BYTES = 256
"""Memory (bytes) of a remembered datagram."""


class Copies:
    """Remembers the recent datagrams of one session."""

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
        """Return the number of events in an equal earlier datagram; None without an equal datagram."""
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
    """Return 128 bits, enough that different datagrams never collide by chance."""
    return blake2b(datagram, digest_size=16).digest()
