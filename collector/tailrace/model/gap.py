"""Define why events are missing (`Reason`), how missing and late events are reported (`Finding`), and how events are
counted (`Account`). The table, the metrics and the documentation use the same words."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec


class Reason(StrEnum):
    NETWORK = "network"
    """The producer's counters or totals show missing events that nothing else explains."""
    KERNEL = "kernel"
    """The receive buffer of a socket overflowed, and the operating system's kernel counted the dropped datagrams."""
    SENDER = "sender"
    """The client reports that it discarded the events."""
    ELSEWHERE = "elsewhere"
    """The client reports that another collector has acknowledged the events."""
    SHED = "shed"
    """The collector dropped the events because of a configured limit."""
    MALFORMED = "malformed"
    """The bytes arrived but are unreadable; the quarantine holds the bytes."""
    TRUNCATED = "truncated"
    """The end is missing: a record or a stream was cut off."""
    UNRESOLVED = "unresolved"
    """A record refers to a record that was never seen."""
    LATE_JOIN = "late_join"
    """The producer's counter was above zero when the collector first saw the stream."""
    UNCOUNTED = "uncounted"
    """The collector has no room to follow the stream's numbers, so any of its events may be missing."""
    DAMAGED = "damaged"
    """The events were in the table, but the data file that contained their rows is damaged."""


FOUND = tuple(reason for reason in Reason if reason is not Reason.DAMAGED)
"""Reasons of gaps that the ingest finds and counts.

DAMAGED is left out: damaged data files are found when the daemon starts or cleans the table up, and the condition
`damage` reports them."""

OF_CLIENTS = frozenset({Reason.SENDER, Reason.ELSEWHERE})
"""Reasons that a client reports for missing events.

The client no longer has these events, so the collector does not ask the client to send them again.
"""

DAMAGED_SESSION = "damaged"
"""Session name of a gap caused by a damaged data file.

The file does not show to which session its events belonged, so they may belong to any session of the source.
"""


class Finding(NamedTuple):
    """A report that events of `stream` are missing (kind `gap`), or arrived after they were reported missing (kind
    `heal`). `events` is their number.

    `seq` is the number of the first event. It is None for a producer without sequence numbers; `id` may then identify
    the missing record. The `reason` of a heal is the reason of the gap that it takes back."""

    kind: str
    stream: str
    seq: int | None
    events: int
    reason: str
    id: int | None = None
    of: str | None = None
    """Kind of the missing records (such as begin, instant or annotation); None if unknown."""
    detail: str | None = None
    """Word for the observation that shows the loss, such as `no_end` if a stream has no end."""
    offset: int | None = None
    """Offset of the loss in the session's bytes; None stands for the end of the bytes that the session has decoded so
    far."""
    last: int | None = None
    """Last missing number of a gap that covers numbers that are not missing: `events` of the numbers from `seq` to
    `last` are missing. None if the gap has only missing numbers, from `seq` to `seq` + `events` - 1."""
    estimate: bool = False
    """Whether the number of missing events with this reason is an estimate."""


class Account(msgspec.Struct):
    """Numbers of events of a session or source, with the law expected = seen + missing - duplicates."""

    expected: int = msgspec.field(default=0, name="expected_events")
    seen: int = msgspec.field(default=0, name="seen_events")
    missing: int = msgspec.field(default=0, name="missing_events")
    duplicates: int = msgspec.field(default=0, name="duplicate_events")
    uncounted: int = msgspec.field(default=0, name="uncounted_events")
    """Number of received events of streams whose numbers are not checked, because `streams_max` or `source_streams_max`
    is reached. Losses in these streams cannot be detected."""

    @property
    def imbalance(self) -> int:
        return self.expected - (self.seen + self.missing - self.duplicates)

    def add(self, other: Account) -> None:
        self.expected += other.expected
        self.seen += other.seen
        self.missing += other.missing
        self.duplicates += other.duplicates
        self.uncounted += other.uncounted
