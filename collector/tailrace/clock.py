"""The only module that reads wall and monotonic time.

Code that needs the time takes a `Clock`, so that a test can pass a clock that it controls.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

STEP_NS = 50_000_000
"""A larger difference between two clocks of one machine is a step: slewing does not cause it."""


class Clock(Protocol):
    """Wall time (`wall_ns`, Unix nanoseconds, may step) and `monotonic` time (seconds, never steps)."""

    def wall_ns(self) -> int: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """The machine's own clocks."""

    def wall_ns(self) -> int:
        return time.time_ns()  # noqa: TID251 - the one place that may

    def monotonic(self) -> float:
        return time.monotonic()


class Timeline:
    """Time as the log counts it (Unix ns): it never goes back and never jumps.

    It starts at the time of the log's last entry or later, even if that lies in the future of the wall
    clock. From there it advances with the monotonic clock, which ignores changes of the wall clock.
    Add `ahead` to a time of the log to get wall time; `look` updates `ahead`."""

    def __init__(self, clock: Clock, last: int) -> None:
        """Start from `last`, the time of the log's last entry."""
        self._clock = clock
        self._last = last
        self._moment: int | None = None
        self.go_on(0)

    def go_on(self, ahead: int) -> None:
        """Continue from the log's last entry, with the time that passed since then by the wall clock.

        `ahead` is how far the wall clock was ahead (ns) when the log last said so."""
        wall = self._clock.wall_ns()
        self._begin = max(self._last, wall - ahead)
        self._monotonic = self._clock.monotonic()
        self.ahead = wall - self._begin
        """How far the wall clock was ahead of the log's time (ns) at the last `look`."""

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Hold the time still, so that all entries logged within have the same time."""
        self._moment = self.now()
        try:
            yield
        finally:
            self._moment = None

    def now(self) -> int:
        if self._moment is not None:
            return self._moment
        return self._begin + round((self._clock.monotonic() - self._monotonic) * 1e9)

    def at(self, wall: int) -> int:
        """Convert wall time to the time of the log (both Unix ns)."""
        return wall - self.ahead

    def look(self) -> int:
        """Return how far the wall clock was set since the last look (ns); 0 for less than STEP_NS."""
        step = self._clock.wall_ns() - self.now() - self.ahead
        if abs(step) < STEP_NS:
            return 0
        self.ahead += step
        return step
