"""State that the counters of all sessions of a source share: the bounds on their memory, and the kernel's drops.

**Bounds.** `Commons` counts the streams that the source's sessions follow together, and the ranges of their open holes and
remembered gaps. When all places for streams are taken, sessions with more than their share give way. A session's
share is the number of places over the number of sessions that hold any. The largest holder gives way to a session that holds
fewer, so that a newcomer gets its share however many streams one session has. Among sessions of equal size the first name
gives way, so that the choice does not depend on the order in which a checkpoint restores sessions. Excess is counted:
`uncounted` events of streams that are not followed (in each session's account), and `forgotten` gaps that cannot heal
any more.

**Drops.** The kernel counts the datagrams that it drops at a socket exactly, and does not say whose they were. Each datagram
carries the count as it was when the datagram was queued, so a source knows between which datagrams the count grew, however long
they wait in the queue. A source hands datagrams on in parts: all datagrams of a part, and drops among them, have one time in the
log; drops before the part have an earlier time. A drop may explain a hole if it lies behind the datagrams with which the stream
was last heard, or among them, and not behind those that showed the hole. Each drop explains one hole at most; the
oldest drops are used first.

The assignment is exact for one stream with one event a datagram, if only one hole can explain the
drops. Otherwise it is an estimate, and so is the number of events in a dropped datagram: the
session's average. Drops that no hole uses (events not missed yet, packets without a counter, garbage)
stay `unassigned`. Memory: `_SAMPLES_MAX` counts; beyond that, neighbouring counts are merged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

_SAMPLES_MAX = 256


class Sample(msgspec.Struct, array_like=True):
    """`count` datagrams that were dropped from `since` to `until` (Unix ns) and that no hole uses.

    With `shared`, a hole uses other drops of the same time."""

    since: int
    until: int
    count: int
    shared: bool = False


class DropsState(msgspec.Struct, omit_defaults=True):
    samples: list[Sample] = []
    """Counts with drops that no hole uses, oldest first."""
    dropped: int = 0
    assigned: int = 0
    socket: int = 0
    """The socket of the last count."""
    total: int = 0
    """The kernel's count at that socket."""


class Share(NamedTuple):
    """How many of a hole's events the kernel dropped, and whether the number is an estimate."""

    events: int
    estimate: bool = False


class Drops:
    """The kernel's drops of one source."""

    def __init__(self, state: DropsState) -> None:
        self.state = state

    @property
    def unassigned(self) -> int:
        return self.state.dropped - self.state.assigned

    def add(self, since: int, until: int, count: int) -> None:
        """Add so many drops of a time (Unix ns)."""
        samples = self.state.samples
        samples.append(Sample(since, until, count))
        self.state.dropped += count
        if len(samples) > _SAMPLES_MAX:
            first, second = samples[:2]
            count = first.count + second.count
            samples[:2] = [Sample(first.since, second.until, count, shared=True)]

    def tell(self, socket: int, total: int) -> None:
        """Note the kernel's count at a socket; `add` has been called for all of it."""
        self.state.socket, self.state.total = socket, total

    def told(self, socket: int) -> int:
        """Return the kernel's count at a socket as last noted, 0 for another socket."""
        return self.state.total if socket == self.state.socket else 0

    def explain(
        self, events: int, since: int, until: int, *, seen: int, datagrams: int, alone: bool
    ) -> Share:
        """Use drops for `events` that are missing between two times. Return how many they explain.

        `seen` events came in `datagrams` before. With `alone`, no other stream and no other
        kind of datagram can have been dropped."""
        if not self.state.samples:
            return Share(0)
        packed = seen > datagrams > 0
        wanted = -(-events * datagrams // seen) if packed else events
        taken, sure = self._take(wanted, since, until)
        count = events * taken // wanted
        return Share(count, estimate=count > 0 and not (alone and sure))

    def _take(self, wanted: int, since: int, until: int) -> tuple[int, bool]:
        """Use up to `wanted` drops whose time overlaps a hole's. Return how many, and whether these
        are all drops of that time and no other hole can have used them."""
        taken, sure = 0, True
        for sample in self.state.samples:
            if sample.since > until:
                break
            if sample.until < since:
                continue
            part = min(sample.count, wanted - taken)
            sure = sure and part == sample.count and not sample.shared
            if not part:
                break
            sample.count -= part
            sample.shared = True
            taken += part
        if taken:
            self.state.samples = [sample for sample in self.state.samples if sample.count]
            self.state.assigned += taken
        return taken, sure


class PlaceHolder(Protocol):
    """A session that holds places."""

    @property
    def name(self) -> str:
        """The session's name, which no other session of the source has."""
        ...

    def free_places(self, count: int, now: int) -> None:
        """Give up the places of so many streams, the longest silent first."""
        ...


class Shares:
    """How many streams each session of a source holds."""

    def __init__(self) -> None:
        self._held: dict[PlaceHolder, int] = {}
        self._of_size: dict[int, set[PlaceHolder]] | None = None
        """The sessions by how many places they have, kept once anybody has asked for the largest: few sources have ever
        as many streams as they may."""
        self._most = 0

    def add(self, holder: PlaceHolder, count: int) -> None:
        """Count so many places more for a session; fewer for a negative count."""
        before = self._held.pop(holder, 0)
        if after := before + count:
            self._held[holder] = after
        if self._of_size is not None:
            self._move(self._of_size, holder, before, after)

    def _move(
        self, of_size: dict[int, set[PlaceHolder]], holder: PlaceHolder, before: int, after: int
    ) -> None:
        if before:
            others = of_size[before]
            others.discard(holder)
            if not others:
                del of_size[before]
        if after:
            of_size.setdefault(after, set()).add(holder)
            self._most = max(self._most, after)

    def _sizes(self) -> dict[int, set[PlaceHolder]]:
        if self._of_size is None:
            self._of_size = {}
            for holder, held in self._held.items():
                self._move(self._of_size, holder, 0, held)
        return self._of_size

    def held(self, holder: PlaceHolder) -> int:
        """Return how many places a session has."""
        return self._held.get(holder, 0)

    def share(self, places: int, newcomer: PlaceHolder) -> int:
        """Return each session's share of the places, with this session among them."""
        return places // (len(self._held) + (newcomer not in self._held))

    @property
    def most(self) -> int:
        """Return the number of places that the largest session has."""
        of_size = self._sizes()
        while self._most and self._most not in of_size:
            self._most -= 1
        return self._most

    def largest(self) -> PlaceHolder:
        """Return the session that gives way next. Raise KeyError if no session holds a place."""
        return min(self._sizes()[self.most], key=lambda holder: holder.name)


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
