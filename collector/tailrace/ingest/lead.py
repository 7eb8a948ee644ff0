"""How far a producer's clock is ahead of the collector's, measured by the fastest datagrams.

An event with end `e` arrives at `e - lead` or later, so the event that travelled fastest gives the lead.
The lead then falls by one part in `_DRIFT` of the time that passes, so that it follows a clock of another
speed. The next incarnation at an address takes the lead over, because both share a clock.
"""

from __future__ import annotations

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

    def go_on(self, earlier: Lead, apart: int, now: int, most: int) -> None:
        """Take over the lead of an earlier incarnation, whose zero was so long (ns) before this one's. Do nothing
        if this incarnation's first words, which come now, are then late by more than `most` (ns): somebody may
        have set the clock."""
        known = earlier.at(now)
        if known is None or known - apart + now > most:
            return
        state, before = self._state, earlier._state
        state.lead, state.lead_at = known - apart, now
        state.heard_at, state.heard_times = before.heard_at, before.heard_times

    def hear(self, latest: int | None, now: int) -> None:
        """Take the latest end (ns) of events that arrive now, None if they have none."""
        if latest is None:
            return
        if now != self._state.heard_at:
            self._state.heard_at = now
            self._state.heard_times += 1
        before = self.at(now)
        if before is None or latest - now > before:
            self._state.lead, self._state.lead_at = latest - now, now
