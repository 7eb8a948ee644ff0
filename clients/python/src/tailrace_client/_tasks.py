"""Substreams, which tell apart the activities that share a thread, and the numbers of asyncio's and trio's tasks.

Tasks of one loop share a thread, so their spans would overlap in its stream. Each task gets a
substream instead: the lowest number from 1 on that no living task of the loop has. There are never
more substreams than tasks at a time, and the spans of a substream nest. Tasks are numbered from 1 in
the order of their creation in this process. A task's number is not used again.
"""

from __future__ import annotations

from contextvars import ContextVar
from heapq import heappop, heappush
from itertools import count

SUBSTREAM: ContextVar[int] = ContextVar("tailrace.substream", default=0)
"""The substream (u64) of the events emitted in a context."""


TASK: ContextVar[int] = ContextVar("tailrace.task", default=0)
"""The number of the task that a context belongs to; 0 if that is not known."""

next_task = count(1).__next__


class Substreams:
    """The substreams of one loop's tasks."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._another = count(1).__next__

    def take(self) -> int:
        """Take and return the lowest free number."""
        return heappop(self._free) if self._free else self._another()

    def give_back(self, number: int) -> None:
        """Make a number free again."""
        heappush(self._free, number)
