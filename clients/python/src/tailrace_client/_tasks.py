"""What the bridges to asyncio and trio have in common: a task's span, number and substream.

Tasks of one loop take turns on one thread, so their spans would cross on its line. Each task gets a
substream instead: the lowest number from 1 on that no living task of that loop has. There are never
more of them than tasks at a time, and the spans on one nest. A task's number, from 1 on in the
order of their creation in this process, is not used again.
"""

from __future__ import annotations

from contextvars import ContextVar
from heapq import heappop, heappush
from itertools import count

TASK: ContextVar[int] = ContextVar("tailrace.task", default=0)
"""The number of the task that a context belongs to; 0 where that is not known."""

next_task = count(1).__next__


class Substreams:
    """The substreams of one loop's tasks."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._another = count(1).__next__

    def take(self) -> int:
        """The lowest number that is not taken."""
        return heappop(self._free) if self._free else self._another()

    def give_back(self, number: int) -> None:
        """It may be taken again."""
        heappush(self._free, number)
