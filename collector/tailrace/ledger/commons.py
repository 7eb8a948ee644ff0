"""What the counters of all sessions of a source share: the bounds on their memory, and the drops.

`streams` are followed at a time by all sessions of the source together, `ranges` are their open
holes and remembered gaps. What exceeds a bound is counted: `uncounted` events of streams that are
not followed (in each session's account), `forgotten` gaps that cannot be healed any more.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tailrace.ledger.drops import Drops, DropsState


class CommonsState(msgspec.Struct, omit_defaults=True):
    streams: int = 0
    ranges: int = 0
    forgotten: int = 0
    known: int = 0
    """Streams that ever were followed."""
    mixed: bool = False
    """Whether there ever was a datagram that was not one event."""
    drops: DropsState = msgspec.field(default_factory=DropsState)


class Commons:
    def __init__(self, state: CommonsState, make_room: Callable[[], bool] = lambda: False) -> None:
        """`make_room` lets go of some streams that are not in use; whether there were any."""
        self.state = state
        self._make_room = make_room
        self.drops = Drops(state.drops)

    @property
    def alone(self) -> bool:
        """Whether all that ever came were single events of one stream."""
        return self.state.known <= 1 and not self.state.mixed

    def add_stream(self, most: int) -> bool:
        """One more stream is to be followed; whether there is room."""
        while self.state.streams >= most:
            if not self._make_room():
                return False
        self.state.known += 1
        self.state.streams += 1
        return True
