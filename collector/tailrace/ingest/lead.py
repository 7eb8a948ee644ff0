"""How far a producer's clock is ahead of the collector's, measured by the fastest datagrams.

An event with end `e` arrives at `e - lead` or later, so the event that travelled fastest gives the lead.
The lead then falls by one part in `_DRIFT` of the time that passes, so that it follows a clock of another
speed.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.ingest.state import IncarnationState

_DRIFT = 1000
"""Clocks differ in speed by less than one part in this number."""


class Lead:
    """The lead of one incarnation's clock, whose zero is taken for 0. The incarnation's state has what
    outlives the process."""

    def __init__(self, state: IncarnationState) -> None:
        self._state = state

    def at(self, now: int) -> int | None:
        """Return the lead (ns) at a time (Unix ns), None before the first event."""
        lead = self._state.lead
        return None if lead is None else lead - (now - self._state.lead_at) // _DRIFT

    @property
    def times(self) -> int:
        """Return at how many different times the clock was heard: what came at one time may all have been
        held up together."""
        return self._state.heard_times

    def hear(self, ends: Sequence[int | None], now: int) -> None:
        """Take the ends (ns) of events that arrive now."""
        latest = max((end for end in ends if end is not None), default=None)
        if latest is None:
            return
        if now != self._state.heard_at:
            self._state.heard_at = now
            self._state.heard_times += 1
        before = self.at(now)
        if before is None or latest - now > before:
            self._state.lead, self._state.lead_at = latest - now, now
