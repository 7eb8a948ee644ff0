"""Hold the state that a source's sessions share: limits on streams and missing ranges, and counts of dropped
datagrams.

All sessions of a source together check the sequence numbers of at most `source_streams_max` streams. If a session
needs one more, the session with the most streams gives some up, provided that it has more than an equal share.

The kernel counts the datagrams that it dropped at a socket, but not by sender. A drop may explain missing numbers (a
hole) if it happened between the stream's last event before the hole and the datagrams that revealed the hole. This
is an estimate, unless the source has a single stream and one event per datagram, and only one hole fits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

_SAMPLES_MAX = 256


class Sample(msgspec.Struct, array_like=True):
    """Datagrams that the kernel dropped between the times `since` and `until` (Unix ns). `count` is the number of these
    datagrams that do not yet explain any missing events. If `shared` is true, it is uncertain which missing events
    these datagrams explain."""

    since: int
    until: int
    count: int
    shared: bool = False


class DropsState(msgspec.Struct, omit_defaults=True):
    samples: list[Sample] = []
    """Intervals with dropped datagrams that are not yet the stated cause of any missing events, oldest first."""
    dropped: int = 0
    assigned: int = 0
    socket: int = 0
    """The kernel's identifier of the socket with the last recorded drop count."""
    total: int = 0


class Share(NamedTuple):
    events: int
    estimate: bool = False


class Drops:
    """Assigns the datagrams that the kernel dropped for one source to holes (missing event numbers), as their cause."""

    def __init__(self, state: DropsState) -> None:
        self.state = state

    @property
    def unassigned(self) -> int:
        return self.state.dropped - self.state.assigned

    def add(self, since: int, until: int, count: int) -> None:
        """Add `count` datagrams that the kernel dropped between `since` and `until` (Unix ns)."""
        samples = self.state.samples
        samples.append(Sample(since, until, count))
        self.state.dropped += count
        if len(samples) > _SAMPLES_MAX:
            first, second = samples[:2]
            count = first.count + second.count
            samples[:2] = [Sample(first.since, second.until, count, shared=True)]

    def tell(self, socket: int, total: int) -> None:
        """Record the total drop count of a socket. The caller has already passed all of these drops to `add`."""
        self.state.socket, self.state.total = socket, total

    def told(self, socket: int) -> int:
        """Return the last recorded drop count of a socket; 0 if it belongs to another socket."""
        return self.state.total if socket == self.state.socket else 0

    def explain(
        self, events: int, since: int, until: int, *, seen: int, datagrams: int, alone: bool
    ) -> Share:
        """Return how many of `events` events, lost between `since` and `until` (Unix ns), were in dropped datagrams. No
        later call counts the same datagrams as the cause of another loss.

        `seen` events in `datagrams` datagrams give the average number of events per datagram. `alone` states that
        each datagram of the source held one event of the same stream.
        """
        if not self.state.samples:
            return Share(0)
        packed = seen > datagrams > 0
        wanted = -(-events * datagrams // seen) if packed else events
        # The dropped datagrams certainly belong to this loss if it takes all drops of all samples that overlap it in
        # time, and no other loss may explain drops of these samples (`shared`).
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
        count = events * taken // wanted
        return Share(count, estimate=count > 0 and not (alone and sure))


class PlaceHolder(Protocol):
    """A session that checks the sequence numbers of streams, and can stop checking some of these streams."""

    @property
    def name(self) -> str:
        """Return the session's name, unique within the source."""
        ...

    def free_places(self, count: int, now: int) -> None:
        """Stop checking the sequence numbers of `count` streams: those without an event for the longest time."""
        ...


class Shares:
    """Counts, for each session of a source, the streams whose sequence numbers the session checks."""

    def __init__(self) -> None:
        self._held: dict[PlaceHolder, int] = {}
        self._of_size: dict[int, set[PlaceHolder]] | None = None
        """Sessions by their number of streams. None until the source first reaches `source_streams_max`."""
        self._most = 0

    def add(self, holder: PlaceHolder, count: int) -> None:
        """Add `count`, which may be negative, to the number of a session's streams."""
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
        return self._held.get(holder, 0)

    def share(self, places: int, newcomer: PlaceHolder) -> int:
        """Return how many streams each session may check if all sessions, with `newcomer`, share `places` streams
        equally."""
        return places // (len(self._held) + (newcomer not in self._held))

    @property
    def most(self) -> int:
        """Return the largest number of streams that a single session checks."""
        of_size = self._sizes()
        while self._most and self._most not in of_size:
            self._most -= 1
        return self._most

    def largest(self) -> PlaceHolder:
        """Return the session with the most streams; among several, the one with the first name."""
        # Compare names, because a restart of the daemon changes the order of the sessions.
        return min(self._sizes()[self.most], key=lambda holder: holder.name)


_PART = 32
"""Divisor for the number of streams that a session gives up at a time, out of all those that it must give up. Giving up
one stream at a time would be slow: each search for the oldest streams examines all streams."""


class CommonsState(msgspec.Struct, omit_defaults=True):
    streams: int = msgspec.field(default=0, name="followed_streams")
    ranges: int = msgspec.field(default=0, name="remembered_gaps")
    forgotten: int = msgspec.field(default=0, name="forgotten_gaps")
    known: int = 0
    """Number of streams whose sequence numbers the source has ever checked, including streams that it no longer
    checks."""
    uncounted_sessions: int = 0
    """Number of open sessions with streams whose sequence numbers are not checked because of a limit."""
    mixed: bool = False
    """Whether the source ever received a datagram that was not exactly one event."""
    drops: DropsState = msgspec.field(default_factory=DropsState)


class Commons:
    def __init__(
        self, state: CommonsState, forget_first: Callable[[], bool] = lambda: False
    ) -> None:
        """Restore the shared state. `forget_first` is a function that drops one session without a connection, or
        returns False if there is none."""
        self.state = state
        self._forget_first = forget_first
        self.shares = Shares()
        self.drops = Drops(state.drops)
        self.packed = 0
        """Number of records that decoders returned as blocks of columns since the daemon started."""
        self.slow = 0
        """Number of DFTracer and JETS lines that the decoders had to read one by one since the daemon started."""

    @property
    def alone(self) -> bool:
        """Return whether each datagram of the source held exactly one event, all of the same stream."""
        return self.state.known <= 1 and not self.state.mixed

    def add_stream(self, holder: PlaceHolder, most: int, now: int) -> bool:
        """Count one more stream of the session `holder`. While the source has reached its maximum `most`, let the session
        with the most streams give some up if it has more than an equal share. Otherwise drop a session without a
        connection, provided that `holder` has at most an equal share. Return False if there is no room."""
        shares = self.shares
        while self.state.streams >= most:
            held, share = shares.held(holder), shares.share(most, holder)
            surplus = shares.most - max(share, held + 1)
            if surplus > 0:
                shares.largest().free_places(-(-surplus // _PART), now)
            elif held > share or not self._forget_first():
                return False
        self.state.known += 1
        self.state.streams += 1
        shares.add(holder, 1)
        return True

    def remove_streams(self, holder: PlaceHolder, count: int) -> None:
        self.state.streams -= count
        self.shares.add(holder, -count)
