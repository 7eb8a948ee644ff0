"""How far a producer's clock is ahead of the collector's, as the fastest datagrams tell.

An event with end `e` arrives at `e - lead` or later. The event that travelled fastest tells the lead.
The lead then falls by one part in `_DRIFT` of the time that passes, so that it follows a clock whose
speed differs.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.ingest.state import IncarnationState

_DRIFT = 1000
"""Clocks differ by less than one part in so many."""


class Lead:
    """The clock of one incarnation, its zero taken for 0. What outlives the process is in the incarnation's state."""

    def __init__(self, state: IncarnationState) -> None:
        self._state = state

    def at(self, now: int) -> int | None:
        """Return the lead (ns) at a time (Unix ns), None before the first event."""
        lead = self._state.lead
        return None if lead is None else lead - (now - self._state.lead_at) // _DRIFT

    def hear(self, ends: Sequence[int | None], now: int) -> None:
        """Take the ends (ns) of events that arrive."""
        latest = max((end for end in ends if end is not None), default=None)
        if latest is None:
            return
        before = self.at(now)
        if before is None or latest - now > before:
            self._state.lead, self._state.lead_at = latest - now, now
