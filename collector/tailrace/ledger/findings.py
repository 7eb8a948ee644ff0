"""Define the findings of a ledger, and the account of its events."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


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
