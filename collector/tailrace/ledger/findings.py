"""Findings of a ledger: missing events, and missing events that came after all."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


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
