"""Read wall time and monotonic time. Code that needs the time takes a `Clock`, so that a test can control the time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

STEP_NS = 50_000_000
"""Minimum step (ns) of the wall clock that is noticed. NTP's slewing stays below it."""


class Clock(Protocol):
    """A source of the wall time (Unix ns), which may step, and of a monotonic time (seconds), which never steps."""

    def wall_ns(self) -> int: ...

    def monotonic(self) -> float: ...


class SystemClock:
    def wall_ns(self) -> int:
        return time.time_ns()  # noqa: TID251 - the one place that may

    def monotonic(self) -> float:
        return time.monotonic()


class Timeline:
    """The time of the spool's log (Unix ns), which never goes back and never jumps. It advances with the monotonic
    clock, so setting the wall clock does not change it. `ahead` is the wall time minus this time."""

    def __init__(self, clock: Clock, last: int) -> None:
        self._clock = clock
        self._last = last
        self._moment: int | None = None
        self.go_on(0)

    def go_on(self, ahead: int) -> None:
        """Set the time of the spool's log to the wall time minus `ahead` (ns), but not below the time of the log's last
        entry."""
        wall = self._clock.wall_ns()
        self._begin = max(self._last, wall - ahead)
        self._monotonic = self._clock.monotonic()
        self.ahead = wall - self._begin
        """Wall time minus the time of the spool's log (ns), as the last call of `look` found it."""

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Stop the time of the spool's log within a `with` block, so that all log entries that are appended in the
        block have the same time."""
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
        """Convert wall time to the time of the spool's log (both Unix ns)."""
        return wall - self.ahead

    def look(self) -> int:
        """Return by how much (ns) the wall clock has stepped since the last call, and add the step to `ahead`. Return 0
        if the step is smaller than `STEP_NS`."""
        step = self._clock.wall_ns() - self.now() - self.ahead
        if abs(step) < STEP_NS:
            return 0
        self.ahead += step
        return step
