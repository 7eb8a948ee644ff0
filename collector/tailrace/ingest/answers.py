"""What a client is told of its announced session (clients/PROTOCOL.md, `tailrace.ack`).

Each answer can be understood by itself, since any of them may be lost: a stream's number goes no further
than to the first hole that is worth asking for and is not named beside it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import NamedTuple

from tailrace.decoding.contract import Acknowledgement
from tailrace.ingest.announced import Announced
from tailrace.ledger.stream import SeqRange, StreamCounter
from tailrace.model.gap import Reason

HOLES_MAX = 64
STREAMS_IN_ONE, HOLES_IN_ONE = 24, 12
"""Of the longest numbers, so many fit into 1200 bytes; a stream with events given up counts twice."""

STREAMS_MOST = 8 * STREAMS_IN_ONE
"""Of very many streams, so many at a time: what a datagram client's socket has room for."""

_first = attrgetter("first")


class Answer:
    """For a session's peer. Whoever hands it on says whether it could be."""

    __slots__ = ("data", "number", "taken")

    def __init__(self, number: int, data: bytes) -> None:
        self.number = number
        self.data = data
        self.taken = True


_Missing = tuple[str, int, int]
"""Stream, first number on the wire, how many."""


class _Standing(NamedTuple):
    """How far a stream is durable but for some holes and for events given up. `number` is None where
    nobody knows what of the stream is missing."""

    stream: str
    number: int | None
    missing: list[_Missing]
    given_up: int


def answers(
    known: Announced, number: int, pack: Callable[[Acknowledgement], bytes], now: int
) -> Iterator[Answer]:
    """What is new and was not told, of at most `STREAMS_MOST` streams, as it is when the first is
    asked for. With this it is told, but for what is not taken, and what comes after that."""
    taken = True
    for said in _acknowledgements(known, now):
        if taken:
            answer = Answer(number, pack(said))
            yield answer
            taken = answer.taken
        if not taken:
            known.untell([*said.streams, *said.uncounted])


def _acknowledgements(known: Announced, now: int) -> Iterator[Acknowledgement]:
    run, turn = known.run.state, known.state.turn
    goodbye = bool(run.goodbye_at)
    said, room = Acknowledgement(run.id, turn, {}, [], goodbye), STREAMS_IN_ONE
    for each in _standing(known, now):
        size = 1 + (each.given_up > 0)
        if size > room or len(said.holes) + len(each.missing) > HOLES_IN_ONE:
            yield said
            said, room = Acknowledgement(run.id, turn, {}, [], goodbye), STREAMS_IN_ONE
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
    """Return what there is to say of each stream with news."""
    counters = known.run.counters
    if counters is None:
        return []
    followed = counters.state.streams
    if known.asked:
        counters.news |= followed.keys() | counters.state.unfollowed.keys()
        known.asked = False
    new = sorted(counters.news)
    after = bisect_right(new, known.told)
    names = (new[after:] + new[:after])[:STREAMS_MOST]
    counters.news = set(new).difference(names)
    known.told = names[-1] if names else ""
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
    standing = [_Standing(name, None, [], 0) for name in names if name not in asked]
    for name, holes in asked.items():
        stop = stops.get(name, followed[name].next)
        wire = counters.mask
        missing = [(name, h.first & wire, h.last - h.first + 1) for h in holes if h.first < stop]
        given_up = _given_up(followed[name], oldest_asked)
        standing.append(_Standing(name, stop & wire, missing, given_up))
    return standing


def _given_up(stream: StreamCounter, oldest: int) -> int:
    """Return how many events are missing and not asked for any more, since they are not remembered or
    were noticed up to `oldest`."""
    old = (gap for gap in stream.gaps if gap.reason != Reason.SENDER and gap.since <= oldest)
    return stream.given_up + sum(gap.last - gap.first + 1 for gap in old)


def _asked(stream: StreamCounter, oldest: int) -> list[SeqRange]:
    """Return the holes that are worth asking for, in order of number: the client has not thrown them
    away, and they were noticed after `oldest`. Holes are named as long as a session is waited for; then
    their events are given up."""
    holes = [hole for hole in stream.holes if hole.reason != Reason.SENDER]
    holes += [gap for gap in stream.gaps if gap.reason != Reason.SENDER and gap.since > oldest]
    return sorted(holes, key=_first)
