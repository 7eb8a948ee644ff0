"""Decide when a hole (missing numbers that may still arrive) becomes a gap (missing numbers that are reported), and
which reason the gap gets.

A hole becomes a gap when `reorder_events` later events of its stream have arrived, when `reorder_time` has passed, when
the session has too many holes, or when the producer's run ends."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Set as AbstractSet
from operator import attrgetter

from tailrace.config.schema import LedgerConfig
from tailrace.ledger.bounds import Commons, Share
from tailrace.ledger.stream import CountersState, SeqRange, StreamCounter, find
from tailrace.model.gap import Finding, Reason
from tailrace.model.holding import Evicted
from tailrace.model.record import Kind

_NEVER_DUE = 2**63
_first = attrgetter("first")

RANGE_BYTES = 768
"""Memory (bytes) of a range of missing or discarded numbers (a hole, a gap or a range that the client discarded)."""


def _heard(named: tuple[str, StreamCounter]) -> int:
    return named[1].heard


def parts_of(hole: SeqRange, ranges: list[SeqRange], reason: str) -> list[SeqRange]:
    """Split a hole (a range of missing numbers) at the sorted `ranges`, and return the parts in order.

    Parts that lie in one of the ranges get the reason `reason`."""
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
    """Remove the numbers from `seq` to `stop` (exclusive) from the range that contains `seq`.

    Return the removed numbers as a range, or None if no range contains `seq`.
    """
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
        self._open: set[str] = set()
        self.ranges = 0
        """Number of ranges of event numbers that this session remembers: holes (missing numbers that may still arrive),
        gaps (missing numbers that were reported) and numbers that the client discarded. It is part of the source's
        total."""
        for name, stream in state.streams.items():
            self.ranges += stream.ranges
            if stream.holes:
                self._open.add(name)
        self._due = self._next_due() if self._open else _NEVER_DUE
        """Earliest time (Unix ns) at which `reorder_time` ends for a hole (missing numbers that may still arrive)."""

    @property
    def waiting(self) -> bool:
        """Return whether the session has holes (missing numbers that may still arrive), so that the passing of time
        alone may close one."""
        return bool(self._open)

    def awaited(self) -> Iterator[tuple[str, int]]:
        """Yield the name of each stream with holes (missing numbers that may still arrive), and the number of events
        that are missing in these holes."""
        for name in sorted(self._open):
            yield name, sum(hole.last - hole.first + 1 for hole in self._state.streams[name].holes)

    def open(self, name: str, stream: StreamCounter, hole: SeqRange) -> None:
        """Add a hole to a stream: its numbers are missing, but may still arrive. Numbers that the client reported as
        discarded get the reason `sender`.

        If the hole begins at the stream's next number, the next number moves behind the hole. Otherwise, the hole must
        end directly before the stream's first number."""
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
        """Record that the numbers from `seq` to `stop` (exclusive) are no longer missing, up to the end of the hole or
        gap that contains `seq`. Return how many of them were missing; 0 if `seq` is not missing.

        For a gap (reported numbers), append a heal, which takes these numbers back, to the findings."""
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
        """Report holes (missing numbers that may still arrive) as gaps if they have waited long enough at the time
        `now`.

        Call this method after events of the streams `names` have arrived."""
        if now >= self._due:
            self.expire(now)
        elif self._open:
            self.expire(now, self._open.intersection(names))

    def expire(self, now: int, names: AbstractSet[str] | None = None) -> None:
        """Close the holes (ranges of missing numbers) of the streams `names` that are due at the time `now`; None
        stands for all streams.

        A hole is due when `reorder_events` later events of its stream have arrived, or `reorder_time` has passed."""
        oldest = now - self._limits.reorder_time.ns
        for name in sorted(self._open if names is None else names):
            stream = self._state.streams[name]
            horizon = stream.next - self._limits.reorder_events
            ripe = [h for h in stream.holes if h.last < horizon or h.since <= oldest]
            if ripe:
                stream.holes = [
                    h for h in stream.holes if not (h.last < horizon or h.since <= oldest)
                ]
                for hole in ripe:
                    self._close(name, stream, hole)
            if not stream.holes:
                self._open.discard(name)
        if names is None:
            self._due = self._next_due()

    def stood_still(self, time: int) -> None:
        """Extend the time for late events by `time` ns, because the collector could receive nothing for so long. To do
        this, move the start of all holes and gaps (`since`) by `time`."""
        for stream in self._state.streams.values():
            for missing in (*stream.holes, *stream.gaps):
                missing.since += time
        self._due = self._next_due()

    def close(self) -> None:
        """Close the holes (missing numbers that may still arrive) of all streams of the session."""
        for name in sorted(self._open):
            self.close_stream(name, self._state.streams[name])

    def close_stream(self, name: str, stream: StreamCounter) -> None:
        """Close all holes (missing numbers that may still arrive) of one stream."""
        holes, stream.holes = stream.holes, []
        for hole in holes:
            self._close(name, stream, hole)
        self._open.discard(name)

    def forget(self) -> None:
        """Forget which streams have holes (missing numbers that may still arrive), because all streams were removed
        from the session."""
        self._open.clear()
        self._due = _NEVER_DUE

    def _next_due(self) -> int:
        streams = self._state.streams
        since = (hole.since for name in self._open for hole in streams[name].holes)
        return min(since, default=_NEVER_DUE) + self._limits.reorder_time.ns

    def _close(self, name: str, stream: StreamCounter, hole: SeqRange) -> None:
        """Report a hole (missing numbers) as one gap, or as two: first the events that the operating system's kernel
        dropped, then the others."""
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
                # Do not join gaps that are adjacent, because each remembered gap must correspond to one row of the
                # table.
                gap = SeqRange(first, last, hole.since, hole.before, reason)
                insort(stream.gaps, gap, key=_first)
        while len(stream.gaps) > self._limits.holes_max:
            self._forget_gap(stream)
        self.count(len(stream.gaps))

    def count(self, more: int) -> None:
        """Add `more`, which may be negative, to this session's `ranges` and to the source's number of ranges."""
        self.ranges += more
        self._commons.state.ranges += more

    @property
    def held(self) -> int:
        return RANGE_BYTES * self.ranges

    def give_way(self, size: int) -> None:
        """Free `size` bytes: report holes (missing numbers that may still arrive) as gaps, and forget gaps.

        Begin with the streams that have had no event for the longest time."""
        goal = max(0, self.held - size)
        for name, stream in sorted(self._state.streams.items(), key=_heard):
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
            self._forget_gap(stream)
        else:
            stream.discarded.pop()
        self.count(-1)
        self.evicted += 1

    def keep_bounds(self, name: str, stream: StreamCounter) -> None:
        """Enforce the limits on the ranges of missing numbers, after a stream has changed. A hole has numbers that may
        still arrive, and a gap has numbers that were reported.

        If the stream has too many holes, report the oldest as gaps. If it has too many gaps, forget the oldest. If the
        source has too many holes, gaps and ranges of discarded numbers, drop some of this stream's."""
        commons = self._commons.state
        while len(stream.holes) > self._limits.holes_max:
            self._close(name, stream, stream.holes.pop(0))
        while len(stream.gaps) > self._limits.holes_max:
            self.count(-1)
            self._forget_gap(stream)
        while commons.ranges > self._limits.source_holes_max and stream.ranges > 1:
            if stream.discarded:
                stream.discarded.pop()
                self.count(-1)
                continue
            if not stream.gaps:
                self._close(name, stream, stream.holes.pop(0))
            self.count(-1)
            self._forget_gap(stream)

    def _forget_gap(self, stream: StreamCounter) -> None:
        stream.forget_gap()
        self._commons.state.forgotten += 1
