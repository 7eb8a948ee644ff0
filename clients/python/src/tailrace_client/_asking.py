"""Decide when the sender of datagrams asks what has arrived: an answer may have been lost."""

from __future__ import annotations

from tailrace_client._backoff import Backoff

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
