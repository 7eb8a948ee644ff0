"""Findings of a ledger, missing events and missing events that came after all, and which of them get rows of their own.

Within each `reorder_time` the first `gap_rows_max` gaps of a stream get rows of their own. Later
gaps are gathered by reason into a row over a range, written when the time has passed: `count` of
the numbers from `seq` to `last` are missing for this reason, namely those that no other row has.
Rows of one reason never overlap, so that a healed number belongs to one row. Numbers that
the client discarded always get rows of their own, because the client may report any number later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from tailrace.config.schema import LedgerConfig
from tailrace.model.gap import OF_CLIENTS
from tailrace.model.record import Kind


class Finding(NamedTuple):
    """So many events of `stream`, from `seq` on, are missing (`gap`) or repay a gap (`heal`).

    `seq` is None where the producer has no counter; then `id` may name the missing record.
    `reason` is a `model.gap.Reason`; a heal has the reason of the gap it repays.
    """

    kind: str
    stream: str
    seq: int | None
    events: int
    reason: str
    id: int | None = None
    of: str | None = None
    """The kind of the missing records (begin, instant, annotation), if known."""
    detail: str | None = None
    """How the loss is known, in the format's own word."""
    offset: int | None = None
    """Offset in the session's bytes; None for the present offset."""
    last: int | None = None
    """The last number of a gap over a range: `events` of the numbers from `seq` to `last` are missing."""
    estimate: bool = False
    """Whether the number of events with this reason is an estimate."""


class Account(msgspec.Struct):
    """Events by fate: expected = seen + missing - duplicates."""

    expected: int = msgspec.field(default=0, name="expected_events")
    seen: int = msgspec.field(default=0, name="seen_events")
    missing: int = msgspec.field(default=0, name="missing_events")
    duplicates: int = msgspec.field(default=0, name="duplicate_events")
    uncounted: int = msgspec.field(default=0, name="uncounted_events")
    """Seen events of streams that are not followed, whose losses are unknown."""

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
    """The rows of one stream since a time (Unix ns), and the gathered gaps by reason."""

    since: int
    written: int = 0
    ranges: dict[str, RowRange] = {}


class GapRows:
    """Turns the findings of one incarnation into those that get rows."""

    def __init__(self, limits: LedgerConfig, state: dict[str, StreamRows]) -> None:
        self.state = state
        self._most = limits.gap_rows_max
        self._window = limits.reorder_time.ns

    @property
    def waiting(self) -> bool:
        """Return whether gathered gaps wait for their time."""
        return bool(self.state) and any(rows.ranges for rows in self.state.values())

    def awaited(self) -> Iterator[tuple[str, int]]:
        """Yield each stream with gathered gaps, with how many events these lack."""
        for stream, rows in self.state.items():
            if rows.ranges:
                yield stream, sum(gathered.count for gathered in rows.ranges.values())

    def write(self, findings: Iterable[Finding], now: int) -> Iterator[Finding]:
        """Yield the findings to write now."""
        for finding in findings:
            if finding.seq is None:
                yield finding
            elif finding.kind == Kind.HEAL:
                yield from self._gather(finding.stream, finding.reason)
                yield finding
            else:
                yield from self._gap(finding, finding.seq, now)

    def expire(self, now: int) -> Iterator[Finding]:
        """Yield the gathered gaps whose time has passed."""
        for stream in [s for s, rows in self.state.items() if rows.since + self._window <= now]:
            yield from self._end(stream)

    def close(self) -> Iterator[Finding]:
        """Yield all gathered gaps."""
        for stream in list(self.state):
            yield from self._end(stream)

    def _gap(self, gap: Finding, first: int, now: int) -> Iterator[Finding]:
        rows = self.state.get(gap.stream)
        if rows is not None and rows.since + self._window <= now:
            yield from self._end(gap.stream)
            rows = None
        if rows is None:
            rows = self.state[gap.stream] = StreamRows(now)
        last = first + gap.events - 1 if gap.last is None else gap.last
        if rows.written < self._most or gap.reason in OF_CLIENTS:
            rows.written += 1
            yield gap
            return
        before = rows.ranges.get(gap.reason)
        if before is None:
            rows.ranges[gap.reason] = RowRange(first, last, gap.events, gap.estimate)
        elif before.last < first:
            before.last = last
            before.count += gap.events
            before.estimate |= gap.estimate
        else:
            yield gap

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
