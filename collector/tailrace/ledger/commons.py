"""What the counters of all sessions of a source share: the bounds on their memory, and the drops.

`streams` are followed at a time by all sessions of the source together, `ranges` are their open
holes and remembered gaps. When all places for streams are taken, sessions with more than their share
give way (see `shares`). What exceeds a bound is counted: `uncounted` events of streams that are not
followed (in each session's account), `forgotten` gaps that cannot be healed any more.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tailrace.ledger.drops import Drops, DropsState
from tailrace.ledger.shares import Holder, Shares

_PART = 32
"""A session gives up this part of what it has beyond its share, so that the search for its oldest
streams is paid for by several newcomers."""


class CommonsState(msgspec.Struct, omit_defaults=True):
    streams: int = msgspec.field(default=0, name="followed_streams")
    ranges: int = msgspec.field(default=0, name="remembered_gaps")
    forgotten: int = msgspec.field(default=0, name="forgotten_gaps")
    known: int = 0
    """Streams that ever were followed."""
    uncounted_sessions: int = 0
    """Sessions in being with streams whose numbers are not followed."""
    mixed: bool = False
    """Whether there ever was a datagram that was not one event."""
    drops: DropsState = msgspec.field(default_factory=DropsState)


class Commons:
    def __init__(
        self, state: CommonsState, forget_first: Callable[[], bool] = lambda: False
    ) -> None:
        """`forget_first` lets go of a session that waits without a connection; it returns whether
        there was one."""
        self.state = state
        self._forget_first = forget_first
        self._shares = Shares()
        self.drops = Drops(state.drops)

    @property
    def alone(self) -> bool:
        """Whether all that ever came were single events of one stream."""
        return self.state.known <= 1 and not self.state.mixed

    def take_up(self, holder: Holder, streams: int) -> None:
        """Note the streams that a session followed before a restart."""
        self._shares.add(holder, streams)

    def add_stream(self, holder: Holder, most: int, now: int) -> bool:
        """Give a session the place for one more stream; return whether there is one."""
        while self.state.streams >= most:
            if not self._make_room(holder, most, now):
                return False
        self.state.known += 1
        self.state.streams += 1
        self._shares.add(holder, 1)
        return True

    def remove_streams(self, holder: Holder, count: int) -> None:
        """A session follows so many of its streams no more."""
        self.state.streams -= count
        self._shares.add(holder, -count)

    def _make_room(self, holder: Holder, most: int, now: int) -> bool:
        """Make room for a stream of a session; return whether there was any to be made.

        First give way those with more than their share, then those that only wait: but for a session
        within its own share alone."""
        shares = self._shares
        held, share = shares.held(holder), shares.share(most, holder)
        surplus = shares.most - max(share, held + 1)
        if surplus > 0:
            shares.largest().free_places(-(-surplus // _PART), now)
            return True
        return held <= share and self._forget_first()
