"""A virtual clock, and what is to happen when.

Time passes only while somebody waits in `run`. A seed is a run: each concern has random numbers of its
own, and no two readings of the clock are equal.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

MS, SECOND = 10**6, 10**9
BEGIN = 1_800_000_000 * SECOND


class World:
    def __init__(self, seed: object) -> None:
        self.seed = seed
        self._now = BEGIN
        self._steps: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def random(self, concern: str) -> Random:
        return Random(f"{self.seed}/{concern}")

    @property
    def now(self) -> int:
        """Return the time (Unix ns)."""
        self._now += 1
        return self._now

    def after(self, delay: int, step: Callable[[], None]) -> None:
        """Take a step after so many nanoseconds."""
        self._count += 1
        heapq.heappush(self._steps, (self._now + delay, self._count, step))

    def every(self, period: int, step: Callable[[], None]) -> None:
        def again() -> None:
            step()
            self.after(period, again)

        self.after(period, again)

    def run(self, duration: int, until: Callable[[], bool] = lambda: False) -> None:
        """Let so many nanoseconds pass, or fewer if something becomes true."""
        end = self._now + duration
        while not until() and self._steps and self._steps[0][0] <= end:
            at, _, step = heapq.heappop(self._steps)
            self._now = max(self._now, at)
            step()
        if not until():
            self._now = max(self._now, end)


class Time:
    """The module `time`, in a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic(self) -> float:
        return (self._world.now - BEGIN) / SECOND

    def monotonic_ns(self) -> int:
        return self._world.now - BEGIN

    def time_ns(self) -> int:
        return self._world.now

    def sleep(self, seconds: float) -> None:
        self._world.run(round(seconds * SECOND))
