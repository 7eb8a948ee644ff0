"""Hold the state that the counters of all sessions of a source share: the memory limits, and the drop counts of the
operating system's kernel.

**Bounds.** `Commons` counts the streams that the source's sessions follow, and the ranges of open holes and remembered
gaps. Each followed stream occupies one place. When all places are taken, sessions with more than their share free
places. A session's share is the number of places divided by the number of sessions that hold any place. The session
with the most places frees places for a session with fewer, so that a new session gets its share even beside a session
with very many streams. Among sessions of equal size, the session with the first name frees places, so that the choice
does not depend on the order in which a checkpoint restores sessions. Two counts measure the excess: `uncounted` events
of unfollowed streams (in each session's account), and `forgotten` gaps that can no longer heal.

**Drops.** The operating system's kernel counts the dropped datagrams of a socket exactly, but does not identify their
senders. Each datagram carries the drop count at the time when the datagram was queued. The source therefore can locate
each growth of the drop count between two datagrams, however long the datagrams wait in the queue. A source passes
datagrams on in parts: all datagrams and drops of a part have one time in the log, and drops before the part have an
earlier time. A drop may explain a hole if the drop happened after the stream's last event before the hole, or in the
same part, and not after the part that revealed the hole. Each drop explains at most one hole. The oldest drops are used
first.

The assignment of drops to holes is exact for a single stream with one event per datagram, if only one hole can explain
the drops. In all other cases, the assignment is an estimate, based on the session's average number of events per
datagram. Drops that no hole uses stay `unassigned`, for example lost packets without a counter, garbage, or events
whose loss is not noticed yet. Memory is limited to `_SAMPLES_MAX` samples: if there are more, neighbouring samples are
merged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

_SAMPLES_MAX = 256


class Sample(msgspec.Struct, array_like=True):
    """Number of datagrams that the kernel dropped between `since` and `until` (Unix ns) and that no hole uses yet.

    `shared` states whether a hole uses other drops of the same interval."""

    since: int
    until: int
    count: int
    shared: bool = False


class DropsState(msgspec.Struct, omit_defaults=True):
    samples: list[Sample] = []
    """Samples with unused drops, oldest first."""
    dropped: int = 0
    assigned: int = 0
    socket: int = 0
    """Kernel's number of the socket with the last drop count."""
    total: int = 0
    """Kernel's drop count of the socket `socket`."""


class Share(NamedTuple):
    """Number of a hole's events that the kernel dropped, and whether the number is an estimate."""

    events: int
    estimate: bool = False


class Drops:
    """Assigns the datagrams that the operating system's kernel dropped for one source to holes."""

    def __init__(self, state: DropsState) -> None:
        self.state = state

    @property
    def unassigned(self) -> int:
        return self.state.dropped - self.state.assigned

    def add(self, since: int, until: int, count: int) -> None:
        """Add `count` drops that happened between two times (Unix ns)."""
        samples = self.state.samples
        samples.append(Sample(since, until, count))
        self.state.dropped += count
        if len(samples) > _SAMPLES_MAX:
            first, second = samples[:2]
            count = first.count + second.count
            samples[:2] = [Sample(first.since, second.until, count, shared=True)]

    def tell(self, socket: int, total: int) -> None:
        """Record the kernel's drop count of a socket. The caller has already passed all counted drops to `add`."""
        self.state.socket, self.state.total = socket, total

    def told(self, socket: int) -> int:
        """Return the last recorded drop count of a socket; 0 for any other socket."""
        return self.state.total if socket == self.state.socket else 0

    def explain(
        self, events: int, since: int, until: int, *, seen: int, datagrams: int, alone: bool
    ) -> Share:
        """Use drops to explain `events` events that were lost between two times. Return the explained share.

        The session received `seen` events in `datagrams` datagrams so far. With `alone`, the kernel cannot have dropped
        datagrams of other streams or of other kinds."""
        if not self.state.samples:
            return Share(0)
        packed = seen > datagrams > 0
        wanted = -(-events * datagrams // seen) if packed else events
        taken, sure = self._take(wanted, since, until)
        count = events * taken // wanted
        return Share(count, estimate=count > 0 and not (alone and sure))

    def _take(self, wanted: int, since: int, until: int) -> tuple[int, bool]:
        """Use up to `wanted` drops from the samples that overlap a hole's interval. Return the number of used drops,
        and whether the assignment is certain: all drops of the interval were used, and no other hole has used any."""
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
    """A session that holds places for streams."""

    @property
    def name(self) -> str:
        """Return the session's name, unique within the source."""
        ...

    def free_places(self, count: int, now: int) -> None:
        """Free the places of `count` streams, longest silent streams first."""
        ...


class Shares:
    """Counts the streams of each session of a source."""

    def __init__(self) -> None:
        self._held: dict[PlaceHolder, int] = {}
        self._of_size: dict[int, set[PlaceHolder]] | None = None
        """Sessions by their number of places. The index is built at the first request for the largest session, because
        few sources ever reach their stream limit."""
        self._most = 0

    def add(self, holder: PlaceHolder, count: int) -> None:
        """Add places to a session's count; a negative count removes places."""
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
        """Return the number of places that a session holds."""
        return self._held.get(holder, 0)

    def share(self, places: int, newcomer: PlaceHolder) -> int:
        """Return each session's share of the places, with the new session included."""
        return places // (len(self._held) + (newcomer not in self._held))

    @property
    def most(self) -> int:
        """Return the number of places that the largest session holds."""
        of_size = self._sizes()
        while self._most and self._most not in of_size:
            self._most -= 1
        return self._most

    def largest(self) -> PlaceHolder:
        """Return the session that must free places next. Raise KeyError if no session holds a place."""
        return min(self._sizes()[self.most], key=lambda holder: holder.name)


_PART = 32
"""Divisor of a session's surplus of places: a session frees one such part of its surplus at once, so that several new
sessions share the cost of the search for the oldest streams."""


class CommonsState(msgspec.Struct, omit_defaults=True):
    streams: int = msgspec.field(default=0, name="followed_streams")
    ranges: int = msgspec.field(default=0, name="remembered_gaps")
    forgotten: int = msgspec.field(default=0, name="forgotten_gaps")
    known: int = 0
    """Number of streams that were ever followed."""
    uncounted_sessions: int = 0
    """Number of open sessions with unfollowed streams."""
    mixed: bool = False
    """Whether the source ever received a datagram that was not exactly one event."""
    drops: DropsState = msgspec.field(default_factory=DropsState)


class Commons:
    def __init__(
        self, state: CommonsState, forget_first: Callable[[], bool] = lambda: False
    ) -> None:
        """Restore the shared state. `forget_first` drops a session without a connection, and returns whether there was
        such a session."""
        self.state = state
        self._forget_first = forget_first
        self._shares = Shares()
        self.drops = Drops(state.drops)
        self.packed = 0
        """Number of records that arrived in blocks since the daemon started."""
        self.slow = 0
        """Number of records that decoders read by their slow path since the daemon started."""

    @property
    def alone(self) -> bool:
        """Return whether the source has only ever received single events of one stream."""
        return self.state.known <= 1 and not self.state.mixed

    def take_up(self, holder: PlaceHolder, streams: int) -> None:
        """Count the streams that a session followed before a restart of the daemon."""
        self._shares.add(holder, streams)

    def add_stream(self, holder: PlaceHolder, most: int, now: int) -> bool:
        """Reserve a place for one more stream of a session. Return False if no place can be freed."""
        while self.state.streams >= most:
            if not self._make_room(holder, most, now):
                return False
        self.state.known += 1
        self.state.streams += 1
        self._shares.add(holder, 1)
        return True

    def remove_streams(self, holder: PlaceHolder, count: int) -> None:
        """Release the places of `count` streams of a session."""
        self.state.streams -= count
        self._shares.add(holder, -count)

    def _make_room(self, holder: PlaceHolder, most: int, now: int) -> bool:
        """Free a place for a stream of a session. Return whether a place is free now.

        Sessions with more than their share free places first. Sessions without a connection are dropped next, but only
        in favour of a session within its own share."""
        shares = self._shares
        held, share = shares.held(holder), shares.share(most, holder)
        surplus = shares.most - max(share, held + 1)
        if surplus > 0:
            shares.largest().free_places(-(-surplus // _PART), now)
            return True
        return held <= share and self._forget_first()
