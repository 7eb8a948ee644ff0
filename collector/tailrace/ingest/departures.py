"""Producers that left without a word, as those are known again that come back.

A producer that does not announce its session has a new session with each connection. A stream of the
new session goes on with a stream of an earlier session from the same host if number and time fit: the
number is the next number, or among the `reorder_events` after it; with the same epoch in both sessions,
any later number. Of several such sessions it goes on with the one that comes nearest. A session with
another epoch is another producer's. Where number or time does not fit, an earlier session may have the
numbers, and the gap says so.

A producer may find its connection broken, and connect anew, while the connection still looks alive to
the collector. So streams go on also with sessions in being, of connections that said the same epoch.
What such a session takes in then is not missing in the sessions that went on with it.

Sessions are remembered for `resume_time`, in which a daemon runs, `sessions_max` of a source, with at
most `source_streams_max` streams together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter
from typing import NamedTuple, Protocol

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


class Present(Protocol):
    """A session in being, whose producer has said an epoch."""

    @property
    def name(self) -> str: ...

    def end_of(self, stream: str) -> tuple[int, int] | None:
        """Return a stream's next number and the mark of its last event, None where it has none."""

    def begin_behind(self, stream: str, numbers: range, now: int) -> None:
        """Take note that another session accounts for these numbers of a stream."""


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
        self._present: dict[tuple[str, int], list[Present]] = {}
        """By host and epoch."""
        for departure in state:
            self._index(departure)

    def come(self, session: Present, host: str, epoch: int) -> None:
        """Know a session in being."""
        self._present.setdefault((host, epoch), []).append(session)

    def go(self, session: Present, host: str, epoch: int) -> None:
        """Know it no more."""
        present = self._present.get((host, epoch), [])
        if session in present:
            present.remove(session)
        if not present:
            self._present.pop((host, epoch), None)

    def beside(self, session: Present, host: str, epoch: int) -> list[Present]:
        """Return the other sessions in being of the same producer."""
        present = self._present.get((host, epoch), ())
        return [other for other in present if other is not session]

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
        asks: str = "",
    ) -> Earlier | None:
        """Return the session from a host whose stream goes on with an event, given its number on the
        wire of so many bits, or else the newest session that had this stream; None where there is
        none. `asks` is the session that has the event. Of those that are over, look at the newest `_LOOKED_AT` that had this stream."""
        newest = nearest = None
        least = 1 << bits
        oldest = now - limits.resume_time.ns
        for session, (following, last), known in self._ends(stream, host, epoch, oldest):
            if session == asks:
                continue
            ahead = (count - following) % (1 << bits)
            most = 1 << (bits - 1) if known else limits.reorder_events
            if ahead < min(most, least) and not far_before(mark, last):
                nearest, least = Earlier(session, following), ahead
            newest = newest or Earlier(session, None)
        return nearest or newest

    def _ends(
        self, stream: str, host: str, epoch: int | None, oldest: int
    ) -> Iterator[tuple[str, tuple[int, int], bool]]:
        """Yield the sessions that a stream may go on with, the newest first, how far each went, and
        whether it has the same epoch."""
        if epoch is not None:
            present = self._present.get((host, epoch), [])
            for session in sorted(present, key=attrgetter("name"), reverse=True):
                if end := session.end_of(stream):
                    yield session.name, end, True
        for departure in islice(reversed(self._of.get((host, stream), ())), _LOOKED_AT):
            if departure.left < oldest:
                break
            known = epoch is not None and departure.epoch is not None
            if not known or epoch == departure.epoch:
                yield departure.session, departure.streams[stream], known


def host_of(peer: str) -> str:
    """Return the part of a peer's name that its next connection has, too: an address without port."""
    host, colon, port = peer.rpartition(":")
    return host if colon and port.isdigit() else peer
