"""Assign substreams to activities that share a thread, and numbers to the tasks of asyncio and trio.

The tasks of a loop share a thread, so their spans would overlap in its stream. Therefore each task gets a substream:
the lowest number from 1 on that no other running task of the loop has. Tasks are numbered from 1 in the order of their
creation in this process.
"""

from __future__ import annotations

from contextvars import ContextVar
from heapq import heappop, heappush
from itertools import count

SUBSTREAM: ContextVar[int] = ContextVar("tailrace.substream", default=0)
"""Context variable with the substream (u64) of the events that are emitted."""


TASK: ContextVar[int] = ContextVar("tailrace.task", default=0)
"""Context variable with the number of the current task; 0 if the task is unknown."""

next_task = count(1).__next__


class Substreams:
    """Assigns substream numbers to the tasks of one event loop."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._another = count(1).__next__

    def take(self) -> int:
        """Reserve the lowest free substream number, and return it."""
        return heappop(self._free) if self._free else self._another()

    def give_back(self, number: int) -> None:
        """Make a substream number free for another task."""
        heappush(self._free, number)
