"""Define the reasons why events are missing. The table, the metrics and the documentation use the same words."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    NETWORK = "network"
    """The producer's counters or totals show a hole that nothing else explains."""
    KERNEL = "kernel"
    """The socket's receive buffer overflowed; the kernel counted the drops."""
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
    """The events were stored, but their data file is damaged."""


FOUND = tuple(reason for reason in Reason if reason is not Reason.DAMAGED)
"""Reasons that the ingest finds and counts. Damage is found in the table instead, at a start and by upkeep: the
condition `damage` reports damage, not the ingest's counters."""

OF_CLIENTS = frozenset({Reason.SENDER, Reason.ELSEWHERE})
"""Reasons that clients report. The client no longer has these events, so the collector does not request them."""

DAMAGED_SESSION = "damaged"
"""Session name of a gap whose events may belong to any session of the source, because the damaged file did not identify
the session."""
