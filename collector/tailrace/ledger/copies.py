"""Datagrams that the network doubled, of a producer that numbers nothing.

Equal datagrams of a session are one, while the first is remembered: for `reorder_time`, and among the
last `reorder_events` datagrams. A producer that says the same twice in that time cannot be told from
a network that doubles. So what a footer's totals then lack is an estimate.

Memory: `COPY_BYTES` for each remembered datagram.
"""

from __future__ import annotations

from hashlib import blake2b

from tailrace.config.schema import LedgerConfig
from tailrace.model.holding import Evicted

_Copies = dict[bytes, tuple[int, int]]
"""By digest of a datagram, in the order in which they came: when (Unix ns), and how many events."""


COPY_BYTES = 256
"""What a remembered datagram takes."""


class Copies:
    """The datagrams of one session."""

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
        """Return how many events a datagram had when it came before; None if it did not."""
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
    """Return 128 bits: by chance no two datagrams that differ are ever equal."""
    return blake2b(datagram, digest_size=16).digest()
