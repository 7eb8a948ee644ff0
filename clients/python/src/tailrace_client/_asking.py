"""When the sender of datagrams asks what has arrived: answers get lost, and nothing says so."""

from __future__ import annotations

from tailrace_client._backoff import Backoff

_SECONDS = (0.3, 5.0)
"""When something is unsettled after so long, it is asked; without an answer, doubling up to."""
_FIRST_SECONDS = 0.1
"""Likewise, while a first answer is waited for."""
_REMIND_SECONDS = 10.0
"""Datagrams get lost and collectors restart: who sends them is said again after this long."""


class Asking:
    """Questions, which are announcements with a new turn, and reminders, which are not."""

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
        """Ask at once: somebody waits."""
        self._hurried = True

    def asked(self, now: float) -> None:
        """Take note of a question."""
        self._hurried = False
        self._pause.grow(now)

    def is_due(self, oldest: float, now: float, *, first: bool) -> bool:
        """Return whether it is time to ask about what is unsettled since `oldest`; `first`: nobody has
        answered yet, and may still do so."""
        if first and now - self._announced_at >= _FIRST_SECONDS:
            return True
        return self._hurried or (now - oldest > _SECONDS[0] and not self._pause.left(now))

    def is_forgotten(self, now: float) -> bool:
        """Return whether the last announcement is so old that another collector may be there."""
        return now - self._announced_at >= _REMIND_SECONDS
