"""Say what has become of the events, and of the goodbye behind them."""

from __future__ import annotations

from tailrace_client._farewell import Farewell
from tailrace_client._queue import Queue


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
