"""Pace a sender: when to try again, when to ask what has arrived, as an answer may have been lost, and how much
may wait for answers.
"""

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


_SECONDS = (0.3, 5.0)
"""After so long unsettled events lead to a question. Without an answer the pause doubles up to the
second number."""
_FIRST_SECONDS = 0.1
"""Likewise, before the first answer of all."""
_REMIND_SECONDS = 10.0
"""After this long the session is announced again: datagrams get lost, and collectors restart."""


class Asking:
    """The times of questions and reminders. A question is an announcement with a new turn, a reminder
    one without."""

    def __init__(self) -> None:
        self._pause = Backoff(*_SECONDS)
        self._hurried = False
        self._announced_at = -1e9

    def announced(self, now: float) -> None:
        """Take note of an announcement."""
        self._announced_at = now

    def answered(self) -> None:
        """Take note of an answer."""
        self._pause.shorten()

    def hurry(self) -> None:
        """Ask at once, since the program waits."""
        self._hurried = True

    def asked(self, now: float) -> None:
        """Take note of a question."""
        self._hurried = False
        self._pause.grow(now)

    def is_due(self, oldest: float, now: float, *, first: bool) -> bool:
        """Return whether it is time to ask about events that are unsettled since `oldest`. `first`: no
        collector has answered yet, and one may still do so."""
        if first and now - self._announced_at >= _FIRST_SECONDS:
            return True
        return self._hurried or (now - oldest > _SECONDS[0] and not self._pause.left(now))

    def is_forgotten(self, now: float) -> bool:
        """Return whether the last announcement is so old that another collector may run by now."""
        return now - self._announced_at >= _REMIND_SECONDS


_FIRST = 256 * 1024
_LEAST = 64 * 1024


class Window:
    """Bytes that may be unsettled while answers keep coming. Each answer makes the window larger, or
    smaller if events were lost."""

    def __init__(self, most: int, silence: float) -> None:
        """Limit the window to `most` bytes. Without an answer for `silence` seconds there is no window."""
        self._most = most
        self._silence = silence
        self._size = _FIRST
        self._heard_at = -1e9

    def is_full(self, in_flight: int, now: float) -> bool:
        """Return whether more has to wait for an answer."""
        return in_flight > self._size and now - self._heard_at < self._silence

    def answered(self, *, lost: bool, now: float) -> None:
        """Take note of an answer."""
        if now - self._heard_at > self._silence:
            self._size = _FIRST
        elif lost:
            self._size = max(_LEAST, self._size // 2)
        else:
            self._size = min(self._most, self._size + self._size // 4)
        self._heard_at = now
