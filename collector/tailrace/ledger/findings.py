"""Define the findings of a ledger, and select which findings get a row of their own in the table.

A finding reports missing events (a gap), or events that arrived after they were reported missing (a heal).

In each period of `reorder_time`, the first `gap_rows_max` gaps of a stream get one row each. At the end of the period,
later gaps are written as one row for each reason. Such a row has the first number `seq`, the last number `last` and the
number `events` of missing numbers between them. Rows with the same reason never overlap, so that a number that arrives
later belongs to exactly one row. Numbers that the client discarded always get a row for each gap, because the client
may give the reason of any number later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from tailrace.config.schema import LedgerConfig
from tailrace.model.gap import OF_CLIENTS
from tailrace.model.record import Kind


class Finding(NamedTuple):
    """A finding: `events` events of `stream` are missing (kind `gap`), or arrived after they were reported missing
    (kind `heal`).

    `seq` is the number of the first event. It is None for a producer without sequence numbers; `id` may then identify
    the missing record. `reason` is a `model.gap.Reason`. The reason of a heal is that of the gap.
    """

    kind: str
    stream: str
    seq: int | None
    events: int
    reason: str
    id: int | None = None
    of: str | None = None
    """Kind of the missing records (such as begin, instant or annotation); None if unknown."""
    detail: str | None = None
    """Name of the evidence that shows the loss, such as a term of the format's specification."""
    offset: int | None = None
    """Offset of the loss in the session's bytes; None for the offset at which the session is now."""
    last: int | None = None
    """Last number of a gap in which not every number is missing.

    `events` of the numbers from `seq` to `last` are missing. None if all numbers from `seq` on are missing.
    """
    estimate: bool = False
    """Whether it is estimated how many of the missing events have this reason."""


class Account(msgspec.Struct):
    """Numbers of events of a session or source, with the law expected = seen + missing - duplicates."""

    expected: int = msgspec.field(default=0, name="expected_events")
    seen: int = msgspec.field(default=0, name="seen_events")
    missing: int = msgspec.field(default=0, name="missing_events")
    duplicates: int = msgspec.field(default=0, name="duplicate_events")
    uncounted: int = msgspec.field(default=0, name="uncounted_events")
    """Number of received events of streams for which a limit leaves no slot. Losses in these streams cannot be
    detected."""

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
    """Number of gap rows that were written for a stream since `since` (Unix ns), the start of its current period of
    `reorder_time`.

    Later gaps of the period are kept here, merged into one per reason.
    """

    since: int
    written: int = 0
    ranges: dict[str, RowRange] = {}


class GapRows:
    """Selects which findings of one incarnation (producer run) get a row of their own, and merges the other gaps."""

    def __init__(self, limits: LedgerConfig, state: dict[str, StreamRows]) -> None:
        self.state = state
        self._most = limits.gap_rows_max
        self._window = limits.reorder_time.ns

    @property
    def waiting(self) -> bool:
        """Return whether merged gaps exist that have not been written as rows, because their period is not over."""
        return bool(self.state) and any(rows.ranges for rows in self.state.values())

    def awaited(self) -> Iterator[tuple[str, int]]:
        """Yield each stream with merged gaps that have not been written as rows, and the number of events that these
        gaps report as missing.
        """
        for stream, rows in self.state.items():
            if rows.ranges:
                yield stream, sum(gathered.count for gathered in rows.ranges.values())

    def write(self, findings: Iterable[Finding], now: int) -> Iterator[Finding]:
        """Yield the findings that must be written as rows now: heals, the first `gap_rows_max` gaps of each period, and
        merged gaps whose period is over.
        """
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
        """Yield all merged gaps whose period of `reorder_time` is over at time `now`."""
        for stream in [s for s, rows in self.state.items() if rows.since + self._window <= now]:
            yield from self._end(stream)

    def close(self) -> Iterator[Finding]:
        """Yield all merged gaps that have not been written as rows."""
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
