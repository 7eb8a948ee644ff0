"""Datagrams that the kernel dropped at a socket, set against the holes in its peers' counters.

The kernel counts drops exactly and does not say whose they were. Each count that a source takes
covers the time since its count before; in between, so many datagrams of its peers were dropped. A
hole may be one of their doing when they were dropped after the stream was last heard of and before
the event that showed the hole. Each drop is taken by one hole at most, the oldest drops first.

That is exact where there is one stream, each datagram holds one event, and one hole alone can have
taken the drops. Otherwise which hole takes which drop is an estimate, and so is how many events a
dropped datagram held: as many as the session's datagrams hold on average. Drops that no hole takes (events still to be missed, packets without a
counter, garbage) remain `unassigned`.

Memory: `_SAMPLES_MAX` counts; beyond that neighbours become one over both their times.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

_SAMPLES_MAX = 256

_DRAIN_NS = 100 * 10**6
"""A count is logged before the datagrams that were read together with it, by less than this."""


class Sample(msgspec.Struct, array_like=True):
    """`count` datagrams were dropped from `since` to `until` (Unix ns) and no hole has taken them.
    `shared` says that others were, too, which a hole has taken."""

    since: int
    until: int
    count: int
    shared: bool = False


class DropsState(msgspec.Struct, omit_defaults=True):
    samples: list[Sample] = []
    """Those with drops that no hole has taken, oldest first."""
    dropped: int = 0
    assigned: int = 0
    socket: int = 0
    """At which the last of them were counted."""
    total: int = 0
    """The kernel's count there then."""


class Share(NamedTuple):
    """How many of a hole's events were dropped here, and whether that is an estimate."""

    events: int
    estimate: bool = False


class Drops:
    """The kernel's drops at one source."""

    def __init__(self, state: DropsState) -> None:
        self.state = state

    @property
    def unassigned(self) -> int:
        return self.state.dropped - self.state.assigned

    def add(self, since: int, until: int, count: int) -> None:
        """`count` more were dropped."""
        samples = self.state.samples
        samples.append(Sample(since, until, count))
        self.state.dropped += count
        if len(samples) > _SAMPLES_MAX:
            first, second = samples[:2]
            count = first.count + second.count
            samples[:2] = [Sample(first.since, second.until, count, shared=True)]

    def tell(self, socket: int, total: int) -> None:
        """The kernel's count at a socket, all of which has been added."""
        self.state.socket, self.state.total = socket, total

    def told(self, socket: int) -> int:
        """The kernel's count at a socket as it was last told."""
        return self.state.total if socket == self.state.socket else 0

    def explain(
        self, events: int, since: int, until: int, *, seen: int, datagrams: int, alone: bool
    ) -> Share:
        """How many of `events` missing between two times were dropped; these drops are taken.

        `seen` events came in `datagrams` before. `alone` says that no other stream and no other
        kind of datagram can have been dropped."""
        if not self.state.samples:
            return Share(0)
        packed = seen > datagrams > 0
        wanted = -(-events * datagrams // seen) if packed else events
        taken, sure = self._take(wanted, since, until)
        count = events * taken // wanted
        return Share(count, estimate=count > 0 and not (alone and sure))

    def _take(self, wanted: int, since: int, until: int) -> tuple[int, bool]:
        """Take up to `wanted` drops whose time overlaps that of a hole; give how many, and whether
        these are all and nothing else can have taken them."""
        taken, sure = 0, True
        for sample in self.state.samples:
            if sample.since > until:
                break
            if sample.until + _DRAIN_NS < since:
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
