"""Keep what is known of the peer, tell people what is wrong, and decide which datagrams announce the session.

Datagrams overtake one another, so each announces the session until the collector answers. If no
answer is asked for, the first `FIRST` do. Later ones do if their times do not show who sent them:
reports, goodbyes, and events that are repeated or had to wait.
"""

from __future__ import annotations

from tailrace_client._queue import Queue

ANSWER_SECONDS = 1.0
"""How long a collector may take to answer."""

_SILENT_SECONDS = 0.5
"""After so long without an answer that is due, people are told."""

_UNANSWERED = (
    "the collector does not answer: check that it runs at this address "
    "(for a peer that never answers, pass acknowledge=False)"
)
_NEVER = -1e9


class Contact:
    """When the transport was opened and the peer was last heard, and the last error."""

    def __init__(self) -> None:
        self.error: str | None = None
        self.opened_at = self.heard_at = _NEVER
        self.greeted_at = _NEVER
        """Since when the collector could have answered, as far as is known."""

    @property
    def has_answered(self) -> bool:
        """Whether the peer has answered since the transport was opened."""
        return self.heard_at >= self.opened_at

    def opened(self, now: float) -> None:
        """Take note that the transport has been opened."""
        self.opened_at = self.greeted_at = now

    def is_established(self, now: float) -> bool:
        """Return whether the peer has answered, or has kept the connection for long enough to have
        accepted our first bytes."""
        since = max(self.opened_at, self.greeted_at)
        return self.has_answered or now - since > ANSWER_SECONDS

    def note(self, error: OSError, question: str = "") -> None:
        """Take note of an error, and of a `question` that may lead people to its cause."""
        words = error.strerror or str(error)
        if error.filename is not None:
            words = f"{words}: {error.filename}"
        self.error = f"{words}; {question}" if question else words

    def trouble(self, now: float, oldest: float) -> str | None:
        """Return what is wrong with an open connection whose oldest unsettled event was sent at
        `oldest`; infinity: none is."""
        if now - max(self.opened_at, self.heard_at, oldest) > _SILENT_SECONDS:
            return self.error or _UNANSWERED
        if self.is_established(now):
            self.error = None
        return self.error


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
