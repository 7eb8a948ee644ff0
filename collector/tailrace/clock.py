"""The only reader of wall and monotonic time.

Everything that needs a time takes a `Clock`; a test passes one it can stop.
"""

from __future__ import annotations

import time
from typing import Protocol


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
