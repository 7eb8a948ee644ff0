"""Manage the announced sessions of a source, to which clients gave ids (clients/PROTOCOL.md), and the acknowledgements
for the clients.

Without the client's goodbye (the packet that ends a session), a session ends after `resume_time` without a connection.
After the goodbye, it ends when its last connection closes; on a datagram socket, `reorder_time` after the goodbye. An
acknowledgement (`tailrace.ack`) states a number for each stream. It acknowledges all events below this number except
the missing ranges (holes) that it lists.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Container, Iterator
from itertools import islice
from operator import attrgetter

from tailrace.config.schema import LedgerConfig
from tailrace.decoding.contract import Acknowledgement
from tailrace.ingest.incarnation import Attach, Incarnation
from tailrace.ingest.limits import Budget
from tailrace.ingest.state import AnnouncedState
from tailrace.ledger.stream import SeqRange, StreamCounter
from tailrace.model.gap import OF_CLIENTS, Account
from tailrace.model.holding import Holding
from tailrace.model.record import Announcement
from tailrace.spool.payloads import OpenInfo


class Announced:
    """An announced session (one to which the client gave an id), with the acknowledgements that are due."""

    def __init__(self, state: AnnouncedState, incarnation: Incarnation) -> None:
        self.state = state
        self.incarnation = incarnation
        self.asked = True
        """Whether the next acknowledgements must cover all streams of the session."""
        self.owed: dict[str, None] = {}
        """Streams to acknowledge even if they have no new events, in the order of their acknowledgement."""
        self.cut: dict[str, None] = {}
        """Streams whose last acknowledgement left out some of the missing numbers, because it had no room for them."""

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
        return self.incarnation.holdings

    def gave_up(self, what: dict[str, int], now: int) -> None:
        self.incarnation.gave_up(what, now)

    def hear(self, said: Announcement, number: int | None) -> None:
        """Process a packet that announces this session, and states whether the client wants acknowledgements. If
        `number` is given, send acknowledgements to the connection with this number from now on."""
        state = self.state
        self.asked |= said.turn > state.turn
        state.turn = max(state.turn, said.turn)
        state.acknowledge = said.acknowledge
        state.voice = state.voice if number is None else number

    def unhear(self, number: int) -> None:
        if self.state.voice == number:
            self.state.voice = None

    def carry(self, number: int) -> None:
        self.state.carriers.append(number)
        self.state.ended = False
        self.asked = True

    @property
    def more(self) -> bool:
        counters = self.incarnation.counters
        return self.asked or bool(self.owed) or (counters is not None and bool(counters.news))

    def next_told(self, most: int) -> list[str]:
        """Return at most `most` streams for the next acknowledgements, and mark these streams as acknowledged.

        Streams with new events come first, because the client waits for these acknowledgements. Streams in `owed`
        follow. Streams in `cut`, whose last acknowledgement had no room for all missing numbers, come last, and only
        together with other streams: the client must first resend or discard the missing events which that
        acknowledgement listed.
        """
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
        """Undo `next_told` for `streams`, whose acknowledgements were not sent. `news` contains the streams with new
        events."""
        counters = self.incarnation.counters
        if counters is not None:
            counters.news = dict.fromkeys(s for s in streams if s in news) | counters.news
        self.owed = dict.fromkeys(s for s in streams if s not in news) | self.owed
        self.asked |= not streams

    @property
    def waiting(self) -> bool:
        incarnation, state = self.incarnation, self.state
        goes_on = bool(state.carriers) and not incarnation.state.goodbye_at
        late = incarnation.waiting or incarnation.has_old_account
        return late or not (state.ended or goes_on)

    def forgotten(self, now: int) -> bool:
        state = self.state
        return not state.carriers and state.left + self.limits.resume_time.ns <= now


HOLES_MAX = 64
STREAMS_IN_ONE, HOLES_IN_ONE = 24, 12
"""Maximum number of streams and of missing ranges (holes) in one acknowledgement, which then fits into 1200 bytes
even with the longest numbers. A stream with missing events that are no longer requested (`given_up`) counts as two
streams."""

STREAMS_MOST = 8 * STREAMS_IN_ONE
"""Maximum number of streams that one call of `answers` acknowledges: the socket buffer of a client is small."""

_first = attrgetter("first")


class ClientAnswer:
    """Encoded acknowledgement for a client. The sender sets `taken` to False if it could not send the
    acknowledgement."""

    __slots__ = ("data", "number", "taken")

    def __init__(self, number: int, data: bytes) -> None:
        self.number = number
        self.data = data
        self.taken = True


_Missing = tuple[str, int, int]
"""Missing events that the client should resend: stream, first number as the client sends it, and count."""


def answers(
    known: Announced, number: int, pack: Callable[[Acknowledgement], bytes], now: int
) -> Iterator[ClientAnswer]:
    """Yield the encoded acknowledgements for at most `STREAMS_MOST` streams. Stop when the consumer sets `taken` of an
    acknowledgement to False. The next call begins with the streams whose acknowledgements were not sent."""
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
    incarnation, turn = known.incarnation.state, known.state.turn
    goodbye = bool(incarnation.goodbye_at)
    said, room = Acknowledgement(incarnation.id, turn, {}, [], goodbye), STREAMS_IN_ONE
    # Collect all streams first, because entries may be processed between two acknowledgements.
    for stream, number, missing, given_up in list(_standing(known, now)):
        size = 1 + (given_up > 0)
        if size > room or len(said.holes) + len(missing) > HOLES_IN_ONE:
            yield said
            said, room = Acknowledgement(incarnation.id, turn, {}, [], goodbye), STREAMS_IN_ONE
        room -= size
        if number is None:
            said.uncounted.append(stream)
            continue
        said.streams[stream] = number
        said.holes.extend(missing)
        if given_up:
            said.given_up[stream] = given_up
    yield said


def _standing(known: Announced, now: int) -> Iterator[tuple[str, int | None, list[_Missing], int]]:
    """Yield an entry for each stream to acknowledge: the name, the stated number, the missing ranges, and the number of
    missing events that are no longer requested. All events below the stated number are acknowledged, except those in
    the missing ranges. The stated number is None if the ledger does not check the stream's numbers."""
    counters = known.incarnation.counters
    if counters is None:
        return
    followed = counters.state.streams
    names = known.next_told(STREAMS_MOST)
    oldest_asked = now - known.limits.resume_time.ns
    counted = [name for name in names if name in followed and followed[name].counted]
    asked = {name: _asked(followed[name], oldest_asked) for name in counted}
    many, known_holes = HOLES_IN_ONE, asked.items()
    oldest = sorted((h.since, name, h.first) for name, holes in known_holes for h in holes[:many])
    stops = {name: holes[many].first for name, holes in known_holes if len(holes) > many}
    for _, name, first in oldest[HOLES_MAX:]:
        stops[name] = min(first, stops.get(name, first))
    known.cut |= dict.fromkeys(stops)
    for name in names:
        holes = asked.get(name)
        if holes is None:
            yield name, None, [], 0
            continue
        stream, wire = followed[name], counters.mask
        stop = stops.get(name, stream.next)
        missing = [(name, h.first & wire, h.last - h.first + 1) for h in holes if h.first < stop]
        # The client no longer has to resend the events of gaps that the ledger forgot because of a limit, and of gaps
        # that were noticed at or before the time `oldest_asked`.
        old = [g for g in stream.gaps if g.reason not in OF_CLIENTS and g.since <= oldest_asked]
        given_up = stream.given_up + sum(gap.last - gap.first + 1 for gap in old)
        yield name, stop & wire, missing, given_up


def _asked(stream: StreamCounter, oldest: int) -> list[SeqRange]:
    """Return the ranges of missing numbers that the client should resend: holes, and gaps noticed after the time
    `oldest`. Leave out numbers that the client discarded."""
    holes = [hole for hole in stream.holes if hole.reason not in OF_CLIENTS]
    holes += [gap for gap in stream.gaps if gap.reason not in OF_CLIENTS and gap.since > oldest]
    return sorted(holes, key=_first)


class Announcements:
    """Manages the announced sessions of one source: those to which the client gave an id."""

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
        """Ids of the sessions for which acknowledgements may have to be sent."""
        self.changed: set[str] = set()
        """Ids of the sessions whose memory may have changed since the last call of `weigh`."""
        for known in self._known.values():
            budget.look(known)

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
        return ((id_, self._known[id_].incarnation) for id_ in sorted(self._known))

    def awaited(self) -> Iterator[Incarnation]:
        """Yield the incarnations (program runs) whose late events may still arrive."""
        incarnations = (self._known[id_].incarnation for id_ in sorted(self._waiting))
        return (incarnation for incarnation in incarnations if incarnation.waiting)

    @property
    def account(self) -> Account:
        total = Account()
        for known in self._known.values():
            total.add(known.incarnation.account)
        return total

    def find(self, id_: str, now: int) -> Announced | None:
        """Return the session with an id. If the session has been without a connection for `resume_time`, drop it.
        Return None if there is no session with this id, or if it was dropped."""
        known = self._known.get(id_)
        if known and known.forgotten(now):
            self.forget(id_, now)
            return None
        return known

    def add(self, id_: str, incarnation: Incarnation, info: OpenInfo, number: int) -> Announced:
        """Create and return a session with an id. Its incarnation (program run) began on the connection `number`."""
        incarnation.announce(id_)
        state = self._states[id_] = AnnouncedState(incarnation.state, info, [number], bearer=number)
        self._known[id_] = known = Announced(state, incarnation)
        self.heard(id_)
        return known

    def move(self, id_: str, incarnation: Incarnation) -> None:
        """Move a session from its incarnation (program run) to another one, because the events of both incarnations
        come from the same program run."""
        known = self._known[id_]
        known.incarnation.state.id = ""
        incarnation.announce(id_)
        known.incarnation, known.state.incarnation = incarnation, incarnation.state
        known.asked, known.owed, known.cut = True, {}, {}
        self.heard(id_)

    def carry(self, id_: str, number: int) -> None:
        self._known[id_].carry(number)
        self._away.pop(id_, None)
        self.heard(id_)

    def heard(self, id_: str) -> None:
        """Record that data of a session arrived, or that its connections changed."""
        self.news.add(id_)
        self.changed.add(id_)
        self._watch(id_)

    def leave(self, id_: str, number: int, now: int) -> None:
        """Remove a closed connection. End the session if the client's goodbye (the packet that ends the session) has
        arrived and no connection is left."""
        known = self._known[id_]
        state = known.state
        state.carriers.remove(number)
        known.unhear(number)
        self.heard(id_)
        if state.carriers:
            return
        state.left = now
        if known.incarnation.counters:
            # No mark (fingerprint) is needed any more: on a new connection, the client sends an event with a known
            # number only to resend it.
            known.incarnation.counters.marks.forget_all()
        self._states[id_] = self._states.pop(id_)
        self._away[id_] = None
        self._end_if_over(known, now)
        self._watch(id_)
        while len(self._away) > state.info.ledger.sessions_max:
            self.forget_first(now, "too many sessions")

    def expire(self, now: int) -> None:
        """Report missing events that can no longer arrive late. End each session whose client has sent a goodbye (the
        packet that ends the session). Drop each session that has been without a connection for `resume_time`."""
        self.changed |= self._waiting
        for id_ in sorted(self._waiting):
            known = self._known[id_]
            known.incarnation.expire(now)
            self._end_if_over(known, now)
            known.incarnation.amend(now)
            self._watch(id_)
        for id_ in [id_ for id_ in self._away if self._known[id_].forgotten(now)]:
            self.forget(id_, now)

    def started(self, before: int, now: int) -> None:
        """Wait longer for sessions without a connection, and for late events of all sessions, because no daemon ran
        since `before`."""
        time = now - before
        for id_ in self._away:
            self._known[id_].state.left += time
        for known in self._known.values():
            if known.incarnation.counters is not None:
                known.incarnation.counters.windows.stood_still(time)

    def settle(self, now: int) -> None:
        self.changed |= self._waiting
        for id_ in sorted(self._waiting):
            self._known[id_].incarnation.settle(now)
            self._known[id_].incarnation.amend(now)
            self._watch(id_)

    def weigh(self, now: int) -> None:
        """Enforce the memory limits on the sessions that have changed since the last call."""
        changed, self.changed = self.changed, set()
        for id_ in sorted(changed & self._known.keys()):
            self._budget.weigh(self._known[id_], now)

    def forget_first(self, now: int, why: str) -> bool:
        """Drop the session that has been without a connection for the longest time. Return False if there is none."""
        if not self._away:
            return False
        self.forget(next(iter(self._away)), now, why)
        return True

    def forget_all(self, why: str, now: int) -> None:
        for id_ in list(self._away):
            self.forget(id_, now, why)

    def forget_earlier(self, session: str, now: int) -> None:
        """Drop the ended sessions that have an id from their client, if the client wrote to the file that the
        collector's session `session` reads."""
        for id_ in list(self._away):
            state = self._known[id_].state
            if state.info.session == session and state.incarnation.ended:
                self.forget(id_, now, state.incarnation.ended)

    def forget(
        self, id_: str, now: int, why: str = "not resumed", about: dict[str, object] | None = None
    ) -> None:
        """Remove a session. If the session has not ended yet, write the row of its end with the reason `why`."""
        known = self._known.pop(id_)
        self._budget.drop(known)
        del self._states[id_]
        self._away.pop(id_, None)
        self._waiting.discard(id_)
        self.news.discard(id_)
        if known.state.ended:
            known.incarnation.settle(now)
            known.incarnation.amend(now)
            known.incarnation.release()
        else:
            known.incarnation.finish(why, about or {}, now)

    def tell(self, can_reply: Callable[[int], bool]) -> Iterator[Announced]:
        """Yield the sessions whose clients want acknowledgements, have not received all of them, and can be reached
        now. `can_reply` returns whether the connection with a given number can accept a packet. A later call yields
        a session again if its acknowledgements did not cover all its streams."""
        for id_ in sorted(self.news):
            known = self._known.get(id_)
            if known is None or not known.state.acknowledge or known.state.voice is None:
                self.news.discard(id_)
            elif can_reply(known.state.voice):
                self.news.discard(id_)
                yield known
                if known.more:
                    self.news.add(id_)

    def _end_if_over(self, known: Announced, now: int) -> None:
        """End a session if the client's goodbye (the packet that ends the session) has arrived and no late event can
        follow."""
        state, said = known.state, known.incarnation.state.goodbye_at
        if not said or state.ended:
            return
        if state.info.transport == "udp":
            over = said + known.limits.reorder_time.ns <= now
        else:
            over = not state.carriers
        if over:
            state.ended = True
            known.incarnation.end("goodbye", {}, now)

    def _watch(self, id_: str) -> None:
        if self._known[id_].waiting:
            self._waiting.add(id_)
        else:
            self._waiting.discard(id_)
