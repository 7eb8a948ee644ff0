"""Decide when a hole (missing numbers that may still arrive) becomes a gap (reported missing numbers), and which
reason the gap gets.

A hole becomes a gap when `reorder_events` later events of its stream have arrived, when `reorder_time` has passed,
when the stream or the source has too many holes, or when the producer's run ends.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Set as AbstractSet
from operator import attrgetter

from tailrace.config.schema import LedgerConfig
from tailrace.ledger.bounds import Commons, Share
from tailrace.ledger.stream import CountersState, SeqRange, StreamCounter, find
from tailrace.model.gap import OF_CLIENTS, Finding, Reason
from tailrace.model.holding import Evicted
from tailrace.model.record import Kind

_NEVER_DUE = 2**63
_first = attrgetter("first")

RANGE_BYTES = 768
"""Memory (bytes) of a range of missing or discarded numbers."""


def parts_of(hole: SeqRange, ranges: list[SeqRange], reason: str) -> list[SeqRange]:
    """Split a hole (a range of missing numbers) at the bounds of the sorted `ranges`. The parts within these ranges get
    the reason `reason`."""
    parts = []
    at = hole.first
    for other in ranges:
        first, last = max(other.first, at), min(other.last, hole.last)
        if first > last:
            continue
        if at < first:
            parts.append(SeqRange(at, first - 1, hole.since, hole.before, hole.reason))
        parts.append(SeqRange(first, last, hole.since, hole.before, reason))
        at = last + 1
    if at <= hole.last:
        parts.append(SeqRange(at, hole.last, hole.since, hole.before, hole.reason))
    return parts


def take(ranges: list[SeqRange], seq: int, stop: int) -> SeqRange | None:
    """Remove the numbers from `seq` to `stop` (exclusive) from the range that contains `seq`. Return the removed
    numbers, or None if no range contains `seq`."""
    at = find(ranges, seq)
    if at is None:
        return None
    hole = ranges[at]
    last = min(hole.last, stop - 1)
    before, taken, behind = (
        SeqRange(first, end, hole.since, hole.before, hole.reason)
        for first, end in ((hole.first, seq - 1), (seq, last), (last + 1, hole.last))
    )
    ranges[at : at + 1] = [part for part in (before, behind) if part.first <= part.last]
    return taken


class Windows:
    """Opens and closes holes (missing numbers that may still arrive) in the streams of one session."""

    what = Evicted.GAPS

    def __init__(self, limits: LedgerConfig, state: CountersState, commons: Commons) -> None:
        self.findings: list[Finding] = []
        self.evicted = 0
        self._state = state
        self._limits = limits
        self._commons = commons
        self._open = {name for name, stream in state.streams.items() if stream.holes}
        self.ranges = sum(stream.ranges for stream in state.streams.values())
        """Number of holes, gaps and discarded ranges that this session remembers."""
        self._due = self._next_due() if self._open else _NEVER_DUE
        """Earliest time (Unix ns) at which `reorder_time` ends for a hole."""

    @property
    def waiting(self) -> bool:
        return bool(self._open)

    def awaited(self) -> Iterator[tuple[str, int]]:
        """Yield each stream with holes, and the number of events in them."""
        for name in sorted(self._open):
            yield name, sum(hole.last - hole.first + 1 for hole in self._state.streams[name].holes)

    def open(self, name: str, stream: StreamCounter, hole: SeqRange) -> None:
        """Add a hole (range of missing numbers), which begins at a stream's next number or ends directly before its
        first number. Numbers that the client discarded get the reason `sender`."""
        parts = parts_of(hole, stream.discarded, Reason.SENDER)
        if hole.first == stream.next:
            stream.holes += parts
            stream.discarded = [d for d in stream.discarded if d.last > hole.last]
            stream.next = hole.last + 1
        else:
            stream.holes[:0] = parts
        self._state.missing += hole.last - hole.first + 1
        self._open.add(name)
        self._due = min(self._due, hole.since + self._limits.reorder_time.ns)

    def fill(self, name: str, stream: StreamCounter, seq: int, stop: int) -> int:
        """Record that the numbers from `seq` to `stop` (exclusive) are not missing, up to the end of the hole or gap
        that contains `seq`. Return how many of them were missing. For the numbers that were reported as missing, add a
        heal, which takes them back."""
        filled = take(stream.holes, seq, stop)
        healed = None if filled else take(stream.gaps, seq, stop)
        found = filled or healed
        if found is None:
            return 0
        count = found.last - found.first + 1
        self._state.missing -= count
        if healed:
            self.findings.append(Finding(Kind.HEAL, name, seq, count, healed.reason))
        return count

    def heard(self, names: Iterable[str], now: int) -> None:
        """Report the holes that are due, after events of the streams `names` have arrived."""
        if now >= self._due:
            self.expire(now)
        elif self._open:
            self.expire(now, self._open.intersection(names))

    def expire(self, now: int, names: AbstractSet[str] | None = None) -> None:
        """Report the holes that are due, of the streams `names` or of all streams. A hole is due if `reorder_events`
        later events of its stream have arrived, or if `reorder_time` has passed."""
        oldest = now - self._limits.reorder_time.ns
        for name in sorted(self._open if names is None else names):
            stream = self._state.streams[name]
            horizon = stream.next - self._limits.reorder_events
            holes, stream.holes = stream.holes, []
            for hole in holes:
                if hole.last < horizon or hole.since <= oldest:
                    self._close(name, stream, hole)
                else:
                    stream.holes.append(hole)
            if not stream.holes:
                self._open.discard(name)
        if names is None:
            self._due = self._next_due()

    def stood_still(self, time: int) -> None:
        """Wait `time` ns longer for late events, because the collector could receive nothing for so long."""
        for stream in self._state.streams.values():
            for missing in (*stream.holes, *stream.gaps):
                missing.since += time
        self._due = self._next_due()

    def close(self) -> None:
        for name in sorted(self._open):
            self.close_stream(name, self._state.streams[name])

    def close_stream(self, name: str, stream: StreamCounter) -> None:
        holes, stream.holes = stream.holes, []
        for hole in holes:
            self._close(name, stream, hole)
        self._open.discard(name)

    def forget(self) -> None:
        """Forget all holes, because all streams were removed from the session."""
        self._open.clear()
        self._due = _NEVER_DUE

    def _next_due(self) -> int:
        streams = self._state.streams
        since = (hole.since for name in self._open for hole in streams[name].holes)
        return min(since, default=_NEVER_DUE) + self._limits.reorder_time.ns

    def _close(self, name: str, stream: StreamCounter, hole: SeqRange) -> None:
        """Report a hole as one gap, or as two: first the events that the kernel dropped, then the others."""
        self.count(-1 - len(stream.gaps))
        share, commons = Share(0), self._commons
        if hole.reason == Reason.NETWORK:
            share = commons.drops.explain(
                hole.last - hole.first + 1, hole.before, hole.since,
                seen=self._state.seen, datagrams=self._state.datagrams, alone=commons.alone,
            )  # fmt: skip
        kernel = hole.first + share.events
        gaps = (hole.first, kernel - 1, Reason.KERNEL), (kernel, hole.last, hole.reason)
        for first, last, reason in gaps:
            count = last - first + 1
            if count:
                self.findings.append(
                    Finding(Kind.GAP, name, first, count, reason, estimate=share.estimate)
                )
                # Do not join adjacent gaps, because each remembered gap must correspond to one row of the table.
                gap = SeqRange(first, last, hole.since, hole.before, reason)
                insort(stream.gaps, gap, key=_first)
        while len(stream.gaps) > self._limits.holes_max:
            self.forget_gap(stream)
        self.count(len(stream.gaps))

    def count(self, more: int) -> None:
        """Add `more`, which may be negative, to the numbers of holes, gaps and discarded ranges that the session and
        the source remember."""
        self.ranges += more
        self._commons.state.ranges += more

    @property
    def held(self) -> int:
        return RANGE_BYTES * self.ranges

    def give_way(self, size: int) -> None:
        """Free `size` bytes: report holes as gaps, and forget gaps. Begin with the streams without recent events."""
        goal = max(0, self.held - size)
        for name, stream in sorted(self._state.streams.items(), key=lambda each: each[1].heard):
            while stream.ranges and self.held > goal:
                self._give_up(name, stream)
            if not stream.holes:
                self._open.discard(name)
            if self.held <= goal:
                break

    def _give_up(self, name: str, stream: StreamCounter) -> None:
        if stream.holes and not stream.gaps:
            self._close(name, stream, stream.holes.pop(0))
        if stream.gaps:
            self.forget_gap(stream)
        else:
            stream.discarded.pop()
        self.count(-1)
        self.evicted += 1

    def keep_bounds(self, name: str, stream: StreamCounter) -> None:
        """Enforce the limits on missing numbers after a stream has changed: report its oldest holes as gaps, forget its
        oldest gaps, and drop ranges while the source has too many."""
        commons = self._commons.state
        while len(stream.holes) > self._limits.holes_max:
            self._close(name, stream, stream.holes.pop(0))
        while len(stream.gaps) > self._limits.holes_max:
            self.count(-1)
            self.forget_gap(stream)
        while commons.ranges > self._limits.source_holes_max and stream.ranges > 1:
            if stream.discarded:
                stream.discarded.pop()
                self.count(-1)
                continue
            if not stream.gaps:
                self._close(name, stream, stream.holes.pop(0))
            self.count(-1)
            self.forget_gap(stream)

    def forget_gap(self, stream: StreamCounter) -> None:
        """Forget the gap (reported missing numbers) with the lowest numbers. Late events can no longer take it back."""
        gap = stream.gaps.pop(0)
        stream.floor = max(stream.floor, gap.last + 1)
        if gap.reason not in OF_CLIENTS:
            stream.given_up += gap.last - gap.first + 1
        self._commons.state.forgotten += 1
