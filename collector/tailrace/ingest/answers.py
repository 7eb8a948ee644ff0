"""What a client is told of its announced session (clients/PROTOCOL.md, `tailrace.ack`).

Each answer can be understood by itself, since any of them may be lost: a stream's number goes no further
than to the first hole that is worth asking for and is not named beside it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter

from tailrace.decoding.decoder import Acknowledgement
from tailrace.ingest.announced import Announced
from tailrace.ledger.stream import Hole, StreamCounter
from tailrace.model.gap import Reason

HOLES_MAX = 64
STREAMS_IN_ONE, HOLES_IN_ONE = 24, 12
"""Of the longest numbers, so many fit into 1200 bytes."""

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
            known.untell(said.streams)


def _acknowledgements(known: Announced, now: int) -> Iterator[Acknowledgement]:
    run, turn = known.run.state, known.state.turn
    goodbye = bool(run.goodbye_at)
    streams: dict[str, int] = {}
    holes: list[_Missing] = []
    for name, number, missing in _standing(known, now):
        if len(streams) == STREAMS_IN_ONE or len(holes) + len(missing) > HOLES_IN_ONE:
            yield Acknowledgement(run.id, turn, streams, holes, goodbye)
            streams, holes = {}, []
        streams[name] = number
        holes += missing
    yield Acknowledgement(run.id, turn, streams, holes, goodbye)


def _standing(known: Announced, now: int) -> list[tuple[str, int, list[_Missing]]]:
    """Of each stream with news, how far it is durable but for some holes, and these."""
    counters = known.run.counters
    if counters is None:
        return []
    followed = counters.state.streams
    if known.asked:
        counters.news |= followed.keys()
        known.asked = False
    new = sorted(counters.news & followed.keys())
    after = bisect_right(new, known.told)
    names = (new[after:] + new[:after])[:STREAMS_MOST]
    counters.news = set(new).difference(names)
    known.told = names[-1] if names else ""
    oldest_asked = now - known.state.info.ledger.resume_time.ns
    asked = {name: _asked(followed[name], oldest_asked) for name in names if followed[name].counted}
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
    standing = []
    for name, holes in asked.items():
        stop = stops.get(name, followed[name].next)
        wire = counters.mask
        missing = [(name, h.first & wire, h.last - h.first + 1) for h in holes if h.first < stop]
        standing.append((name, stop & wire, missing))
    return standing


def _asked(stream: StreamCounter, oldest: int) -> list[Hole]:
    """Return the holes that are worth asking for, in order of number: the client has not thrown them
    away, and they were noticed after `oldest`. For a client that never heard of a hole, one that is
    named no more is an event delivered: so holes are named as long as a session is waited for."""
    holes = [hole for hole in stream.holes if hole.reason != Reason.SENDER]
    holes += [gap for gap in stream.gaps if gap.reason != Reason.SENDER and gap.since > oldest]
    return sorted(holes, key=_first)
