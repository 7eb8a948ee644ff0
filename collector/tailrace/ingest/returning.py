"""Recognize producers that reconnect without an announcement.

Such a producer gets a new session on each connection. A stream of the new session continues the stream of the same
name in an earlier session from the same host, if the number and the time of its first event fit. The number must be
the next one or one of the `reorder_events` after it; with equal epochs, any later number fits, with different ones
none. The nearest number is chosen. If none fits, the gap row names the earlier session that may contain the missing
numbers. The earlier session may still be open if it has the same epoch: a broken connection may look alive.
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
    """Facts about a session's producer that are known from the opening of the session."""

    host: str
    bits: int | None
    """Width (bits) of the producer's event numbers; None if the producer does not number events."""
    datagrams: bool
    """Whether events arrive in datagrams, and may therefore overtake each other."""
    in_file: bool
    """Whether events are read from a file, which may be a piece of a longer one."""
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
        self._present: dict[tuple[str, int], list[Siblings]] = {}
        """Open sessions by host and epoch, each list sorted by name."""
        for departure in state:
            self._index(departure)

    def come(self, session: Siblings, host: str, epoch: int) -> None:
        # Keep the list sorted: a restart of the daemon may add the sessions in another order.
        insort(self._present.setdefault((host, epoch), []), session, key=_name)

    def go(self, session: Siblings, host: str, epoch: int) -> None:
        present = self._present.get((host, epoch), [])
        if session in present:
            present.remove(session)
        if not present:
            self._present.pop((host, epoch), None)

    def beside(self, session: Siblings, host: str, epoch: int, stream: str) -> list[Siblings]:
        """Return the newest sessions (at most `_LOOKED_AT`, by name) that are open beside `session` and have
        `stream`."""
        newest = reversed(self._present.get((host, epoch), ()))
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

    def left(
        self, streams: Mapping[str, int], host: str, epoch: int | None, asks: str
    ) -> list[str]:
        """Return the streams of the session `asks` that no other session with the same epoch continues. `streams`
        has the next number of each stream."""

        def goes_on(name: str, following: int) -> bool:
            ends = self._ends(name, host, epoch, 0) if epoch is not None else ()
            return any(
                known and end >= following and session != asks for session, (end, _), known in ends
            )

        return [name for name, following in streams.items() if not goes_on(name, following)]

    def unnumbered(self, earlier: str, stream: str, host: str) -> int:
        """Return how many discarded events without a number are reported for `earlier` and the sessions that it
        continues."""
        known = reversed(self._of.get((host, stream), ()))
        return next((each.unnumbered for each in known if each.session == earlier), 0)

    def continued(self, earlier: str, stream: str, host: str) -> bool:
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
        """Return the earlier session from `host` whose stream an event continues; if there is none, the newest
        session with this stream, or None. `count` is the event's number modulo 2^`bits`, and `mark` its fingerprint.
        `asks` is the name of the session that received the event."""
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
        """Return whether only the session named `asks` can contain the stream."""
        if (host, stream) in self._of:
            return False
        present = () if epoch is None else self._present.get((host, epoch), ())
        return not present or (len(present) == 1 and present[0].name == asks)

    def _ends(
        self, stream: str, host: str, epoch: int | None, oldest: int
    ) -> Iterator[tuple[str, tuple[int, int], bool]]:
        """Yield the sessions with the stream, newest first: name, next number and last fingerprint of the stream,
        and whether the epoch is known to be `epoch`. Leave out sessions with another epoch, and those that ended
        before the time `oldest`."""
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
        self._sender, self._host = sender, sender.host
        self._own = own
        self.come()

    @property
    def name(self) -> str:
        return self._state.name

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

    # Methods that call other sessions of the same producer

    def come(self) -> None:
        """Register the producer run as open, unless it has no epoch, receives datagrams, or is announced."""
        state = self._state
        if not self._sender.datagrams and state.epoch is not None and not state.id:
            self._departures.come(self, self._host, state.epoch)

    def go(self) -> None:
        if self._state.epoch is not None:
            self._departures.go(self, self._host, self._state.epoch)

    def tell(self, streams: Iterable[str], now: int) -> None:
        """Inform the producer's other open sessions about the numbers of `streams` that this session accounts for, so
        that they do not report these numbers as missing."""
        epoch = self._state.epoch
        if epoch is None:
            return
        for stream in sorted({*streams}):
            for other in self._departures.beside(self, self._host, epoch, stream):
                other.begin_behind(stream, self._counters.numbers.accounts_for(stream), now)

    def earlier(self, stream: str, count: int, mark: int, now: int) -> int | None:
        """Return the next number of the earlier session's stream that this event continues, or None."""
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
            self._own.finding(CUT._replace(kind=Kind.HEAL), earlier.session)
        return earlier.next

    def go_on(self) -> bool:
        """Return whether other sessions continue all streams of this incarnation; False without a stream."""
        return bool(self._counters.numbers.ends()) and not self._left()

    def _left(self) -> list[str]:
        ends = {name: following for name, (following, _) in self._counters.numbers.ends().items()}
        return self._departures.left(ends, self._host, self._state.epoch, self.name)

    def depart(self, now: int, *, cut: bool) -> None:
        """Remember the next event number of each stream, to recognise the producer when it reconnects."""
        streams = {} if self._state.id else self._counters.numbers.ends()
        if streams:
            left = self._left() if cut else []
            counters = self._counters.state
            departure = Departure(
                self.name, self._host, now, self._state.epoch, streams, left,
                counters.unnumbered + counters.unnumbered_before,
            )  # fmt: skip
            self._departures.add(departure, self._sender.limits)
