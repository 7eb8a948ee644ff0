"""Answers to the client of an announced session (clients/PROTOCOL.md, `tailrace.ack`).

Any answer may be lost, so each can be understood by itself: a stream's number stops at the first hole
that is worth asking for and is not named in the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import NamedTuple

from tailrace.decoding.contract import Acknowledgement
from tailrace.ingest.announced import Announced
from tailrace.ledger.stream import SeqRange, StreamCounter
from tailrace.model.gap import OF_CLIENTS

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
