"""Exponential backoff between attempts."""

from __future__ import annotations

import os


def _chance() -> float:
    """Return a random number from 0 to 1/4."""
    return os.urandom(1)[0] / 1024


class Backoff:
    """A pause that doubles until it is reset, with some jitter, so that not all clients of a restarted
    collector come at the same moment."""

    def __init__(self, first: float, most: float) -> None:
        self._first, self._most = first, most
        self.after = first
        self.at = 0.0

    def left(self, now: float) -> float:
        """Return the seconds until the pause is over."""
        return max(0.0, self.at - now)

    def grow(self, now: float) -> None:
        """Begin a pause; the next is twice as long."""
        self.at = now + self.after * (1 - _chance())
        self.after = min(2 * self.after, self._most)

    def shorten(self) -> None:
        """Make the next pause as short as the first."""
        self.after = self._first
