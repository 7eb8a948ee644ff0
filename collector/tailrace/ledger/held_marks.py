"""Counts the marks that a session's streams hold, and gives them up to save memory.

A number whose mark was given up is a duplicate when it comes again, whatever its event.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from tailrace.ledger.stream import Marks, StreamCounter
from tailrace.model.holding import Evicted

MARK_BYTES = 10
"""Bytes of a mark."""

_heard = attrgetter("heard")


class HeldMarks:
    """The marks that the streams of one session hold together."""

    what = Evicted.MARKS

    def __init__(self, streams: Mapping[str, StreamCounter]) -> None:
        self._streams = streams
        self.count = sum(len(s.recent) + len(s.head) for s in streams.values())
        """Marks that all streams hold; who lets a stream remember one counts it here."""
        self.evicted = 0

    @property
    def held(self) -> int:
        return MARK_BYTES * self.count

    def give_way(self, size: int) -> None:
        """Give up marks until so many bytes are free, of the longest silent streams first."""
        goal = max(0, self.held - size)
        for stream in sorted(self._streams.values(), key=_heard):
            if self.held <= goal:
                break
            self.evicted += self.forget(stream)

    def forget(self, stream: StreamCounter) -> int:
        """Forget a stream's marks. Return how many these were."""
        marks = len(stream.recent) + len(stream.head)
        stream.recent, stream.head = Marks(), Marks()
        self.count -= marks
        return marks

    def forget_all(self) -> None:
        """Forget the marks of all streams."""
        for stream in self._streams.values():
            self.forget(stream)
