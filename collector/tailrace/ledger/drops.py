"""Assigns datagrams that the kernel dropped at a socket to the holes in its peers' counters.

The kernel counts drops exactly and does not say whose they were. Each datagram carries the count as it was when the
datagram was queued, so a source knows between which datagrams the count grew, however long they wait in the queue. A
source hands datagrams on in parts: all datagrams of a part, and drops among them, have one time in the log; drops
before the part have an earlier time. A drop may explain a hole if it lies behind the datagrams with which the stream
was last heard, or among them, and not behind those that showed the hole. Each drop explains one hole at most; the
oldest drops are used first.

The assignment is exact for one stream with one event a datagram, if only one hole can explain the
drops. Otherwise it is an estimate, and so is the number of events in a dropped datagram: the
session's average. Drops that no hole uses (events not missed yet, packets without a counter, garbage)
stay `unassigned`.

Memory: `_SAMPLES_MAX` counts; beyond that, neighbouring counts are merged.
"""

from __future__ import annotations

from typing import NamedTuple

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
