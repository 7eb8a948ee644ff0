"""Recognize producers that reconnect without stating a session id.

Such a producer gets a new session on each connection. A stream of the new session continues the stream of the same name
in an earlier session from the same host, if the number and the time of its first event fit. The number must be the next
one or one of the `reorder_events` after it; if the epochs are equal, any later number fits; if they differ, none does.
The nearest number is chosen. If none fits, the gap row names the earlier session that may contain the missing numbers.
The earlier session may still be open if it has the same epoch: a broken connection may look alive.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.incarnation_rows import CUT, OwnRows
from tailrace.ingest.state import Departure, IncarnationState
from tailrace.ledger.counters import Counters, begin_behind
from tailrace.ledger.stream import far_before
from tailrace.model.record import Kind

_LOOKED_AT = 16
"""Maximum number of ended sessions, and of open ones, that one search examines, however many connections a peer
opens."""

_name = attrgetter("name")


class Sender(NamedTuple):
    """Facts about a session's producer that are known from the time at which the session was opened."""

    host: str
    bits: int | None
    """Width (bits) of the producer's event numbers; None if the producer does not number events."""
    datagrams: bool
    """Whether events arrive in datagrams, and may therefore overtake each other."""
    in_file: bool
    """Whether events are read from a file, which may be a part of a longer file."""
    limits: LedgerConfig


class Earlier(NamedTuple):
    """An earlier session with the stream of an event. If the event continues the stream of this session, `next` is the
    stream's next number."""

    session: str
    next: int | None


class Departures:
    """Remembers the ended sessions of one source in the order of their ends, and its open sessions."""

    def __init__(self, state: list[Departure]) -> None:
        self._state = state
        self._streams = 0
        self._of: dict[tuple[str, str], deque[Departure]] = {}
        """Ended sessions by host and stream, in the order in which they ended."""
        self._present: dict[tuple[str, int | None], list[Siblings]] = {}
        """Open sessions by host and epoch, each list sorted by name. Only sessions with an epoch are in it."""
        for departure in state:
            self._index(departure)

    def come(self, session: Siblings) -> None:
        # Keep the list sorted: a restart of the daemon may add the sessions in another order.
        insort(self._present.setdefault((session.host, session.epoch), []), session, key=_name)

    def go(self, session: Siblings) -> None:
        present = self._present.get((session.host, session.epoch), [])
        if session in present:
            present.remove(session)
        if not present:
            self._present.pop((session.host, session.epoch), None)

    def beside(self, session: Siblings, stream: str) -> list[Siblings]:
        """Return the newest open sessions (at most `_LOOKED_AT`, by name) other than `session` that have the stream
        `stream`."""
        newest = reversed(self._present.get((session.host, session.epoch), ()))
        having = (each for each in newest if each is not session and each.has(stream))
        return list(islice(having, _LOOKED_AT))[::-1]

    def add(self, departure: Departure, limits: LedgerConfig) -> None:
        """Remember an ended session. Forget the oldest ones if there are too many or they are too old."""
        self._state.append(departure)
        self._index(departure)
        oldest = departure.left - limits.resume_time.ns
        while self._state and (
            self._state[0].left < oldest
            or len(self._state) > limits.sessions_max
            or self._streams > limits.source_streams_max
        ):
            self._forget_first()

    def left(self, asks: Siblings, streams: Mapping[str, tuple[int, int]]) -> list[str]:
        """Return those streams of the session `asks` that no other session with the same epoch continues. `streams` has
        the next number and the mark (fingerprint) of the last event of each stream."""

        def goes_on(name: str, following: int) -> bool:
            ends = self._ends(asks, name, 0) if asks.epoch is not None else ()
            return any(known and end >= following for _, (end, _), known in ends)

        return [name for name, (following, _) in streams.items() if not goes_on(name, following)]

    def unnumbered(self, host: str, earlier: str, stream: str) -> int:
        """Return the number of discarded events without a sequence number that are reported for the session `earlier`
        and for the sessions that it continues."""
        known = reversed(self._of.get((host, stream), ()))
        return next((each.unnumbered for each in known if each.session == earlier), 0)

    def continued(self, host: str, earlier: str, stream: str) -> bool:
        """Record that a session continues a stream of `earlier`, a session whose connection broke. Return True if later
        sessions now continue all streams of `earlier`."""
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
        """Remember all ended sessions for `time` ns longer, because no daemon ran and no producer could reconnect."""
        for departure in self._state:
            departure.left += time

    def find(self, asks: Siblings, stream: str, count: int, mark: int, now: int) -> Earlier | None:
        """Return the earlier session of the same host whose stream an event continues. If there is none, return the
        newest session with this stream, or None. `asks` is the session that received the event, `count` the event's
        number as sent, and `mark` its fingerprint."""
        newest = nearest = None
        present = self._present.get((asks.host, asks.epoch), [])
        if (asks.host, stream) not in self._of and present in ([], [asks]):
            return None  # the usual case: no other session can contain the stream
        least = numbers = asks.numbers
        oldest = now - asks.limits.resume_time.ns
        for session, (following, last), known in self._ends(asks, stream, oldest):
            ahead = (count - following) % numbers
            most = numbers // 2 if known else asks.limits.reorder_events
            if ahead < min(most, least) and not far_before(mark, last):
                nearest, least = Earlier(session, following), ahead
            newest = newest or Earlier(session, None)
        return nearest or newest

    def _ends(
        self, asks: Siblings, stream: str, oldest: int
    ) -> Iterator[tuple[str, tuple[int, int], bool]]:
        """Yield the other sessions with the stream, newest first. Each entry has the session's name, the stream's next
        number and last fingerprint, and a truth value: True if the session and `asks` have stated equal epochs, False
        if one of them has stated none. Leave out sessions with another epoch, and sessions that ended before the time
        `oldest`."""
        host, epoch = asks.host, asks.epoch
        present = reversed(self._present.get((host, epoch), ()))
        for session in islice((each for each in present if each.has(stream)), _LOOKED_AT):
            if session.name != asks.name and (end := session.end_of(stream)):
                yield session.name, end, True
        for departure in islice(reversed(self._of.get((host, stream), ())), _LOOKED_AT):
            if departure.left < oldest:
                break
            known = epoch is not None and departure.epoch is not None
            if departure.session != asks.name and (not known or epoch == departure.epoch):
                yield departure.session, departure.streams[stream], known


class Siblings:
    """Finds the other sessions of an incarnation's producer, and registers the incarnation (producer run) for them."""

    def __init__(
        self,
        state: IncarnationState,
        counters: Counters,
        departures: Departures,
        sender: Sender,
        own: OwnRows,
    ) -> None:
        self._state = state
        self._counters = counters
        self._departures = departures
        self._datagrams, self.host, self.limits = sender.datagrams, sender.host, sender.limits
        self.name = state.name
        self.numbers = counters.mask + 1
        """Number of values that an event number as sent can have."""
        self._own = own
        self.come()

    @property
    def epoch(self) -> int | None:
        return self._state.epoch

    # Methods that other sessions of the same producer call

    def has(self, stream: str) -> bool:
        return stream in self._counters.state.streams

    def end_of(self, stream: str) -> tuple[int, int] | None:
        """Return the next number of a stream, and the mark (fingerprint) of its last event, or None."""
        return self._counters.numbers.end_of(stream)

    def begin_behind(self, stream: str, numbers: range, now: int) -> None:
        """Record that `numbers` of a stream arrived in another session, and are not missing in this producer run."""
        begin_behind(self._counters, stream, numbers)
        self._counters.report(now)

    # Methods that concern other sessions of the same producer

    def come(self) -> None:
        """Register the producer run as open, unless it has no epoch, sends datagrams, or has a session id from its
        client."""
        if not self._datagrams and self.epoch is not None and not self._state.id:
            self._departures.come(self)

    def go(self) -> None:
        if self.epoch is not None:
            self._departures.go(self)

    def tell(self, streams: Iterable[str], now: int) -> None:
        """Inform the producer's other open sessions which event numbers of `streams` this session has received or
        reported, so that they do not report these numbers as missing."""
        for stream in sorted({*streams}) if self.epoch is not None else ():
            for other in self._departures.beside(self, stream):
                other.begin_behind(stream, self._counters.numbers.accounts_for(stream), now)

    def earlier(self, stream: str, count: int, mark: int, now: int) -> int | None:
        """Find the earlier session whose stream this event continues. Return the next number of that stream, or None if
        there is none."""
        state, departures = self._state, self._departures
        earlier = None if state.id else departures.find(self, stream, count, mark, now)
        if earlier is None:
            return None
        if earlier.next is None:
            state.elsewhere[stream] = earlier.session
            return None
        if earlier.session not in state.continues:
            state.continues.append(earlier.session)
            self._own.session("continue", {"continues": earlier.session}, now)
        counters = self._counters.state
        before = departures.unnumbered(self.host, earlier.session, stream)
        counters.unnumbered_before = max(counters.unnumbered_before, before)
        if departures.continued(self.host, earlier.session, stream):
            self._own.finding(CUT._replace(kind=Kind.HEAL), earlier.session)
        return earlier.next

    def go_on(self) -> bool:
        """Return whether other sessions continue all streams of this incarnation; False without a stream."""
        ends = self._counters.numbers.ends()
        return bool(ends) and not self._departures.left(self, ends)

    def depart(self, now: int, *, cut: bool) -> None:
        """Remember the next event number of each stream, to recognise the producer when it reconnects."""
        streams = {} if self._state.id else self._counters.numbers.ends()
        if streams:
            left = self._departures.left(self, streams) if cut else []
            counters = self._counters.state
            unnumbered = counters.unnumbered + counters.unnumbered_before
            departure = Departure(self.name, self.host, now, self.epoch, streams, left, unnumbered)
            self._departures.add(departure, self.limits)
