"""When each file is looked at next.

A file that grows is looked at every `poll_interval`. A file that rests is looked at less and less
often, down to every `idle_interval`, or as often as keeps all looks together below `LOOKS_SHARE` of a
core.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from itertools import count

from tailrace.config.schema import TailConfig
from tailrace.sources.tail.follow import Followed

LOOKS_SHARE = 0.005
LOOK_COST = 5e-6
"""Seconds that a look takes at least."""
RETRY_MAX = 30.0
TICKS = 4
"""Moments in an interval at which files are looked at together."""


class Schedule:
    """The times of the files' next looks. The last `put` of a file counts."""

    def __init__(self, config: TailConfig) -> None:
        self.config = config
        self._due: list[tuple[float, int, Followed]] = []
        self._order = count()

    @property
    def next(self) -> float:
        """Return when the next file is due, infinity if none is."""
        return self._due[0][0] if self._due else float("inf")

    def put(self, file: Followed, at: float) -> None:
        file.due = at
        heapq.heappush(self._due, (at, next(self._order), file))

    def take(self, now: float) -> Iterator[Followed]:
        """Yield all files that are due. They may be put in again meanwhile."""
        while self._due and self._due[0][0] <= now:
            due, _, file = heapq.heappop(self._due)
            if due == file.due:
                yield file

    def rest(self, looks: int) -> float:
        """Return the seconds between two rounds of so many looks at what does not change."""
        return max(self.config.idle_interval, looks * LOOK_COST / LOOKS_SHARE)

    def after_look(self, file: Followed, now: float, files: int) -> None:
        """Put in a file again after a look; `files` is the number of all files."""
        poll = self.config.poll_interval
        rests = file.location.changed_at != now
        file.interval = min(max(2 * file.interval, poll), self.rest(files)) if rests else poll
        # Look at files together, because a wake-up costs as much as ten looks.
        tick = file.interval / TICKS
        self.put(file, math.ceil((now + file.interval) / tick) * tick)

    def after_failure(self, file: Followed, now: float) -> None:
        file.interval = min(max(2 * file.interval, self.config.idle_interval), RETRY_MAX)
        self.put(file, now + file.interval)
