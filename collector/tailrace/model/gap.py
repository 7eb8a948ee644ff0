"""Define the reasons why events are missing. The table, the metrics and the documentation use the same words."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    NETWORK = "network"
    """The producer's counters or totals show a hole that nothing else explains."""
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

Only DAMAGED is left out. A start, or an upkeep (merges and clean-up of the table), finds damaged data files in the
table and reports them as the condition `damage`.
"""

OF_CLIENTS = frozenset({Reason.SENDER, Reason.ELSEWHERE})
"""Reasons that clients state for gaps.

A client no longer has such events, so the collector does not ask the client to send them again.
"""

DAMAGED_SESSION = "damaged"
"""Session name of a gap caused by a damaged data file.

The file does not show to which session its events belonged, so they may belong to any session of the source.
"""
