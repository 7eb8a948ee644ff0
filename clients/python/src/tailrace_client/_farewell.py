"""Decide when to say goodbye, and when to say it again; say what has become of the events before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tailrace_client._chunk import Recorder
from tailrace_client._queue import Queue
from tailrace_client._session import Dialogue

_AGAIN_SECONDS = 0.25
"""After this long without an answer a goodbye in a datagram is said again."""


class Farewell:
    """The end of a session, which is unsettled until the collector answers, as events are.

    On a byte stream the goodbye comes behind all else, on each connection. Datagrams overtake one
    another, so there the goodbye waits until all else is settled, and is repeated.
    """

    def __init__(self, dialogue: Dialogue, recorder: Recorder, size: int, *, repeat: bool) -> None:
        """Make packets of about `size` bytes. `repeat`: whether they travel in datagrams."""
        self._dialogue, self._recorder = dialogue, recorder
        self._size, self._repeat = size, repeat
        self._said: tuple[int, int] | None = None
        self._said_at = -1e9
        self._is_new = True
        """Whether the goodbye that is wanted was never said: an answer can only be to an earlier one."""
        self.wanted = False
        """Whether the session is to end, and its format has a goodbye."""
        self.heard = False
        """Whether the collector has answered the goodbye."""
        self.numbers: Mapping[int, int] = {}
        """By stream, the number below which the last goodbye counts all events."""

    def want(self) -> None:
        """Say goodbye from now on, behind all events that are recorded so far."""
        self.heard = False
        self._is_new = True
        before = self.numbers
        self.wanted = any(self.packets())
        self.numbers = before

    def packets(self) -> Iterator[bytes]:
        """Return the goodbye: how far each stream goes by now."""
        self.numbers = numbers = self._recorder.next_numbers()
        return self._dialogue.goodbyes(numbers, self._recorder.discarded, self._size)

    @property
    def said(self) -> bool:
        """Whether the goodbye was sent on a connection that has not broken."""
        return self._said is not None and not self._is_new

    def is_due(self, connection: int, place: int, *, settled: bool, now: float) -> bool:
        """Return whether to say goodbye now, on this connection, behind `place` bytes. `settled`:
        whether the fate of all of these bytes is known."""
        if not self.wanted or self.heard:
            return False
        if self._repeat:
            return settled and (self._is_new or now - self._said_at >= _AGAIN_SECONDS)
        return self._is_new or self._said != (connection, place)

    def say(self, connection: int, place: int, now: float) -> Iterator[bytes]:
        """Take note that the goodbye is said now, and return its packets."""
        self._said, self._said_at, self._is_new = (connection, place), now, False
        return self.packets()

    def hear(self) -> None:
        """Take note that the collector has answered a goodbye."""
        self.heard = not self._is_new

    def broken(self) -> None:
        """Take note that the connection broke, and that the goodbye may not have arrived."""
        self._said = None


class Fate:
    """The known fate of everything that was gathered."""

    def __init__(self, queue: Queue, farewell: Farewell, *, asks: bool) -> None:
        """`asks`: whether the collector is asked for answers."""
        self._queue, self._farewell, self._asks = queue, farewell, asks

    @property
    def unsettled(self) -> bool:
        """Whether anything waits to be sent or answered."""
        farewell = self._farewell
        unheard = farewell.wanted and not (farewell.heard if self._asks else farewell.said)
        return not self._queue.idle or self._queue.unsettled or unheard

    def is_settled(self, position: int) -> bool:
        """Return whether the fate of everything gathered before `position` (bytes) is known: durable or
        lost or, if the collector is not asked, handed to the kernel."""
        queue = self._queue
        return (queue.settled() if self._asks else queue.handed()) >= position

    def has_lost(self, position: int) -> bool:
        """Return whether anything before `position` was lost or refused."""
        return self._queue.lost_at < position

    def has_ended(self, position: int) -> bool:
        """Return whether everything before `position` is settled, and the goodbye behind it, too."""
        farewell = self._farewell
        said = self._queue.idle and (farewell.said or not farewell.wanted)
        return (farewell.heard if self._asks else said) and self.is_settled(position)
