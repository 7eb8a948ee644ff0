"""How long a source rests between two looks at its sockets, so that what comes little by little comes together.

Each look costs the event loop, the spool and the decoder some 0.1 ms, however little it finds (ARCHITECTURE, D101).
"""

from __future__ import annotations

REST_MAX = 0.02
"""Seconds. Received bytes are synced after 50 ms by default, so nobody waits much longer for them."""

REST_MIN = 0.001
"""Seconds. A shorter rest brings nothing."""


class AdaptiveRest:
    """The rest of a source of connections: half as long as the last if much came on one of them, else twice as long.

    `enough` is how many bytes a look should find at a socket. Sockets must hold more, or their writers wait."""

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._seconds = REST_MIN

    def after(self, size: int) -> float:
        """Return the seconds to rest after a look that found at most so many bytes at a socket, 0 while much comes."""
        if size >= self._enough:
            self._seconds = self._seconds / 2 if self._seconds > REST_MIN else 0.0
        else:
            self._seconds = min(max(2 * self._seconds, REST_MIN), REST_MAX)
        return self._seconds
