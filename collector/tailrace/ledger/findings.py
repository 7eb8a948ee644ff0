"""What a ledger has to say: events missing, and missing events that came after all."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Finding(NamedTuple):
    """`count` events of `stream`, from `seq` on, are missing (`gap`) or repay a gap (`heal`).

    `seq` is None where the producer has no counter; then `id` may name the missing record.
    `reason` is a `model.gap.Reason`; a heal has the reason of the gap it repays.
    """

    kind: str
    stream: str
    seq: int | None
    count: int  # type: ignore[assignment] # how many; nobody counts in a finding
    reason: str
    id: int | None = None
    of: str | None = None
    """The kind of the missing records (begin, instant, annotation), where it is known."""
    detail: str | None = None
    """How it is known, in the format's own word."""
    offset: int | None = None
    """Where in the session's bytes; None for where they are now."""
    last: int | None = None
    """Of a gap over a range: `count` of the numbers from `seq` to `last` are missing, others not."""
    estimate: bool = False
    """Whether the reason is that of about so many."""


class Account(msgspec.Struct):
    """Events by what became of them: expected = seen + missing - duplicates."""

    expected: int = msgspec.field(default=0, name="expected_events")
    seen: int = msgspec.field(default=0, name="seen_events")
    missing: int = msgspec.field(default=0, name="missing_events")
    duplicates: int = msgspec.field(default=0, name="duplicate_events")
    uncounted: int = msgspec.field(default=0, name="uncounted_events")
    """Among those seen: of streams past a limit, of which it is not known what is missing."""

    @property
    def imbalance(self) -> int:
        return self.expected - (self.seen + self.missing - self.duplicates)

    def add(self, other: Account) -> None:
        self.expected += other.expected
        self.seen += other.seen
        self.missing += other.missing
        self.duplicates += other.duplicates
        self.uncounted += other.uncounted
