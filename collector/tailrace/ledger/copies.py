"""Recognises datagrams that the network doubled, of a producer that numbers nothing.

Equal datagrams of a session count once while the first is remembered: for `reorder_time`, and among the
last `reorder_events` datagrams. A producer that sends the same bytes twice in that time looks like
a network that doubles. A footer's missing total is then an estimate.

Memory: `COPY_BYTES` for each remembered datagram.
"""

from __future__ import annotations

from hashlib import blake2b

from tailrace.config.schema import LedgerConfig
from tailrace.model.holding import Evicted

_Copies = dict[bytes, tuple[int, int]]
"""Arrival time (Unix ns) and number of events by a datagram's digest, in order of arrival."""


COPY_BYTES = 256
"""Bytes that a remembered datagram takes."""


class Copies:
    """The remembered datagrams of one session."""

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
        """Return how many events an equal earlier datagram had; None if there was none."""
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
