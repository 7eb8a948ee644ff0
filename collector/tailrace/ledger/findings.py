"""What a ledger has to say: events missing, and missing events that came after all."""

from __future__ import annotations

from typing import NamedTuple


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
