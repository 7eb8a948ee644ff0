"""Recognize producers that reconnect without an announcement.

A producer that does not announce its session gets a new session on each connection. A stream of the new session
continues a stream of an earlier session from the same host if number and time fit. The number fits if it is the next
number, or among the `reorder_events` numbers after it; if both sessions have the same epoch, any later number fits. If
several sessions fit, the session with the nearest number is chosen. A session with another epoch belongs to another
producer. If number or time does not fit, an earlier session may still contain the missing numbers, and the gap names
this session.

A producer may find its connection broken and reconnect while the connection still looks alive to the collector.
Therefore a stream may also continue a stream of an open session with the same epoch. In this case the connection that
delivered a number first accounts for the number: if the open session receives further events, their numbers are not
missing in the session that continues the stream.

A source remembers ended sessions for `resume_time`, without the daemon's downtime (`Departures`). It remembers at most
`sessions_max` sessions, with at most `source_streams_max` streams together. `Siblings` performs the search for one
incarnation.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from typing import NamedTuple, Protocol

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.own_rows import OwnRows
from tailrace.ingest.state import Departure, IncarnationState
from tailrace.ledger.counters import Counters, begin_behind
from tailrace.ledger.stream import far_before

_LOOKED_AT = 16
"""Maximum number of ended sessions, and of open sessions, that one search examines. The maximum limits the work per
event, however many connections a peer opens."""

_name = attrgetter("name")


class Sender(NamedTuple):
    """Facts about a session's producer that are known before the first byte."""

    host: str
    bits: int | None
    """Width (bits) of the producer's counters; None without counters."""
    datagrams: bool
    """Whether the producer's events may overtake each other."""
    limits: LedgerConfig


class Present(Protocol):
    """Open session whose producer has stated an epoch."""

    @property
    def name(self) -> str: ...

    def has(self, stream: str) -> bool:
        """Return whether the session has a stream."""

    def end_of(self, stream: str) -> tuple[int, int] | None:
        """Return a stream's next number and the mark of its last event; None if the stream has no event."""

    def begin_behind(self, stream: str, numbers: range, now: int) -> None:
        """Record that another session accounts for these numbers of a stream."""


class Earlier(NamedTuple):
    """Earlier session with a stream. `next` is the number at which the stream continues; None if nothing shows a
    continuation."""

    session: str
    next: int | None


class Departures:
    """Remembers the ended sessions of one source in the order of their ends, and the open sessions by epoch."""

    def __init__(self, state: list[Departure]) -> None:
        self._state = state
        self._streams = 0
        self._of: dict[tuple[str, str], deque[Departure]] = {}
        """Ended sessions that had a stream, by host and stream, in the order of their ends."""
        self._present: dict[tuple[str, int], list[Present]] = {}
        """Open sessions by host and epoch, sorted by name, which is the order of their beginnings. A restart may
        restore the sessions in another order."""
        for departure in state:
            self._index(departure)

    def come(self, session: Present, host: str, epoch: int) -> None:
        """Add an open session."""
        insort(self._present.setdefault((host, epoch), []), session, key=_name)

    def go(self, session: Present, host: str, epoch: int) -> None:
        """Remove an open session, if it is known."""
        present = self._present.get((host, epoch), [])
        if session in present:
            present.remove(session)
        if not present:
            self._present.pop((host, epoch), None)

    def beside(self, session: Present, host: str, epoch: int, stream: str) -> list[Present]:
        """Return the newest `_LOOKED_AT` other open sessions of the same producer that have a stream, sorted by name."""
        newest = reversed(self._present.get((host, epoch), ()))
        having = (each for each in newest if each is not session and each.has(stream))
        return list(islice(having, _LOOKED_AT))[::-1]

    def add(self, departure: Departure, limits: LedgerConfig) -> None:
        """Remember an ended session. Forget the oldest sessions beyond the limits."""
        self._state.append(departure)
        self._index(departure)
        oldest = departure.left - limits.resume_time.ns
        while self._state and (
            self._state[0].left < oldest
            or len(self._state) > limits.sessions_max
            or self._streams > limits.source_streams_max
        ):
            self._forget_first()

    def left(
        self, streams: Mapping[str, int], host: str, epoch: int | None, asks: str
    ) -> list[str]:
        """Return the streams that no session of the same epoch continues, apart from the session `asks`. `streams`
        contains each stream's next number."""

        def goes_on(name: str, following: int) -> bool:
            ends = self._ends(name, host, epoch, 0) if epoch is not None else ()
            return any(
                known and end >= following and session != asks for session, (end, _), known in ends
            )

        return [name for name, following in streams.items() if not goes_on(name, following)]

    def continued(self, earlier: str, stream: str, host: str) -> bool:
        """Record that a later session continues a stream of an earlier session. Return whether later sessions now
        continue all streams of the earlier session's broken connection."""
        for departure in reversed(self._of.get((host, stream), ())):
            if departure.session == earlier and stream in departure.cut:
                departure.cut.remove(stream)
                return not departure.cut
        return False

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
        """Extend the lifetime of all ended sessions by a downtime (ns), in which no producer could reconnect."""
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
        """Return the session from a host whose stream continues with an event. If no stream continues, return the
        newest session that had this stream, or None.

        `count` is the event's wire number, modulo 2^`bits`. `asks` is the session that received the event. The search
        examines the newest `_LOOKED_AT` open sessions, and as many ended sessions, that had this stream."""
        newest = nearest = None
        if self._alone(stream, host, epoch, asks):
            return None
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

    def _alone(self, stream: str, host: str, epoch: int | None, asks: str) -> bool:
        """Return whether no other session has or had a stream."""
        if (host, stream) in self._of:
            return False
        present = () if epoch is None else self._present.get((host, epoch), ())
        return not present or (len(present) == 1 and present[0].name == asks)

    def _ends(
        self, stream: str, host: str, epoch: int | None, oldest: int
    ) -> Iterator[tuple[str, tuple[int, int], bool]]:
        """Yield the sessions that a stream may continue, newest first. With each session, yield the stream's end, and
        whether the epoch is the same."""
        if epoch is not None:
            present = reversed(self._present.get((host, epoch), ()))
            for session in islice((each for each in present if each.has(stream)), _LOOKED_AT):
                if end := session.end_of(stream):
                    yield session.name, end, True
        for departure in islice(reversed(self._of.get((host, stream), ())), _LOOKED_AT):
            if departure.left < oldest:
                break
            known = epoch is not None and departure.epoch is not None
            if not known or epoch == departure.epoch:
                yield departure.session, departure.streams[stream], known


class Siblings:
    """Finds the other sessions of an incarnation's producer, and represents the incarnation to them (see `Present`)."""

    def __init__(
        self,
        state: IncarnationState,
        counters: Counters,
        departures: Departures,
        sender: Sender,
        own: OwnRows,
    ) -> None:
        """Register the incarnation, so that sessions that reconnect can find it."""
        self._state = state
        self._counters = counters
        self._departures = departures
        self._sender, self._host = sender, sender.host
        self._own = own
        self.come()

    @property
    def name(self) -> str:
        return self._state.name

    # Calls by the other sessions of the producer

    def has(self, stream: str) -> bool:
        """Return whether the incarnation has a stream."""
        return stream in self._counters.state.streams

    def end_of(self, stream: str) -> tuple[int, int] | None:
        """Return a stream's next number and the mark of its last event; None if the stream has no event."""
        return self._counters.numbers.end_of(stream)

    def begin_behind(self, stream: str, numbers: range, now: int) -> None:
        """Record that another session accounts for these numbers of a stream."""
        begin_behind(self._counters, stream, numbers)
        self._counters.report(now)

    # Calls to the other sessions of the producer

    def come(self) -> None:
        """Register the incarnation under its epoch, if the incarnation has an epoch and no client announced it."""
        state = self._state
        if not self._sender.datagrams and state.epoch is not None and not state.id:
            self._departures.come(self, self._host, state.epoch)

    def go(self) -> None:
        """Remove the incarnation from the open sessions that others can find."""
        if self._state.epoch is not None:
            self._departures.go(self, self._host, self._state.epoch)

    def tell(self, streams: Iterable[str], now: int) -> None:
        """Report to other sessions the numbers of some streams that the incarnation accounts for."""
        epoch = self._state.epoch
        if epoch is None:
            return
        for stream in sorted({*streams}):
            for other in self._departures.beside(self, self._host, epoch, stream):
                other.begin_behind(stream, self._counters.numbers.accounts_for(stream), now)

    def earlier(self, stream: str, count: int, mark: int, now: int) -> int | None:
        """Return the number at which an earlier session's stream continues here; None without evidence (see
        `ledger.counters.EarlierNumber`)."""
        state = self._state
        if state.id:
            return None
        earlier = self._departures.find(
            stream, count, mark,
            bits=self._counters.mask.bit_length(), host=self._host, epoch=state.epoch, limits=self._sender.limits, now=now,
            asks=state.name,
        )  # fmt: skip
        if earlier is None:
            return None
        if earlier.next is None:
            state.elsewhere[stream] = earlier.session
            return None
        if earlier.session not in state.continues:
            state.continues.append(earlier.session)
            self._own.session("continue", {"continues": earlier.session}, now)
        if self._departures.continued(earlier.session, stream, self._host):
            self._own.heal_cut(earlier.session)
        return earlier.next

    def go_on(self) -> bool:
        """Return whether other sessions continue all streams of this incarnation; False without any stream."""
        return bool(self._counters.numbers.ends()) and not self._left()

    def _left(self) -> list[str]:
        """Return the streams that no other session continues."""
        ends = {name: following for name, (following, _) in self._counters.numbers.ends().items()}
        return self._departures.left(ends, self._host, self._state.epoch, self.name)

    def depart(self, now: int, *, cut: bool) -> None:
        """Remember the ends of the streams, because the producer may reconnect without an announcement. With `cut`, the
        broken connection may have lost further events."""
        streams = {} if self._state.id else self._counters.numbers.ends()
        if streams:
            left = self._left() if cut else []
            departure = Departure(self.name, self._host, now, self._state.epoch, streams, left)
            self._departures.add(departure, self._sender.limits)
