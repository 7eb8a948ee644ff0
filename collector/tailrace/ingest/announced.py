"""The announced sessions of a source (clients/PROTOCOL.md): how long each is known, and the answers to its client.

An announced session is one incarnation, over any number of connections. Without a connection it waits for `resume_time`;
then, if its client sent no goodbye, it is over. With a goodbye it is over when its last connection ends or, where datagrams
may be late, after `reorder_time`. Its numbers stay known for `resume_time`, since a client that has not
received the answer to its end sends the end once more.

A session is forgotten early when more than `sessions_max` are without a connection, or a stream needs
room. The session that left first is forgotten first. A client that knows a session's id can continue it.

Any answer (`tailrace.ack`) may be lost, so each can be understood by itself: a stream's number stops at the first hole
that is worth asking for and is not named in the same answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Container, Iterator
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from tailrace.config.schema import LedgerConfig
from tailrace.decoding.contract import Acknowledgement
from tailrace.ingest.incarnation import Attach, Incarnation
from tailrace.ingest.limits import Budget
from tailrace.ingest.state import AnnouncedState
from tailrace.ledger.findings import Account
from tailrace.ledger.stream import SeqRange, StreamCounter
from tailrace.model.gap import OF_CLIENTS
from tailrace.model.holding import Holding
from tailrace.model.record import Announcement
from tailrace.spool.payloads import OpenInfo


class Announced:
    """One announced session."""

    def __init__(self, state: AnnouncedState, incarnation: Incarnation) -> None:
        self.state = state
        self.incarnation = incarnation
        self.asked = True
        """Whether the next answer names all streams."""
        self.owed: dict[str, None] = {}
        """Streams that the client asked about and was not told of since, in the order of its turns."""
        self.cut: dict[str, None] = {}
        """Streams whose number stops at a hole that the last answer about them had no room to name."""

    @property
    def name(self) -> str:
        return f"{self.source}/{self.incarnation.state.id}"

    @property
    def source(self) -> str:
        return self.state.info.source

    @property
    def limits(self) -> LedgerConfig:
        return self.state.info.ledger

    @property
    def holdings(self) -> list[Holding]:
        """Return the state that the client makes the session hold."""
        return self.incarnation.holdings

    def gave_up(self, what: dict[str, int], now: int) -> None:
        """Write a row (see `ingest.limits.StateHolder`)."""
        self.incarnation.gave_up(what, now)

    def hear(self, said: Announcement, number: int | None) -> None:
        """Take an announcement. Send answers over this connection from now on, if a number is given."""
        state = self.state
        self.asked |= said.turn > state.turn
        state.turn = max(state.turn, said.turn)
        state.acknowledge = said.acknowledge
        state.voice = state.voice if number is None else number

    def unhear(self, number: int) -> None:
        """Send no more answers over this connection."""
        if self.state.voice == number:
            self.state.voice = None

    def carry(self, number: int) -> None:
        """Continue over one more connection."""
        self.state.carriers.append(number)
        self.state.ended = False
        self.asked = True

    @property
    def more(self) -> bool:
        """Return whether there is something to tell the client."""
        counters = self.incarnation.counters
        return self.asked or bool(self.owed) or (counters is not None and bool(counters.news))

    def next_told(self, most: int) -> list[str]:
        """Return at most so many streams that the client is told of next, and take them for told. Those of which
        something came are first: the client waits for them, while a question is about all streams. Streams in `cut`
        follow, as the client's word on other holes makes room for theirs."""
        counters = self.incarnation.counters
        if counters is None:
            return []
        if self.asked:
            self.owed |= dict.fromkeys((*counters.state.streams, *counters.state.unfollowed))
            self.asked = False
        due = counters.news | self.owed
        streams = list(islice(due | self.cut if due else due, most))
        for stream in streams:
            counters.news.pop(stream, None)
            self.owed.pop(stream, None)
            self.cut.pop(stream, None)
        return streams

    def untell(self, streams: Collection[str], news: Container[str]) -> None:
        """Take note that answers with these streams were not sent, some of which have `news`."""
        counters = self.incarnation.counters
        if counters is not None:
            counters.news = dict.fromkeys(s for s in streams if s in news) | counters.news
        self.owed = dict.fromkeys(s for s in streams if s not in news) | self.owed
        self.asked |= not streams

    @property
    def waiting(self) -> bool:
        """Return whether time alone may change the session."""
        return self.incarnation.waiting or not (self.state.ended or self._goes_on)

    @property
    def _goes_on(self) -> bool:
        return bool(self.state.carriers) and not self.incarnation.state.goodbye_at

    def over(self, now: int) -> bool:
        """Return whether the goodbye has come, and all events that were under way."""
        state, said = self.state, self.incarnation.state.goodbye_at
        if not said or state.ended:
            return False
        if state.info.transport == "udp":
            return said + state.info.ledger.reorder_time.ns <= now
        return not state.carriers

    def forgotten(self, now: int) -> bool:
        """Return whether no connection has carried the session for too long."""
        state = self.state
        return not state.carriers and state.left + state.info.ledger.resume_time.ns <= now


HOLES_MAX = 64
STREAMS_IN_ONE, HOLES_IN_ONE = 24, 12
"""Streams and holes in one answer: so many with the longest numbers fit into 1200 bytes. A stream with
events given up counts twice."""

STREAMS_MOST = 8 * STREAMS_IN_ONE
"""Streams told at a time: a datagram client's socket has room for so many."""

_first = attrgetter("first")


class ClientAnswer:
    """An answer for a session's peer. The sender sets `taken` to False if the answer could not be
    sent."""

    __slots__ = ("data", "number", "taken")

    def __init__(self, number: int, data: bytes) -> None:
        self.number = number
        self.data = data
        self.taken = True


_Missing = tuple[str, int, int]
"""Stream, first number on the wire, number of events."""


class _Standing(NamedTuple):
    """How far a stream is durable, except some holes and events given up. `number` is None where nobody
    knows what is missing."""

    stream: str
    number: int | None
    missing: list[_Missing]
    given_up: int


def answers(
    known: Announced, number: int, pack: Callable[[Acknowledgement], bytes], now: int
) -> Iterator[ClientAnswer]:
    """Yield answers about at most `STREAMS_MOST` streams, as they are at the first answer. They count as
    told, except what was not taken and what would have followed that: the next answers begin there."""
    counters = known.incarnation.counters
    news = dict(counters.news) if counters else {}
    taken, untold = True, list[str]()
    for said in _acknowledgements(known, now):
        if taken:
            answer = ClientAnswer(number, pack(said))
            yield answer
            taken = answer.taken
        if not taken:
            untold += [*said.streams, *said.uncounted]
    if not taken:
        known.untell(untold, news)


def _acknowledgements(known: Announced, now: int) -> Iterator[Acknowledgement]:
    """Yield what each answer says."""
    incarnation, turn = known.incarnation.state, known.state.turn
    goodbye = bool(incarnation.goodbye_at)
    said, room = Acknowledgement(incarnation.id, turn, {}, [], goodbye), STREAMS_IN_ONE
    for each in _standing(known, now):
        size = 1 + (each.given_up > 0)
        if size > room or len(said.holes) + len(each.missing) > HOLES_IN_ONE:
            yield said
            said, room = Acknowledgement(incarnation.id, turn, {}, [], goodbye), STREAMS_IN_ONE
        room -= size
        if each.number is None:
            said.uncounted.append(each.stream)
            continue
        said.streams[each.stream] = each.number
        said.holes.extend(each.missing)
        if each.given_up:
            said.given_up[each.stream] = each.given_up
    yield said


def _standing(known: Announced, now: int) -> list[_Standing]:
    """Return how far each stream is durable of which the client is told next."""
    counters = known.incarnation.counters
    if counters is None:
        return []
    followed = counters.state.streams
    names = known.next_told(STREAMS_MOST)
    oldest_asked = now - known.state.info.ledger.resume_time.ns
    counted = [name for name in names if name in followed and followed[name].counted]
    asked = {name: _asked(followed[name], oldest_asked) for name in counted}
    oldest = sorted(
        (hole.since, name, hole.first) for name in asked for hole in asked[name][:HOLES_IN_ONE]
    )
    stops = {
        name: holes[HOLES_IN_ONE].first
        for name, holes in asked.items()
        if len(holes) > HOLES_IN_ONE
    }
    for _, name, first in oldest[HOLES_MAX:]:
        stops[name] = min(first, stops.get(name, first))
    known.cut |= dict.fromkeys(stops)
    standing = []
    for name in names:
        holes = asked.get(name)
        if holes is None:
            standing.append(_Standing(name, None, [], 0))
            continue
        stop = stops.get(name, followed[name].next)
        wire = counters.mask
        missing = [(name, h.first & wire, h.last - h.first + 1) for h in holes if h.first < stop]
        given_up = _given_up(followed[name], oldest_asked)
        standing.append(_Standing(name, stop & wire, missing, given_up))
    return standing


def _given_up(stream: StreamCounter, oldest: int) -> int:
    """Return how many missing events are no longer asked for: they are forgotten, or were noticed up to
    `oldest`."""
    old = (gap for gap in stream.gaps if gap.reason not in OF_CLIENTS and gap.since <= oldest)
    return stream.given_up + sum(gap.last - gap.first + 1 for gap in old)


def _asked(stream: StreamCounter, oldest: int) -> list[SeqRange]:
    """Return the holes that are worth asking for, in order of number: the client has not discarded their
    events, and they were noticed after `oldest`. Later their events are given up."""
    holes = [hole for hole in stream.holes if hole.reason not in OF_CLIENTS]
    holes += [gap for gap in stream.gaps if gap.reason not in OF_CLIENTS and gap.since > oldest]
    return sorted(holes, key=_first)


class Announcements:
    """The announced sessions of one source."""

    def __init__(
        self,
        states: dict[str, AnnouncedState],
        attach: Callable[[OpenInfo], Attach],
        budget: Budget,
    ) -> None:
        self._states = states
        self._budget = budget
        self._known = {
            id_: Announced(s, attach(s.info)(s.incarnation)) for id_, s in states.items()
        }
        self._away = OrderedDict.fromkeys(id_ for id_, s in states.items() if not s.carriers)
        self._waiting = {id_ for id_, known in self._known.items() if known.waiting}
        self.news = set(self._known)
        """Ids of the sessions with news for their clients."""
        self.changed: set[str] = set()
        """Ids of the sessions that may hold more or less state than when `weigh` last looked."""
        for known in self._known.values():
            budget.add(known)

    def __getitem__(self, id_: str) -> Announced:
        return self._known[id_]

    def __contains__(self, id_: str) -> bool:
        return id_ in self._known

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def open_windows(self) -> int:
        return sum(self._known[id_].incarnation.waiting for id_ in self._waiting)

    def incarnations(self) -> Iterator[tuple[str, Incarnation]]:
        """Yield the ids and incarnations of all sessions."""
        return ((id_, self._known[id_].incarnation) for id_ in sorted(self._known))

    def awaited(self) -> Iterator[Incarnation]:
        """Yield the incarnations that wait for late events."""
        incarnations = (self._known[id_].incarnation for id_ in sorted(self._waiting))
        return (incarnation for incarnation in incarnations if incarnation.waiting)

    @property
    def account(self) -> Account:
        total = Account()
        for known in self._known.values():
            total.add(known.incarnation.account)
        return total

    def find(self, id_: str, now: int) -> Announced | None:
        """Return a known session, None if there is none. Forget a session that was away for too
        long."""
        known = self._known.get(id_)
        if known and known.forgotten(now):
            self.forget(id_, now)
            return None
        return known

    def add(self, id_: str, incarnation: Incarnation, info: OpenInfo, number: int) -> Announced:
        """Make a connection's incarnation that of a new session, and return the session."""
        incarnation.announce(id_)
        state = self._states[id_] = AnnouncedState(incarnation.state, info, [number], bearer=number)
        self._known[id_] = known = Announced(state, incarnation)
        self.heard(id_)
        return known

    def move(self, id_: str, incarnation: Incarnation) -> None:
        """Let a session continue an earlier incarnation, once the ingest has found that both are of one run."""
        known = self._known[id_]
        known.incarnation.state.id = ""
        incarnation.announce(id_)
        known.incarnation, known.state.incarnation = incarnation, incarnation.state
        known.asked, known.owed, known.cut = True, {}, {}
        self.heard(id_)

    def carry(self, id_: str, number: int) -> None:
        """Continue a session over one more connection."""
        self._known[id_].carry(number)
        self._away.pop(id_, None)
        self.heard(id_)

    def heard(self, id_: str) -> None:
        """Take note that something of a session came."""
        self.news.add(id_)
        self.changed.add(id_)
        self._watch(id_)

    def leave(self, id_: str, number: int, now: int) -> None:
        """Take note that a connection no longer carries a session."""
        known = self._known[id_]
        state = known.state
        state.carriers.remove(number)
        known.unhear(number)
        self.heard(id_)
        if state.carriers:
            return
        state.left = now
        known.incarnation.forget_marks()
        self._states[id_] = self._states.pop(id_)
        self._away[id_] = None
        if known.over(now):
            self._end(known, now)
        self._watch(id_)
        while len(self._away) > state.info.ledger.sessions_max:
            self.forget_first(now, "too many sessions")

    def expire(self, now: int) -> None:
        """Close the windows, and forget the sessions, whose time has passed."""
        self.changed |= self._waiting
        for id_ in sorted(self._waiting):
            known = self._known[id_]
            known.incarnation.expire(now)
            if known.over(now):
                self._end(known, now)
            self._watch(id_)
        for id_ in [id_ for id_ in self._away if self._known[id_].forgotten(now)]:
            self.forget(id_, now)

    def started(self, before: int, now: int) -> None:
        """Take note that no daemon ran since `before`. Clients could neither reconnect nor resend then, so
        this time does not count."""
        for id_ in self._away:
            self._known[id_].state.left = now
        for known in self._known.values():
            if known.incarnation.counters is not None:
                known.incarnation.counters.windows.stood_still(now - before)

    def settle(self, now: int) -> None:
        """Close all windows: the daemon stops."""
        self.changed |= self._waiting
        for id_ in sorted(self._waiting):
            self._known[id_].incarnation.settle(now)
            self._watch(id_)

    def weigh(self, now: int) -> None:
        """Keep the limits on the state of sessions that have changed."""
        changed, self.changed = self.changed, set()
        for id_ in sorted(changed & self._known.keys()):
            self._budget.weigh(self._known[id_], now)

    def forget_first(self, now: int, why: str) -> bool:
        """Forget the session that left first. Return whether there was one."""
        if not self._away:
            return False
        self.forget(next(iter(self._away)), now, why)
        return True

    def forget_all(self, why: str, now: int) -> None:
        """Forget all sessions without a connection."""
        for id_ in list(self._away):
            self.forget(id_, now, why)

    def forget_earlier(self, session: str, now: int) -> None:
        """Forget the sessions that began in a file, which the session of this name reads, and that another client's session
        followed there."""
        for id_ in list(self._away):
            state = self._known[id_].state
            if state.info.session == session and state.incarnation.ended:
                self.forget(id_, now, state.incarnation.ended)

    def forget(
        self,
        id_: str,
        now: int,
        why: str = "not resumed",
        about: dict[str, object] | None = None,
    ) -> None:
        """Forget a session, and end it unless it has ended."""
        known = self._known.pop(id_)
        self._budget.drop(known)
        del self._states[id_]
        self._away.pop(id_, None)
        self._waiting.discard(id_)
        self.news.discard(id_)
        if known.state.ended:
            known.incarnation.settle(now)
            known.incarnation.release()
        else:
            known.incarnation.finish(why, about or {}, now)

    def tell(self, can_reply: Callable[[int], bool]) -> Iterator[Announced]:
        """Yield the sessions that asked for answers, have news, and whose peer an answer can reach. Keep the news of
        sessions that do not hear, or have more than one answer's worth, for the next call."""
        for id_ in sorted(self.news):
            known = self._known.get(id_)
            if known is None or not known.state.acknowledge or known.state.voice is None:
                self.news.discard(id_)
            elif can_reply(known.state.voice):
                self.news.discard(id_)
                yield known
                if known.more:
                    self.news.add(id_)

    def _end(self, known: Announced, now: int) -> None:
        known.state.ended = True
        known.incarnation.end("goodbye", {}, now)

    def _watch(self, id_: str) -> None:
        if self._known[id_].waiting:
            self._waiting.add(id_)
        else:
            self._waiting.discard(id_)
