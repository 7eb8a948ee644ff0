"""How many rows the gaps of a stream take: one each, up to a bound, then one over a range of numbers.

Within each `reorder_time` the first `gap_rows_max` gaps of a stream are rows of their own. Those that
follow are gathered, by reason, in a row over a range, written when that time has passed: `count` of
the numbers from `seq` to `last` are missing for this reason. Which ones these are can still be told:
those that no row has. Rows of one reason never overlap, so that a healed number belongs to one. What
the client says it discarded always has rows of its own: it may be said later, of any number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from tailrace.config.schema import LedgerConfig
from tailrace.ledger.findings import Finding
from tailrace.model.gap import Reason
from tailrace.model.record import Kind


class Range(msgspec.Struct, array_like=True):
    first: int
    last: int
    count: int
    estimate: bool


class StreamRows(msgspec.Struct):
    """One stream's rows since a time (Unix ns), and by reason what is not written yet."""

    since: int
    written: int = 0
    ranges: dict[str, Range] = {}


class GapRows:
    """What becomes of the findings of one run."""

    def __init__(self, limits: LedgerConfig, state: dict[str, StreamRows]) -> None:
        self.state = state
        self._most = limits.gap_rows_max
        self._window = limits.reorder_time.ns

    @property
    def waiting(self) -> bool:
        """Whether there is something that time alone brings to be written."""
        return any(rows.ranges for rows in self.state.values())

    def awaited(self) -> Iterator[tuple[str, int]]:
        """Yield each stream with gathered gaps, with how many events these lack."""
        for stream, rows in self.state.items():
            if rows.ranges:
                yield stream, sum(gathered.count for gathered in rows.ranges.values())

    def write(self, findings: Iterable[Finding], now: int) -> Iterator[Finding]:
        """What to write now."""
        for finding in findings:
            if finding.seq is None:
                yield finding
            elif finding.kind == Kind.HEAL:
                yield from self._gather(finding.stream, finding.reason)
                yield finding
            else:
                yield from self._gap(finding, finding.seq, now)

    def expire(self, now: int) -> Iterator[Finding]:
        """What has waited long enough."""
        for stream in [s for s, rows in self.state.items() if rows.since + self._window <= now]:
            yield from self._end(stream)

    def close(self) -> Iterator[Finding]:
        """All that has not been written."""
        for stream in list(self.state):
            yield from self._end(stream)

    def _gap(self, gap: Finding, first: int, now: int) -> Iterator[Finding]:
        rows = self.state.get(gap.stream)
        if rows is not None and rows.since + self._window <= now:
            yield from self._end(gap.stream)
            rows = None
        if rows is None:
            rows = self.state[gap.stream] = StreamRows(now)
        last = first + gap.count - 1
        if rows.written < self._most or gap.reason == Reason.SENDER:
            rows.written += 1
            yield gap
            return
        before = rows.ranges.get(gap.reason)
        if before is None:
            rows.ranges[gap.reason] = Range(first, last, gap.count, gap.estimate)
        elif before.last < first:
            before.last = last
            before.count += gap.count
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
