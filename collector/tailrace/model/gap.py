"""Why events are missing: a closed set, the same words in the table, metric labels and docs."""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    NETWORK = "network"
    """A hole in the producer's counters or totals that nothing else explains."""
    KERNEL = "kernel"
    """The socket's receive buffer overflowed; the kernel counted it."""
    SENDER = "sender"
    """The client says that it discarded them."""
    SHED = "shed"
    """We chose to, under a configured limit."""
    MALFORMED = "malformed"
    """The bytes are here but cannot be read; they are in the quarantine."""
    TRUNCATED = "truncated"
    """The tail is missing: a record was cut off."""
    UNRESOLVED = "unresolved"
    """A record refers to one that was never seen."""
    LATE_JOIN = "late_join"
    """The producer's counter stood above zero when we first saw the stream."""
    UNCOUNTED = "uncounted"
    """The collector does not follow the stream's numbers, for want of room: it may lack any number."""
    DAMAGED = "damaged"
    """They were stored, and the file that they were in is damaged."""


FOUND = tuple(reason for reason in Reason if reason is not Reason.DAMAGED)
"""Reasons that the ingest finds, and counts. Damage is found in the table, by a start and by upkeep:
the condition `damage` tells of it, and no counter of the ingest's."""

DAMAGED_SESSION = "damaged"
"""The session of a gap that may be of any session of its source: a damaged file did not say which."""
