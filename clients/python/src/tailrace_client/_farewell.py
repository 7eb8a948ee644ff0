"""When a goodbye is said, and said again."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace_client._chunk import Recorder
from tailrace_client._session import Dialogue

_AGAIN_SECONDS = 0.25
"""A goodbye in a datagram is said again after this long without an answer."""


class Farewell:
    """The end of a session: unsettled until it is heard, as events are.

    In a stream it comes behind all else, on each connection. Datagrams overtake one another: there it
    waits until all else is settled, and is repeated.
    """

    def __init__(self, dialogue: Dialogue, recorder: Recorder, size: int, *, repeat: bool) -> None:
        """`size`: bytes of a packet. `repeat`: whether it travels in datagrams."""
        self._dialogue, self._recorder = dialogue, recorder
        self._size, self._repeat = size, repeat
        self._said: tuple[int, int] | None = None
        self._said_at = -1e9
        self.wanted = False
        """Whether the session is to end, and its format has words for that."""
        self.heard = False

    def want(self) -> None:
        """Say it from now on."""
        self.wanted = any(self.packets())

    def packets(self) -> Iterator[bytes]:
        """What is said: how far each stream goes by now."""
        recorder = self._recorder
        return self._dialogue.goodbyes(recorder.next_numbers(), recorder.discarded, self._size)

    @property
    def said(self) -> bool:
        """Whether it was said where it could be heard: on a connection that has not broken."""
        return self._said is not None

    def is_due(self, connection: int, place: int, *, settled: bool, now: float) -> bool:
        """Return whether it is to be said now, behind so many bytes, of which all may be `settled`."""
        if not self.wanted or self.heard:
            return False
        if self._repeat:
            return settled and now - self._said_at >= _AGAIN_SECONDS
        return self._said != (connection, place)

    def say(self, connection: int, place: int, now: float) -> Iterator[bytes]:
        """Take note that it is said; return the packets."""
        self._said, self._said_at = (connection, place), now
        return self.packets()

    def broken(self) -> None:
        """Take note that a connection broke, and what was said on it may not have arrived."""
        self._said = None
