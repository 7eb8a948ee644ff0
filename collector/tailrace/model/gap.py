"""Define why events are missing (`Reason`), how losses are reported (`Finding`) and how events are counted."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec


class Reason(StrEnum):
    """Why events are missing."""

    NETWORK = "network"  # the producer's counters or totals show a loss that nothing else explains
    KERNEL = "kernel"  # a socket's receive buffer overflowed; the operating system counted the loss
    SENDER = "sender"  # the client reports that it discarded the events
    ELSEWHERE = "elsewhere"  # the client reports that another collector has acknowledged the events
    SHED = "shed"  # the collector dropped the events because of a configured limit
    MALFORMED = "malformed"  # the bytes arrived but are unreadable; the quarantine holds them
    TRUNCATED = "truncated"  # a record or a stream lacks its end
    UNRESOLVED = "unresolved"  # a record refers to a record that was never seen
    LATE_JOIN = "late_join"  # the first events of a stream or file are not there
    # the collector had no room to follow the stream's event numbers; any event of the stream may be missing
    UNCOUNTED = "uncounted"
    DAMAGED = "damaged"  # the events were in the table, in a data file that is damaged


BECAUSE = {
    Reason.NETWORK: "numbers or totals have holes",
    Reason.KERNEL: "the kernel dropped datagrams",
    Reason.SENDER: "the client discarded events",
    Reason.ELSEWHERE: "another collector has the events",
    Reason.SHED: "a limit was exceeded",
    Reason.MALFORMED: "bytes cannot be read",
    Reason.TRUNCATED: "the end is missing",
    Reason.UNRESOLVED: "names, methods or parents are referred to but are not in the files",
    Reason.LATE_JOIN: "the beginning may be missing",
    Reason.UNCOUNTED: "there are too many streams to follow",
    Reason.DAMAGED: "the store is damaged",
}
"""For each reason, a phrase for users that follows "because"."""

FOUND = tuple(reason for reason in Reason if reason is not Reason.DAMAGED)
"""Reasons of gaps that the ingest finds: all except `DAMAGED`. A daemon finds gaps with this reason when it starts or
cleans up the table."""

OF_CLIENTS = frozenset({Reason.SENDER, Reason.ELSEWHERE})
"""Reasons that clients report for events that they no longer have. The collector does not request these events
again."""

DAMAGED_SESSION = "damaged"
"""Session name of a gap for the events of a damaged data file, because the file does not show their sessions."""


class Finding(NamedTuple):
    """Events of a stream that are missing (kind `gap`), or that arrived after they were reported as missing (kind
    `heal`)."""

    kind: str
    stream: str
    seq: int | None  # Number of the first event; None if the producer does not number events.
    events: int
    reason: str  # A `Reason`; a heal has that of the gap that it takes back.
    id: int | None = None  # Id of the missing record, if known.
    of: str | None = None  # Kind of the missing records, such as begin; None if unknown.
    # Word for the observation that shows the loss, such as `no_end` for a missing end.
    detail: str | None = None
    # Position of the loss in the session's bytes; None for the end of the decoded bytes.
    offset: int | None = None
    # Last missing number, if events between the first and the last missing one have arrived; otherwise None.
    last: int | None = None
    estimate: bool = False  # Whether `events` is an estimate.


class Account(msgspec.Struct):
    """Counts of the events of a session or source. They satisfy the equation expected = seen + missing - duplicates."""

    expected: int = msgspec.field(default=0, name="expected_events")
    seen: int = msgspec.field(default=0, name="seen_events")
    missing: int = msgspec.field(default=0, name="missing_events")
    duplicates: int = msgspec.field(default=0, name="duplicate_events")
    # Events of streams beyond the limits `streams_max` and `source_streams_max`. Losses in these streams stay unknown.
    uncounted: int = msgspec.field(default=0, name="uncounted_events")

    @property
    def imbalance(self) -> int:
        return self.expected - (self.seen + self.missing - self.duplicates)

    def add(self, other: Account) -> None:
        self.expected += other.expected
        self.seen += other.seen
        self.missing += other.missing
        self.duplicates += other.duplicates
        self.uncounted += other.uncounted
