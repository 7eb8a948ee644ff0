"""Define findings of a ledger, and select the findings that get rows of their own. A finding reports missing events, or
missing events that arrived later.

In each period of `reorder_time`, the first `gap_rows_max` gaps of a stream get rows of their own. Later gaps of the
period are merged by reason into one row over a range, which is written at the end of the period. A row over a range
states that `count` numbers between `seq` and `last` are missing for one reason, apart from numbers in other rows. Rows
with the same reason never overlap, so that a healed number belongs to one row. Numbers that the client discarded always
get rows of their own, because the client may report any number later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from tailrace.config.schema import LedgerConfig
from tailrace.model.gap import OF_CLIENTS
from tailrace.model.record import Kind


class Finding(NamedTuple):
    """States that `events` events of `stream`, from number `seq` on, are missing (`gap`) or arrived after their gap
    (`heal`).

    `seq` is None for a producer without a counter; then `id` may identify the missing record. `reason` is a
    `model.gap.Reason`. A heal has the reason of the healed gap."""

    kind: str
    stream: str
    seq: int | None
    events: int
    reason: str
    id: int | None = None
    of: str | None = None
    """Kind of the missing records (begin, instant, annotation), if known."""
    detail: str | None = None
    """Evidence of the loss, as a term of the format."""
    offset: int | None = None
    """Offset in the session's bytes; None for the current offset."""
    last: int | None = None
    """Last number of a gap over a range: `events` of the numbers from `seq` to `last` are missing."""
    estimate: bool = False
    """Whether the number of events with this reason is an estimate."""


class Account(msgspec.Struct):
    """Counts of events by outcome: expected = seen + missing - duplicates."""

    expected: int = msgspec.field(default=0, name="expected_events")
    seen: int = msgspec.field(default=0, name="seen_events")
    missing: int = msgspec.field(default=0, name="missing_events")
    duplicates: int = msgspec.field(default=0, name="duplicate_events")
    uncounted: int = msgspec.field(default=0, name="uncounted_events")
    """Number of received events in unfollowed streams, whose losses cannot be detected."""

    @property
    def imbalance(self) -> int:
        return self.expected - (self.seen + self.missing - self.duplicates)

    def add(self, other: Account) -> None:
        self.expected += other.expected
        self.seen += other.seen
        self.missing += other.missing
        self.duplicates += other.duplicates
        self.uncounted += other.uncounted


class RowRange(msgspec.Struct, array_like=True):
    first: int
    last: int
    count: int
    estimate: bool


class StreamRows(msgspec.Struct):
    """Number of gap rows of one stream since a time (Unix ns), and the merged gaps by reason."""

    since: int
    written: int = 0
    ranges: dict[str, RowRange] = {}


class GapRows:
    """Selects the findings of one incarnation that get rows."""

    def __init__(self, limits: LedgerConfig, state: dict[str, StreamRows]) -> None:
        self.state = state
        self._most = limits.gap_rows_max
        self._window = limits.reorder_time.ns

    @property
    def waiting(self) -> bool:
        """Return whether merged gaps wait for the end of their period."""
        return bool(self.state) and any(rows.ranges for rows in self.state.values())

    def awaited(self) -> Iterator[tuple[str, int]]:
        """Yield each stream with merged gaps, and the number of events missing in these gaps."""
        for stream, rows in self.state.items():
            if rows.ranges:
                yield stream, sum(gathered.count for gathered in rows.ranges.values())

    def write(self, findings: Iterable[Finding], now: int) -> Iterator[Finding]:
        """Yield the findings that need a row now."""
        for finding in findings:
            stream, first, reason = finding.stream, finding.seq, finding.reason
            if first is None:
                yield finding
                continue
            if finding.kind == Kind.HEAL:
                yield from self._gather(stream, reason)
                yield finding
                continue
            rows = self.state.get(stream)
            if rows is not None and rows.since + self._window <= now:
                yield from self._end(stream)
                rows = None
            if rows is None:
                rows = self.state[stream] = StreamRows(now)
            last = first + finding.events - 1 if finding.last is None else finding.last
            before = rows.ranges.get(reason)
            if rows.written < self._most or reason in OF_CLIENTS:
                rows.written += 1
                yield finding
            elif before is None:
                rows.ranges[reason] = RowRange(first, last, finding.events, finding.estimate)
            elif before.last < first:
                before.last = last
                before.count += finding.events
                before.estimate |= finding.estimate
            else:
                yield finding

    def expire(self, now: int) -> Iterator[Finding]:
        """Yield the merged gaps whose period is over."""
        for stream in [s for s, rows in self.state.items() if rows.since + self._window <= now]:
            yield from self._end(stream)

    def close(self) -> Iterator[Finding]:
        """Yield all merged gaps."""
        for stream in list(self.state):
            yield from self._end(stream)

    def _end(self, stream: str) -> Iterator[Finding]:
        for reason in list(self.state[stream].ranges):
            yield from self._gather(stream, reason)
        del self.state[stream]

    def _gather(self, stream: str, reason: str) -> Iterator[Finding]:
        rows = self.state.get(stream)
        gathered = rows.ranges.pop(reason, None) if rows else None
        if gathered:
            first, last, count, estimate = msgspec.structs.astuple(gathered)
            partly = None if count == last - first + 1 else last
            yield Finding(Kind.GAP, stream, first, count, reason, last=partly, estimate=estimate)
