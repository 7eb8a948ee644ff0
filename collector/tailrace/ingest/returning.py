"""Recognize producers that reconnect without an announcement.

Such a producer gets a new session on each connection. A stream of the new session continues the stream of the same name
in an earlier session from the same host, if the number and the time of its first event fit. The number fits if it is
the earlier stream's next number, or one of the `reorder_events` numbers after that. If both have the same epoch, any
later number fits. If their epochs differ, they belong to different producers, and no number fits.

If several sessions fit, the one with the nearest number is chosen. If none fits, an earlier session may still contain
the numbers that the new session lacks. The gap row of the new session then states the name of that earlier session.

A producer may reconnect while its broken connection still looks alive to the collector. Therefore a stream may also
continue a stream of an open session with the same epoch. Each number then counts in the session that received it first.
Events that the older session still receives are not missing in the newer session.

`Departures` remembers the ended sessions of a source for `resume_time`; the time in which no daemon ran does not count.
It remembers at most `sessions_max` sessions, with at most `source_streams_max` streams together. `Siblings` searches
for the sessions whose streams one incarnation (producer run) continues.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from typing import NamedTuple, Protocol

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.incarnation_rows import OwnRows
from tailrace.ingest.state import Departure, IncarnationState
from tailrace.ledger.counters import Counters, begin_behind
from tailrace.ledger.stream import far_before

_LOOKED_AT = 16
"""Maximum number of ended sessions, and maximum number of open sessions, that one search for an earlier session
examines. It limits the work per event however many connections a peer opens."""

_name = attrgetter("name")


class Sender(NamedTuple):
    """Facts about a session's producer that are known from the opening of the session."""

    host: str
    bits: int | None
    """Width (bits) of the producer's event numbers; None if the producer does not number events."""
    datagrams: bool
    """Whether events arrive in datagrams, and may therefore overtake each other."""
    limits: LedgerConfig


class Present(Protocol):
    """The interface through which one session uses another open session of its producer. The epoch of both sessions is
    known."""

    @property
    def name(self) -> str: ...

    def has(self, stream: str) -> bool:
        """Return whether the session has received events of a stream."""

    def end_of(self, stream: str) -> tuple[int, int] | None:
        """Return the number that would come next in a stream, and the mark (fingerprint) of its last event; None if the
        stream has no event."""

    def begin_behind(self, stream: str, numbers: range, now: int) -> None:
        """Record that `numbers` of a stream arrived in another session, so that this session does not lack them."""


class Earlier(NamedTuple):
    """An earlier session that has the stream of a new session's event. If the event continues this stream, `next` is
    the stream's next number in the earlier session; otherwise None."""

    session: str
    next: int | None


class Departures:
    """Remembers the ended sessions of one source in the order of their ends. Also finds the open sessions of a producer
    by the epoch (zero) of its clock."""

    def __init__(self, state: list[Departure]) -> None:
        self._state = state
        self._streams = 0
        self._of: dict[tuple[str, str], deque[Departure]] = {}
        """Ended sessions that had a stream, by host and stream, in the order in which the sessions ended."""
        self._present: dict[tuple[str, int], list[Present]] = {}
        """Open sessions by host and epoch, each list sorted by name. Sessions began in the order of their names; a
        restart of the daemon may add them in another order."""
        for departure in state:
            self._index(departure)

    def come(self, session: Present, host: str, epoch: int) -> None:
        """Add an open session, so that other sessions of the same producer can find it."""
        insort(self._present.setdefault((host, epoch), []), session, key=_name)

    def go(self, session: Present, host: str, epoch: int) -> None:
        """Remove a session from the open sessions. Do nothing if it is not among them."""
        present = self._present.get((host, epoch), [])
        if session in present:
            present.remove(session)
        if not present:
            self._present.pop((host, epoch), None)

    def beside(self, session: Present, host: str, epoch: int, stream: str) -> list[Present]:
        """Return the open sessions, except `session`, that have the same host and epoch as `session` and have received
        events of the stream `stream`. Sort them by name. If there are more than `_LOOKED_AT`, return only the newest
        ones."""
        newest = reversed(self._present.get((host, epoch), ()))
        having = (each for each in newest if each is not session and each.has(stream))
        return list(islice(having, _LOOKED_AT))[::-1]

    def add(self, departure: Departure, limits: LedgerConfig) -> None:
        """Remember an ended session. Forget the oldest sessions while there are too many of them or they are too old."""
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
        """Return the names of the streams in `streams` that no other session with the same epoch continues.

        `asks` is the name of the session that has these streams, and `streams` contains the next number of each."""

        def goes_on(name: str, following: int) -> bool:
            ends = self._ends(name, host, epoch, 0) if epoch is not None else ()
            return any(
                known and end >= following and session != asks for session, (end, _), known in ends
            )

        return [name for name, following in streams.items() if not goes_on(name, following)]

    def unnumbered(self, earlier: str, stream: str, host: str) -> int:
        """Return how many discarded events without a sequence number are reported in gaps of the ended session
        `earlier` and of the sessions that it continues. `stream` is a stream of `earlier`."""
        known = reversed(self._of.get((host, stream), ()))
        return next((each.unnumbered for each in known if each.session == earlier), 0)

    def continued(self, earlier: str, stream: str, host: str) -> bool:
        """Record that a later session continues the stream `stream` of the session `earlier`, whose connection broke.
        Return True if this was the last stream of `earlier` that no session continued."""
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
        """Extend the time for which all ended sessions are remembered by `time` (ns), in which no daemon ran and no
        producer could reconnect."""
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
        """Return the earlier session from `host` whose stream `stream` an event continues.

        If the event continues none, return the newest session with this stream, or None if there is none. Examine at
        most the newest `_LOOKED_AT` open sessions and the newest `_LOOKED_AT` ended sessions with this stream.

        `count` is the event's number as it was sent, modulo 2^`bits`. `mark` is the event's fingerprint. `asks` is the
        name of the session that received the event."""
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
        """Return whether no session but the one named `asks` can contain the stream `stream`: no ended session had the
        stream, and no other open session has the same epoch."""
        if (host, stream) in self._of:
            return False
        present = () if epoch is None else self._present.get((host, epoch), ())
        return not present or (len(present) == 1 and present[0].name == asks)

    def _ends(
        self, stream: str, host: str, epoch: int | None, oldest: int
    ) -> Iterator[tuple[str, tuple[int, int], bool]]:
        """Yield the sessions with the stream `stream`, newest first. Each item contains the session's name, the next
        number and the last fingerprint of its stream, and whether the session is known to have the epoch `epoch`. Leave
        out sessions with another epoch, and sessions that ended before the time `oldest`."""
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
    """Finds the other sessions of an incarnation's producer. Registers the incarnation (producer run) in `Departures`,
    where other sessions find it."""

    def __init__(
        self,
        state: IncarnationState,
        counters: Counters,
        departures: Departures,
        sender: Sender,
        own: OwnRows,
    ) -> None:
        """Register the incarnation (producer run), so that other sessions of its producer can find it."""
        self._state = state
        self._counters = counters
        self._departures = departures
        self._sender, self._host = sender, sender.host
        self._own = own
        self.come()

    @property
    def name(self) -> str:
        return self._state.name

    # Methods that other sessions of the same producer call

    def has(self, stream: str) -> bool:
        """Return whether the incarnation (producer run) has received events of a stream."""
        return stream in self._counters.state.streams

    def end_of(self, stream: str) -> tuple[int, int] | None:
        """Return the number that would come next in a stream, and the mark (fingerprint) of its last event; None if the
        stream has no event."""
        return self._counters.numbers.end_of(stream)

    def begin_behind(self, stream: str, numbers: range, now: int) -> None:
        """Record that `numbers` of a stream arrived in another session, and are not missing in this producer run."""
        begin_behind(self._counters, stream, numbers)
        self._counters.report(now)

    # Methods that call other sessions of the same producer

    def come(self) -> None:
        """Register the incarnation (producer run) in `Departures` as an open session with its epoch. Do nothing if it
        has no epoch, receives datagrams, or has a session id from its client."""
        state = self._state
        if not self._sender.datagrams and state.epoch is not None and not state.id:
            self._departures.come(self, self._host, state.epoch)

    def go(self) -> None:
        """Remove the incarnation (producer run) from the open sessions in `Departures`."""
        if self._state.epoch is not None:
            self._departures.go(self, self._host, self._state.epoch)

    def tell(self, streams: Iterable[str], now: int) -> None:
        """Pass the numbers of the received, missing and discarded events of the given streams to the producer's other
        open sessions, so that these sessions do not report the same events as missing."""
        epoch = self._state.epoch
        if epoch is None:
            return
        for stream in sorted({*streams}):
            for other in self._departures.beside(self, self._host, epoch, stream):
                other.begin_behind(stream, self._counters.numbers.accounts_for(stream), now)

    def earlier(self, stream: str, count: int, mark: int, now: int) -> int | None:
        """Return the number that the next event of an earlier session's stream would have had, if this event continues
        that stream. Return None if it continues no earlier stream (see `ledger.counters.EarlierNumber`)."""
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
        counters = self._counters.state
        before = self._departures.unnumbered(earlier.session, stream, self._host)
        counters.unnumbered_before = max(counters.unnumbered_before, before)
        if self._departures.continued(earlier.session, stream, self._host):
            self._own.heal_cut(earlier.session)
        return earlier.next

    def go_on(self) -> bool:
        """Return whether other sessions continue all streams of this incarnation (producer run); False if the
        incarnation has no stream."""
        return bool(self._counters.numbers.ends()) and not self._left()

    def _left(self) -> list[str]:
        """Return the incarnation's streams that no later or parallel session continues."""
        ends = {name: following for name, (following, _) in self._counters.numbers.ends().items()}
        return self._departures.left(ends, self._host, self._state.epoch, self.name)

    def depart(self, now: int, *, cut: bool) -> None:
        """Remember the next event number of each stream of this ended incarnation (producer run). With these numbers,
        its producer is recognised when it reconnects without an announcement. `cut` states that the connection broke.
        """
        streams = {} if self._state.id else self._counters.numbers.ends()
        if streams:
            left = self._left() if cut else []
            counters = self._counters.state
            departure = Departure(
                self.name, self._host, now, self._state.epoch, streams, left,
                counters.unnumbered + counters.unnumbered_before,
            )  # fmt: skip
            self._departures.add(departure, self._sender.limits)
