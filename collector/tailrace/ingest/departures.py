"""Producers that left without a word, as those are known again that come back.

A producer that does not announce its session has a new session with each connection. A stream of the
new session that begins above zero goes on with a stream of an earlier session from the same host if
number and time fit: the number is the next number, or among the `reorder_events` after it; with the
same epoch in both sessions, any later number. A session with another epoch is another producer's.
Where number or time does not fit, an earlier session may have the numbers, and the gap says so.

Sessions are remembered for `resume_time`, in which a daemon runs, `sessions_max` of a source, with at
most `source_streams_max` streams together.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import NamedTuple

import msgspec

from tailrace.config.schema import LedgerConfig
from tailrace.ledger.stream import far_before

_LOOKED_AT = 16
"""Bounds the work for one event, however many connections a peer opens and leaves."""


class Departure(msgspec.Struct, array_like=True):
    """A session that is over."""

    session: str
    host: str
    left: int
    """Since when (Unix ns), later by the time for which no daemon ran."""
    epoch: int | None
    streams: dict[str, tuple[int, int]]
    """By stream, its next number and the mark of its last event."""


class Earlier(NamedTuple):
    """The session that had a stream before. `next` is the number with which the stream goes on, None
    where nothing shows that the stream goes on."""

    session: str
    next: int | None


class Departures:
    """The sessions of one source that are over, the one that left first before others."""

    def __init__(self, state: list[Departure]) -> None:
        self._state = state
        self._streams = 0
        self._of: dict[tuple[str, str], deque[Departure]] = {}
        """By host and stream, the sessions that had it, in the same order."""
        for departure in state:
            self._index(departure)

    def add(self, departure: Departure, limits: LedgerConfig) -> None:
        """Remember a session, and forget others where there are too many."""
        self._state.append(departure)
        self._index(departure)
        oldest = departure.left - limits.resume_time.ns
        while self._state and (
            self._state[0].left < oldest
            or len(self._state) > limits.sessions_max
            or self._streams > limits.source_streams_max
        ):
            self._forget_first()

    def _index(self, departure: Departure) -> None:
        self._streams += len(departure.streams)
        for stream in departure.streams:
            self._of.setdefault((departure.host, stream), deque()).append(departure)

    def _forget_first(self) -> None:
        departure = self._state.pop(0)
        self._streams -= len(departure.streams)
        for stream in departure.streams:
            key = departure.host, stream
            self._of[key].popleft()
            if not self._of[key]:
                del self._of[key]

    def stood_still(self, time: int) -> None:
        """Take note that for so long (ns) no daemon ran to which a producer could come back."""
        for departure in self._state:
            departure.left += time

    def find(
        self,
        stream: str,
        count: int,
        mark: int,
        *,
        bits: int,
        host: str,
        epoch: int | None,
        limits: LedgerConfig,
        now: int,
    ) -> Earlier | None:
        """Return the session from a host whose stream goes on with an event, given its number on the
        wire of so many bits, or else the newest session that had this stream; None where there is
        none. Look at the newest `_LOOKED_AT` sessions that had this stream."""
        oldest = now - limits.resume_time.ns
        newest: Earlier | None = None
        for departure in islice(reversed(self._of.get((host, stream), ())), _LOOKED_AT):
            if departure.left < oldest:
                break
            known = epoch is not None and departure.epoch is not None
            if known and epoch != departure.epoch:
                continue
            following, last = departure.streams[stream]
            ahead = (count - following) % (1 << bits)
            most = 1 << (bits - 1) if known else limits.reorder_events
            if ahead < most and not far_before(mark, last):
                return Earlier(departure.session, following)
            newest = newest or Earlier(departure.session, None)
        return newest


def host_of(peer: str) -> str:
    """Return the part of a peer's name that its next connection has, too: an address without port."""
    host, colon, port = peer.rpartition(":")
    return host if colon and port.isdigit() else peer
