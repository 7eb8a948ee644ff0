"""Hold the state that a source's sessions share: limits on streams and missing ranges, and counts of dropped datagrams.

**Limits.** A session follows a stream if it checks the stream's sequence numbers. All sessions of a source together
follow at most `source_streams_max` streams. A session's share is this maximum divided by the number of sessions that
follow any stream. If the maximum is reached and a session needs one more stream, the session with the most streams
stops following some, provided that it has more than its share. So a new session gets its share beside a session with
very many streams. If several sessions have the most streams, the first name decides, because a restart of the daemon
changes the order of sessions.

Two counts show what the limits cost: `uncounted` events of streams that are not followed (in each session's account),
and `forgotten` gaps that can no longer heal.

**Drops.** The operating system's kernel counts the dropped datagrams of a socket, but does not identify their senders.
Each received datagram carries the count at the time when it was queued. A source passes datagrams on in groups; the log
has one time for a group, and an earlier time for the drops before it.

A drop may explain missing numbers (a hole) if it happened between the stream's last event before the hole and the group
that revealed the hole. Each drop explains at most one hole, and the oldest drops are used first. This is exact if the
source has a single stream with one event per datagram, and only one hole fits the drops. Otherwise it is an estimate
from the session's average number of events per datagram.

Drops that explain no hole stay `unassigned`: for example packets without a counter, garbage, or events whose loss is
not noticed yet. The source remembers at most `_SAMPLES_MAX` intervals with drops. If there are more, it merges the two
oldest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

_SAMPLES_MAX = 256


class Sample(msgspec.Struct, array_like=True):
    """Datagrams that the operating system's kernel dropped between the times `since` and `until` (Unix ns).

    `count` is the number of those that explain no missing events yet. If `shared` is true, the missing events that they
    explain later are an estimate: other datagrams of the interval already explain missing events, or two intervals were
    merged."""

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
        """Return how many of `events` lost events were in datagrams that the operating system's kernel dropped. These
        datagrams are used up and explain no further loss.

        The events were lost between `since` and `until` (Unix ns). The session has received `seen` events in
        `datagrams` datagrams, which gives the estimated number of events per dropped datagram. `alone` states that all
        datagrams of the source held one event each, all of the same stream, so that each dropped datagram is one event
        of this stream."""
        if not self.state.samples:
            return Share(0)
        packed = seen > datagrams > 0
        wanted = -(-events * datagrams // seen) if packed else events
        taken, sure = self._take(wanted, since, until)
        count = events * taken // wanted
        return Share(count, estimate=count > 0 and not (alone and sure))

    def _take(self, wanted: int, since: int, until: int) -> tuple[int, bool]:
        """Assign up to `wanted` dropped datagrams to a loss between `since` and `until` (Unix ns). Take them from each
        `Sample` that overlaps this time.

        Return the number of assigned datagrams, and whether they certainly caused the loss. This is certain if these
        samples have no datagram left, and none of them is `shared`."""
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
    """A session that checks the sequence numbers of streams, and can stop checking those of some streams."""

    @property
    def name(self) -> str:
        """Return the session's name, unique within the source."""
        ...

    def free_places(self, count: int, now: int) -> None:
        """Stop checking the sequence numbers of `count` streams, so that other sessions can check more streams.

        Begin with the streams that have had no event for the longest time. The ledger does not count their later
        events."""
        ...


class Shares:
    """Counts, for each session of a source, the streams whose sequence numbers the session checks. `source_streams_max`
    limits the number of these streams in all sessions together."""

    def __init__(self) -> None:
        self._held: dict[PlaceHolder, int] = {}
        self._of_size: dict[int, set[PlaceHolder]] | None = None
        """Sessions by the number of streams whose sequence numbers they check. None until the source first reaches
        `source_streams_max`, because few sources ever do.
        """
        self._most = 0

    def add(self, holder: PlaceHolder, count: int) -> None:
        """Add `count`, which may be negative, to the number of streams whose sequence numbers a session checks."""
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
        """Return the number of streams whose sequence numbers a session checks."""
        return self._held.get(holder, 0)

    def share(self, places: int, newcomer: PlaceHolder) -> int:
        """Return the number of streams whose sequence numbers each session may check if all sessions, including
        `newcomer`, share `places` streams equally.
        """
        return places // (len(self._held) + (newcomer not in self._held))

    @property
    def most(self) -> int:
        """Return the largest number of streams whose sequence numbers a single session checks."""
        of_size = self._sizes()
        while self._most and self._most not in of_size:
            self._most -= 1
        return self._most

    def largest(self) -> PlaceHolder:
        """Return the session that checks the sequence numbers of the most streams; among several, the one with the
        first name.

        Raise KeyError if no session checks any stream.
        """
        return min(self._sizes()[self.most], key=lambda holder: holder.name)


_PART = 32
"""Divisor that determines how many streams a session stops checking at once: the number of its streams above its share
(see `Shares.share`), divided by this value.

To find the streams with the oldest last event, the session must search all its streams. If it stops checking several at
once, it searches less often."""


class CommonsState(msgspec.Struct, omit_defaults=True):
    streams: int = msgspec.field(default=0, name="followed_streams")
    ranges: int = msgspec.field(default=0, name="remembered_gaps")
    forgotten: int = msgspec.field(default=0, name="forgotten_gaps")
    known: int = 0
    """Number of streams whose sequence numbers the source has checked so far, even if it no longer does."""
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

        `forget_first` drops one session without a connection, so that other sessions can check more streams. It returns
        False if there is no such session."""
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
        """Count the `streams` streams whose sequence numbers a session still checks after a restart of the daemon."""
        self._shares.add(holder, streams)

    def add_stream(self, holder: PlaceHolder, most: int, now: int) -> bool:
        """Count one more stream whose sequence numbers a session checks.

        `most` is the source's maximum number of such streams. Return False if it is reached and no other session can
        stop checking one."""
        while self.state.streams >= most:
            if not self._make_room(holder, most, now):
                return False
        self.state.known += 1
        self.state.streams += 1
        self._shares.add(holder, 1)
        return True

    def remove_streams(self, holder: PlaceHolder, count: int) -> None:
        """Record that a session no longer checks the sequence numbers of `count` of its streams."""
        self.state.streams -= count
        self._shares.add(holder, -count)

    def _make_room(self, holder: PlaceHolder, most: int, now: int) -> bool:
        """Let another session stop checking some streams, so that the session `holder` can check one more. Return
        whether this succeeded.

        The session with the most streams stops checking some, if it has more than its share (see `Shares.share`).
        Otherwise drop a session without a connection, if `holder` has no more than its own share."""
        shares = self._shares
        held, share = shares.held(holder), shares.share(most, holder)
        surplus = shares.most - max(share, held + 1)
        if surplus > 0:
            shares.largest().free_places(-(-surplus // _PART), now)
            return True
        return held <= share and self._forget_first()
