"""Read wall time and monotonic time. No other module reads a clock.

Code that needs the time takes a `Clock`, so that a test can pass a clock that it controls.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

STEP_NS = 50_000_000
"""Minimum change (ns) of the wall clock against the monotonic clock that counts as a step.

Slewing, by which NTP corrects small errors, stays below this size."""


class Clock(Protocol):
    """A source of wall time (`wall_ns`, Unix ns, may step) and of `monotonic` time (seconds, never steps)."""

    def wall_ns(self) -> int: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """The wall clock and the monotonic clock of the machine."""

    def wall_ns(self) -> int:
        return time.time_ns()  # noqa: TID251 - the one place that may

    def monotonic(self) -> float:
        return time.monotonic()


class Timeline:
    """The time of the log (Unix ns), which never goes back and never jumps.

    The timeline starts at the time of the log's last entry or later, even if the wall clock is behind that
    time. The timeline advances with the monotonic clock, which ignores changes of the wall clock. Wall time is
    the time of the log plus `ahead`. `look` updates `ahead`.
    """

    def __init__(self, clock: Clock, last: int) -> None:
        """Create a timeline that starts at `last`, the time of the log's last entry."""
        self._clock = clock
        self._last = last
        self._moment: int | None = None
        self.go_on(0)

    def go_on(self, ahead: int) -> None:
        """Continue the timeline at the time of the log's last entry, plus the wall time that has passed since
        then.

        `ahead` is the last logged difference (ns) between the wall clock and the time of the log.
        """
        wall = self._clock.wall_ns()
        self._begin = max(self._last, wall - ahead)
        self._monotonic = self._clock.monotonic()
        self.ahead = wall - self._begin
        """Difference (ns) between the wall clock and the time of the log at the last `look`."""

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Stop the timeline within a `with` block, so that all entries logged in the block have the same time."""
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
        """Return by how much (ns) the wall clock has been stepped since the last call, and add the step to
        `ahead`.

        Return 0 if the step is smaller than `STEP_NS`."""
        step = self._clock.wall_ns() - self.now() - self.ahead
        if abs(step) < STEP_NS:
            return 0
        self.ahead += step
        return step
