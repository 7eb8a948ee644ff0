"""Events that were sent and are kept no more, although no answer has settled them yet. Pure.

An event that an answer calls durable has arrived. An event is lost if an answer shows it in a hole
or beyond all that the collector has, and the question (`turn`) was asked after the event was sent:
the client cannot send the event again. The collector cannot name a stream of which nothing came, so
the client says with a question how far the streams go (`ends`).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from tailrace_client._chunk import Chunk, runs
from tailrace_client._session import Answer, Range

_PASTS_MAX = 64
"""Entries of a stream. Beyond that, an entry is joined with the one before, whatever their turns."""

_PIECES_MAX = 1024
"""Pieces of a stream into which answers may cut its entries. The rest is joined."""


class _Past(NamedTuple):
    """A range of a stream's events that are kept nowhere."""

    begin: int
    """The position of the first event in the queue (`_queue`)."""
    turn: int
    """The turn of the last announcement that may have overtaken the events."""
    first: int
    next: int


class Forgotten:
    """By stream, events that may have arrived or not."""

    def __init__(self) -> None:
        self._pasts: dict[int, list[_Past]] = {}

    def __bool__(self) -> bool:
        return bool(self._pasts)

    @property
    def begin(self) -> float:
        """The position of the first forgotten event; infinity if there is none."""
        return min((past.begin for pasts in self._pasts.values() for past in pasts), default=inf)

    def add(self, chunk: Chunk, begin: int, turn: int) -> None:
        """Add a chunk that is let go and began at position `begin`. Announcements up to `turn` may have
        overtaken it; later ones come behind it."""
        pasts = self._pasts.setdefault(chunk.stream, [])
        for first, next_ in runs(chunk):
            last = pasts[-1] if pasts else None
            if last and last.next == first and (last.turn == turn or len(pasts) >= _PASTS_MAX):
                pasts[-1] = _Past(min(last.begin, begin), max(last.turn, turn), last.first, next_)
            else:
                pasts.append(_Past(begin, turn, first, next_))

    def spans(self, stream: int) -> list[tuple[int, int]]:
        """Return a stream's forgotten ranges: the first number, and one more than the last."""
        return [(past.first, past.next) for past in self._pasts.get(stream, ())]

    def ends(self, turn: int) -> dict[int, int]:
        """Return the streams of which the answer to a question is to settle something. By stream: the
        number behind the last such event."""
        return {
            stream: max(nexts)
            for stream, pasts in self._pasts.items()
            if (nexts := [past.next for past in pasts if past.turn < turn])
        }

    def all(self) -> list[tuple[int, Range]]:
        """Return all forgotten ranges, each with its position."""
        return [
            (past.begin, Range(stream, past.first, past.next))
            for stream, pasts in self._pasts.items()
            for past in pasts
        ]

    def drop(self, streams: Iterable[int]) -> list[tuple[int, Range]]:
        """Remove some streams' ranges, and return them as `all` does."""
        return [
            (past.begin, Range(stream, past.first, past.next))
            for stream in streams
            for past in self._pasts.pop(stream, ())
        ]

    def clear(self) -> None:
        """Remove everything, since no answer will come."""
        self._pasts.clear()

    def settle(self, answer: Answer) -> list[tuple[int, Range]]:
        """Remove what an answer settles. Return the ranges that are lost, each with its position."""
        lost: list[tuple[int, Range]] = []
        for stream in self._pasts.keys() & answer.below.keys():
            still: list[_Past] = []
            for past in self._pasts.pop(stream):
                holes, beyond = _missing(past, stream, answer)
                if past.turn < answer.turn:
                    # An answer names only so many holes. A hole that it does not name may be the
                    # reason why the stream's number goes no further.
                    gone, holes = holes + ([] if answer.holes else beyond), []
                    lost += [(past.begin, Range(stream, *span)) for span in gone]
                    beyond = beyond if answer.holes else []
                still += [past._replace(first=f, next=n) for f, n in holes + beyond]
            if still:
                self._pasts[stream] = _joined(still)
        return lost


def _joined(pasts: list[_Past]) -> list[_Past]:
    """Return at most `_PIECES_MAX` entries. Events between joined entries have arrived, so no later
    answer that is true can call them lost."""
    kept, rest = pasts[: _PIECES_MAX - 1], pasts[_PIECES_MAX - 1 :]
    if len(rest) < 2:
        return pasts
    begins, turns, firsts, nexts = zip(*rest, strict=True)
    return [*kept, _Past(min(begins), max(turns), min(firsts), max(nexts))]


_Spans = list[tuple[int, int]]
"""The first number, and one more than the last."""


def _missing(past: _Past, stream: int, answer: Answer) -> tuple[_Spans, _Spans]:
    """Return the events that are in holes, and those beyond the stream's number."""
    below = answer.below[stream]
    at = past.first
    holes: _Spans = []
    for hole in sorted(answer.holes.get(stream, ())):
        first, next_ = max(hole.first, at), min(hole.next, past.next, below)
        if first < next_:
            holes.append((first, next_))
            at = next_
    first = max(past.first, below)
    return holes, [(first, past.next)] if first < past.next else []
