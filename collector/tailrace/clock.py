"""The only reader of wall and monotonic time.

Everything that needs a time takes a `Clock`; a test passes one it can stop.
"""

from __future__ import annotations

import time
from typing import Protocol

STEP_NS = 50_000_000
"""A difference between two clocks of one machine that no slewing makes."""


class Clock(Protocol):
    """Two times: `wall_ns` (Unix nanoseconds, may step) and `monotonic` (seconds, never does)."""

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

    It goes as fast as the monotonic clock, which a set wall clock does not move, and goes on from the
    log's last entry, even if that is in the future of the wall clock. `ahead` is what turns a time of
    it into wall time; `look` finds out when that has changed."""

    def __init__(self, clock: Clock, last: int) -> None:
        """`last` is the time of the log's last entry."""
        self._clock = clock
        self._last = last
        self.go_on(0)

    def go_on(self, ahead: int) -> None:
        """Go on from the log's last entry by what the wall clock says has passed since then. The wall clock
        was so far ahead (ns) when the log last said so."""
        wall = self._clock.wall_ns()
        self._begin = max(self._last, wall - ahead)
        self._monotonic = self._clock.monotonic()
        self.ahead = wall - self._begin
        """How far the wall clock is ahead (ns), as it was at the last look."""

    def now(self) -> int:
        return self._begin + round((self._clock.monotonic() - self._monotonic) * 1e9)

    def at(self, wall: int) -> int:
        """Convert wall time to the time of the log (both Unix ns)."""
        return wall - self.ahead

    def look(self) -> int:
        """Return by how much the wall clock was set since the last look (ns), if by STEP_NS or more;
        else 0."""
        step = self._clock.wall_ns() - self.now() - self.ahead
        if abs(step) < STEP_NS:
            return 0
        self.ahead += step
        return step
