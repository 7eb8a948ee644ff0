"""State that the counters of all sessions of a source share: the bounds on their memory, and the drops.

`streams` is the number of streams that the source's sessions follow together, `ranges` the number of their open
holes and remembered gaps. When all places for streams are taken, sessions with more than their share
give way (see `shares`). Excess is counted: `uncounted` events of streams that are not
followed (in each session's account), and `forgotten` gaps that cannot heal any more.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tailrace.ledger.drops import Drops, DropsState
from tailrace.ledger.shares import PlaceHolder, Shares

_PART = 32
"""A session gives up this part of its surplus at once, so that several newcomers share the cost of the
search for its oldest streams."""


class CommonsState(msgspec.Struct, omit_defaults=True):
    streams: int = msgspec.field(default=0, name="followed_streams")
    ranges: int = msgspec.field(default=0, name="remembered_gaps")
    forgotten: int = msgspec.field(default=0, name="forgotten_gaps")
    known: int = 0
    """Streams that were ever followed."""
    uncounted_sessions: int = 0
    """Open sessions with streams that are not followed."""
    mixed: bool = False
    """Whether there ever was a datagram that was not one event."""
    drops: DropsState = msgspec.field(default_factory=DropsState)


class Commons:
    def __init__(
        self, state: CommonsState, forget_first: Callable[[], bool] = lambda: False
    ) -> None:
        """`forget_first` forgets a session that waits without a connection, and returns whether there was one."""
        self.state = state
        self._forget_first = forget_first
        self._shares = Shares()
        self.drops = Drops(state.drops)
        self.packed = 0
        """Records that came in blocks since the daemon started."""
        self.slow = 0
        """Records that were read the slow way since the daemon started."""

    @property
    def alone(self) -> bool:
        """Return whether the source only ever received single events of one stream."""
        return self.state.known <= 1 and not self.state.mixed

    def take_up(self, holder: PlaceHolder, streams: int) -> None:
        """Note the streams that a session followed before a restart."""
        self._shares.add(holder, streams)

    def add_stream(self, holder: PlaceHolder, most: int, now: int) -> bool:
        """Give a session the place for one more stream; return whether there is one."""
        while self.state.streams >= most:
            if not self._make_room(holder, most, now):
                return False
        self.state.known += 1
        self.state.streams += 1
        self._shares.add(holder, 1)
        return True

    def remove_streams(self, holder: PlaceHolder, count: int) -> None:
        """Note that a session follows so many streams fewer."""
        self.state.streams -= count
        self._shares.add(holder, -count)

    def _make_room(self, holder: PlaceHolder, most: int, now: int) -> bool:
        """Make room for a stream of a session. Return whether there is room now.

        Sessions with more than their share give way first. Sessions that only wait give way next, but only to a session
        within its own share."""
        shares = self._shares
        held, share = shares.held(holder), shares.share(most, holder)
        surplus = shares.most - max(share, held + 1)
        if surplus > 0:
            shares.largest().free_places(-(-surplus // _PART), now)
            return True
        return held <= share and self._forget_first()
