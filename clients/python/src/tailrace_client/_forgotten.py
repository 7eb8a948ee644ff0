"""What was sent and is kept no more, though nobody has said yet that it arrived. Pure.

An answer settles it: an event that the answer calls durable has arrived. An event is lost that lies
in a hole, or beyond all that the collector has, by an answer to a question (`turn`) that was asked
after the event was sent: nobody can send it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from tailrace_client._chunk import Chunk
from tailrace_client._cut import runs
from tailrace_client._session import Answer, Range

_PASTS_MAX = 64
"""Of a stream; what follows is joined with what went before, whatever their turns."""


_PIECES_MAX = 1024
"""Of a stream, into which answers may cut what is forgotten; the rest is joined."""


class _Past(NamedTuple):
    """Events of a stream, all of which were recorded, and kept nowhere."""

    begin: int
    """How many bytes had been put before them."""
    turn: int
    """That of the last announcement that may have overtaken them."""
    first: int
    next: int


class Forgotten:
    """By stream, what may have arrived or not."""

    def __init__(self) -> None:
        self._pasts: dict[int, list[_Past]] = {}

    def __bool__(self) -> bool:
        return bool(self._pasts)

    @property
    def begin(self) -> float:
        """Return how many bytes had been put before the first forgotten event; infinity if there is none."""
        return min((past.begin for pasts in self._pasts.values() for past in pasts), default=inf)

    def add(self, chunk: Chunk, begin: int, turn: int) -> None:
        """Take note of a chunk that is let go, cannot arrive behind an announcement later than that of
        `turn`, and began behind `begin` bytes."""
        pasts = self._pasts.setdefault(chunk.stream, [])
        for first, next_ in runs(chunk):
            last = pasts[-1] if pasts else None
            if last and last.next == first and (last.turn == turn or len(pasts) >= _PASTS_MAX):
                pasts[-1] = _Past(min(last.begin, begin), max(last.turn, turn), last.first, next_)
            else:
                pasts.append(_Past(begin, turn, first, next_))

    def spans(self, stream: int) -> list[tuple[int, int]]:
        """Those of a stream: first number, and the one behind the last."""
        return [(past.first, past.next) for past in self._pasts.get(stream, ())]

    def all(self) -> list[tuple[int, Range]]:
        """All of it, each with how many bytes had been put before it."""
        return [
            (past.begin, Range(stream, past.first, past.next))
            for stream, pasts in self._pasts.items()
            for past in pasts
        ]

    def drop(self, streams: Iterable[int]) -> list[tuple[int, Range]]:
        """Let go of some streams' events, and return them as `all` does."""
        return [
            (past.begin, Range(stream, past.first, past.next))
            for stream in streams
            for past in self._pasts.pop(stream, ())
        ]

    def clear(self) -> None:
        """Let go of everything: nobody will ever answer."""
        self._pasts.clear()

    def settle(self, answer: Answer) -> list[tuple[int, Range]]:
        """Let go of what an answer settles; return what is lost by it, each with how many bytes had
        been put before it."""
        lost: list[tuple[int, Range]] = []
        for stream in self._pasts.keys() & answer.below.keys():
            still: list[_Past] = []
            for past in self._pasts.pop(stream):
                holes, beyond = _missing(past, stream, answer)
                if past.turn < answer.turn:
                    # Where holes are named, others may be why the number goes no further.
                    gone, holes = holes + ([] if answer.holes else beyond), []
                    lost += [(past.begin, Range(stream, *span)) for span in gone]
                    beyond = beyond if answer.holes else []
                still += [past._replace(first=f, next=n) for f, n in holes + beyond]
            if still:
                self._pasts[stream] = _joined(still)
        return lost


def _joined(pasts: list[_Past]) -> list[_Past]:
    """Return no more than `_PIECES_MAX`. What lies between joined ones has arrived, so that a collector
    which says the truth never misses it."""
    kept, rest = pasts[: _PIECES_MAX - 1], pasts[_PIECES_MAX - 1 :]
    if len(rest) < 2:
        return pasts
    begins, turns, firsts, nexts = zip(*rest, strict=True)
    return [*kept, _Past(min(begins), max(turns), min(firsts), max(nexts))]


_Spans = list[tuple[int, int]]
"""First number, and the one behind the last."""


def _missing(past: _Past, stream: int, answer: Answer) -> tuple[_Spans, _Spans]:
    """Return which of the events are in holes, and which beyond the stream's number."""
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
