"""Assign substreams to activities that share a thread, and numbers to the tasks of asyncio and trio.

Tasks of one loop share a thread, so their spans would overlap in the thread's stream. Each task gets a substream instead: the
lowest number from 1 on that no running task of the loop has. So there are never more substreams than concurrent tasks, and the
spans of a substream nest. Tasks are numbered from 1 in the order of their creation in this process. No task number is reused.
"""

from __future__ import annotations

from contextvars import ContextVar
from heapq import heappop, heappush
from itertools import count

SUBSTREAM: ContextVar[int] = ContextVar("tailrace.substream", default=0)
"""The substream (u64) of the events emitted in a context."""


TASK: ContextVar[int] = ContextVar("tailrace.task", default=0)
"""The number of the task that a context belongs to; 0 if the task is unknown."""

next_task = count(1).__next__


class Substreams:
    """The substreams of one loop's tasks."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._another = count(1).__next__

    def take(self) -> int:
        """Reserve the lowest free substream number, and return it."""
        return heappop(self._free) if self._free else self._another()

    def give_back(self, number: int) -> None:
        """Release a substream number for another task."""
        heappush(self._free, number)
