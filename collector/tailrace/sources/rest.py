"""Decide how long a source rests between two looks at its sockets, so that one look finds many small writes.

Each look costs the event loop, the spool and the decoder some 0.1 ms, however little it finds (docs/decisions/speed.md, D101).
"""

from __future__ import annotations

REST_MAX = 0.02
"""Seconds of the longest rest: short beside the 50 ms after which received bytes are synced by default."""

REST_MIN = 0.001
"""Seconds of the shortest rest: the event loop waits for whole milliseconds."""


class AdaptiveRest:
    """Halve the rest after a look that found `enough` bytes at one socket, double it after any other look.

    A socket must hold more than `enough` bytes, or its writer waits."""

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._seconds = REST_MIN

    def after(self, size: int) -> float:
        """Return the seconds to rest. `size` is the most bytes that the last look found at one socket."""
        if size >= self._enough:
            self._seconds = self._seconds / 2 if self._seconds > REST_MIN else 0.0
        else:
            self._seconds = min(max(2 * self._seconds, REST_MIN), REST_MAX)
        return self._seconds
