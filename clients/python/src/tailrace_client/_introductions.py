"""Decide which datagrams announce the session.

Datagrams overtake one another, so each announces the session until the collector answers. If no
answer is asked for, the first `FIRST` do. Later ones do if their times do not show who sent them:
reports, goodbyes, and events that are repeated or had to wait.
"""

from __future__ import annotations

from tailrace_client._contact import Contact
from tailrace_client._queue import Queue

FIRST = 8
"""Datagrams that announce a session for which no answer is asked."""


class Introductions:
    """Whether the collector might take the next datagram for one of another program at this address."""

    def __init__(self, queue: Queue, contact: Contact, *, asks: bool) -> None:
        """`asks`: whether the collector is asked for answers."""
        self._queue, self._contact, self._asks = queue, contact, asks
        self._left = 0
        """How many more datagrams announce the session if no answer is asked for."""
        self._delayed = False
        """Whether datagrams wait that could have been sent earlier."""

    def begin(self) -> None:
        """Take note that the collector may not know the session."""
        self._left = FIRST

    def is_due(self, *, held: bool) -> bool:
        """Return whether the next datagram announces the session. `held`: whether chunks have to wait."""
        queue = self._queue
        self._delayed = not queue.idle and (self._delayed or held)
        speaks = queue.speaks(only_packets=held)
        if queue.idle or (held and not speaks):
            return False
        return speaks or queue.repeats or self._delayed or self._is_new()

    def _is_new(self) -> bool:
        """Return whether the collector may not know the session yet."""
        if self._asks or self._contact.has_answered:
            return not self._contact.has_answered
        self._left -= 1
        return self._left >= 0
