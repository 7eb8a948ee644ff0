"""Hold the state that all sessions of a source share: limits on streams and missing ranges, and the drop counts of the
operating system's kernel.

**Limits.** `Commons` counts the streams that the source's sessions follow, and the ranges of open holes and remembered
gaps. Each followed stream occupies one slot under the limit of streams. A session's share is the number of slots
divided by the number of sessions that hold any slot. When all slots are taken and a session with less than its share
needs another one, the session with the most slots frees some. Thus a new session gets its share even beside a session
with very many streams. Among several sessions with the most slots, the one with the first name frees slots, so that the
choice does not depend on the order in which a checkpoint restores sessions. Two counts show what the limits cost:
`uncounted` events of streams without a slot (in each session's account), and `forgotten` gaps that can no longer heal.

**Drops.** The operating system's kernel counts the dropped datagrams of a socket exactly, but does not identify their
senders. Each datagram carries the drop count at the time when the datagram was queued. The source therefore can locate
each growth of the drop count between two datagrams, however long the datagrams wait in the queue. A source passes
datagrams on in parts: all datagrams and drops of a part have one time in the log, and drops before the part have an
earlier time. A drop may explain a hole if it happened no earlier than the stream's last event before the hole, and no
later than the part that revealed the hole. Each drop explains at most one hole. The oldest drops are used first.

The assignment of drops to holes is exact for a single stream with one event per datagram, if only one hole can explain
the drops. In all other cases, the assignment is an estimate, based on the session's average number of events per
datagram. Some drops explain no hole and stay `unassigned`, for example packets without a counter, garbage, or events
whose loss is not noticed yet. At most `_SAMPLES_MAX` intervals with drops are remembered: if there are more, the two
oldest are merged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

_SAMPLES_MAX = 256


class Sample(msgspec.Struct, array_like=True):
    """Number of datagrams that the operating system's kernel dropped between the times `since` and `until` (Unix ns),
    without the datagrams that already explain a hole (missing event numbers).

    `shared` is true if the interval had such datagrams, or if it was merged from two intervals. An assignment of the
    other drops to a hole is then an estimate."""

    since: int
    until: int
    count: int
    shared: bool = False


class DropsState(msgspec.Struct, omit_defaults=True):
    samples: list[Sample] = []
    """Intervals with dropped datagrams that are not assigned to missing events yet, oldest first."""
    dropped: int = 0
    assigned: int = 0
    socket: int = 0
    """Identifier that the operating system's kernel gives to the socket with the last recorded drop count."""
    total: int = 0
    """Last recorded drop count of the socket `socket`."""


class Share(NamedTuple):
    """Number of missing events that the operating system's kernel dropped, and whether this number is an estimate."""

    events: int
    estimate: bool = False


class Drops:
    """Assigns the datagrams that the operating system's kernel dropped for one source to holes (missing event numbers),
    as the cause of the loss."""

    def __init__(self, state: DropsState) -> None:
        self.state = state

    @property
    def unassigned(self) -> int:
        return self.state.dropped - self.state.assigned

    def add(self, since: int, until: int, count: int) -> None:
        """Add `count` dropped datagrams. The drops happened between `since` and `until` (Unix ns)."""
        samples = self.state.samples
        samples.append(Sample(since, until, count))
        self.state.dropped += count
        if len(samples) > _SAMPLES_MAX:
            first, second = samples[:2]
            count = first.count + second.count
            samples[:2] = [Sample(first.since, second.until, count, shared=True)]

    def tell(self, socket: int, total: int) -> None:
        """Record the total drop count of a socket. The caller has already passed each of these drops to `add`."""
        self.state.socket, self.state.total = socket, total

    def told(self, socket: int) -> int:
        """Return the last recorded drop count of a socket.

        Return 0 if the last count was recorded for another socket.
        """
        return self.state.total if socket == self.state.socket else 0

    def explain(
        self, events: int, since: int, until: int, *, seen: int, datagrams: int, alone: bool
    ) -> Share:
        """Return how many of `events` lost events were in datagrams that the operating system's kernel dropped.

        The events were lost between `since` and `until` (Unix ns). The drops are used up and explain no further loss.
        The session has received `seen` events in `datagrams` datagrams; the ratio estimates the events per dropped
        datagram. `alone` states that all datagrams of the source held one event each, all of the same stream, so that
        each drop is one event of this stream."""
        if not self.state.samples:
            return Share(0)
        packed = seen > datagrams > 0
        wanted = -(-events * datagrams // seen) if packed else events
        taken, sure = self._take(wanted, since, until)
        count = events * taken // wanted
        return Share(count, estimate=count > 0 and not (alone and sure))

    def _take(self, wanted: int, since: int, until: int) -> tuple[int, bool]:
        """Use up to `wanted` dropped datagrams of the intervals that overlap the time from `since` to `until` (Unix
        ns). Return how many were used, and whether they are certainly the cause of the current loss.

        The cause is certain if the current loss uses all drops of these intervals, and no earlier loss has used any of
        them."""
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
    """A session as the ledger's limits see it: it holds one of the source's slots for each stream that it follows."""

    @property
    def name(self) -> str:
        """Return the session's name, unique within the source."""
        ...

    def free_places(self, count: int, now: int) -> None:
        """Release the slots of `count` streams, so that other sessions can use them.

        The streams without an event for the longest time lose their slots first. Their later events are not counted.
        """
        ...


class Shares:
    """Counts how many of a source's slots for streams each session holds. The configuration limits the number of slots."""

    def __init__(self) -> None:
        self._held: dict[PlaceHolder, int] = {}
        self._of_size: dict[int, set[PlaceHolder]] | None = None
        """Sessions by the number of slots that they hold.

        The index is built when the largest session is requested for the first time, because few sources ever reach
        their limit of streams.
        """
        self._most = 0

    def add(self, holder: PlaceHolder, count: int) -> None:
        """Add `count` slots to the number of slots that a session holds. A negative count removes slots."""
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
        """Return the number of slots that a session holds."""
        return self._held.get(holder, 0)

    def share(self, places: int, newcomer: PlaceHolder) -> int:
        """Return how many slots each session may hold if all sessions, including `newcomer`, share `places` slots
        equally.
        """
        return places // (len(self._held) + (newcomer not in self._held))

    @property
    def most(self) -> int:
        """Return the number of slots of the session that holds the most."""
        of_size = self._sizes()
        while self._most and self._most not in of_size:
            self._most -= 1
        return self._most

    def largest(self) -> PlaceHolder:
        """Return the session with the most slots; among several, the one with the first name.

        Raise KeyError if no session holds a slot.
        """
        return min(self._sizes()[self.most], key=lambda holder: holder.name)


_PART = 32
"""Divisor for the number of slots that a session releases at once: one 32nd of the slots above its share.

To release any slot, the session must search all its streams for those with the oldest last event, which is expensive.
If it releases several slots at once, several new streams share this cost.
"""


class CommonsState(msgspec.Struct, omit_defaults=True):
    streams: int = msgspec.field(default=0, name="followed_streams")
    ranges: int = msgspec.field(default=0, name="remembered_gaps")
    forgotten: int = msgspec.field(default=0, name="forgotten_gaps")
    known: int = 0
    """Number of streams that the source has followed so far, including streams that it no longer follows."""
    uncounted_sessions: int = 0
    """Number of open sessions with streams whose events are not counted, because a limit on streams is reached."""
    mixed: bool = False
    """Whether the source ever received a datagram that was not exactly one event."""
    drops: DropsState = msgspec.field(default_factory=DropsState)


class Commons:
    def __init__(
        self, state: CommonsState, forget_first: Callable[[], bool] = lambda: False
    ) -> None:
        """Restore the state that the sessions of a source share.

        `forget_first` drops one session without a connection to release its slots for streams. It returns False if
        there is no such session.
        """
        self.state = state
        self._forget_first = forget_first
        self._shares = Shares()
        self.drops = Drops(state.drops)
        self.packed = 0
        """Number of records that decoders returned as blocks (one column for each field) since the daemon started."""
        self.slow = 0
        """Number of lines of DFTracer and JETS that the decoders had to read one by one since the daemon started."""

    @property
    def alone(self) -> bool:
        """Return whether each datagram that the source ever received held exactly one event, all of the same stream."""
        return self.state.known <= 1 and not self.state.mixed

    def take_up(self, holder: PlaceHolder, streams: int) -> None:
        """Count the slots of a session that was restored with `streams` streams after a restart of the daemon."""
        self._shares.add(holder, streams)

    def add_stream(self, holder: PlaceHolder, most: int, now: int) -> bool:
        """Reserve a slot for one more stream of a session.

        `most` is the source's maximum number of streams. Return False if all slots are taken and none can be released.
        """
        while self.state.streams >= most:
            if not self._make_room(holder, most, now):
                return False
        self.state.known += 1
        self.state.streams += 1
        self._shares.add(holder, 1)
        return True

    def remove_streams(self, holder: PlaceHolder, count: int) -> None:
        """Release the slots of `count` streams of a session."""
        self.state.streams -= count
        self._shares.add(holder, -count)

    def _make_room(self, holder: PlaceHolder, most: int, now: int) -> bool:
        """Release a slot, so that the session `holder` can follow one more stream. Return whether a slot is free now.

        Sessions with more than their share of the slots release slots first. If there are none, a session without a
        connection is dropped, but only if `holder` has no more than its own share.
        """
        shares = self._shares
        held, share = shares.held(holder), shares.share(most, holder)
        surplus = shares.most - max(share, held + 1)
        if surplus > 0:
            shares.largest().free_places(-(-surplus // _PART), now)
            return True
        return held <= share and self._forget_first()
