"""Measure the producers' clocks: their speed, and their lead over the collector's clock.

This module reads no clock: the caller states when events arrived.

- `Paces` measures the speed of the sessions' clocks against wall time, over the last minute. For each `STEP` of arrival
  time with events, a session keeps the latest tick and the time of the last events. At most `most` sessions are
  followed. A session keeps its place until it is silent. Paces are not part of the ingest's state: after a restart they
  are measured anew.
- `Lead` is the lead of an incarnation's clock, measured by the fastest datagrams. An event with end `e` arrives at `e -
  lead` or later, so the fastest event determines the lead. The lead then falls by one part in `_DRIFT` of the elapsed
  time, so that it follows a clock of a different speed. The next incarnation at an address inherits the lead, because
  both incarnations share a clock.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from enum import StrEnum
from itertools import islice
from math import inf

from tailrace.ingest.state import IncarnationState

WINDOW = 60 * 10**9
"""Duration (ns) over which a pace is measured, and after which a session counts as silent or stalled."""

STEP = 5 * 10**9

RECENT = 3
"""Number of recent steps whose ticks an event must exceed to advance the clock. The streams of a session may lag behind
one another, and a nonsensical tick must not block progress for long."""


class Progress(StrEnum):
    ADVANCING = "advancing"
    STALLED = "stalled"
    """Events arrive, but for a minute no event has been later than its predecessors."""
    SILENT = "silent"
    """No event arrived for a minute."""


class Pace:
    """Measures the pace of one session's clock. Times are arrival times (Unix ns)."""

    __slots__ = ("_bar", "_steps", "advanced", "heard", "source", "ticks_per_second")

    def __init__(self, source: str) -> None:
        self.source = source
        self.ticks_per_second: float | None = None
        """Ticks per simulated second, if known."""
        self.heard = 0
        """Time of the last events."""
        self.advanced = 0
        """Time at which an event last exceeded the ticks of the last RECENT steps."""
        self._steps: deque[tuple[int, int]] = deque()
        """Time of the last events and the latest tick, for each step."""
        self._bar: float = -inf
        """Latest tick of the last RECENT steps."""

    def add(self, now: int, tick: int) -> None:
        """Record that events arrived; `tick` is the latest tick among them."""
        steps = self._steps
        goes_on = bool(steps) and self.heard // STEP == now // STEP
        if not goes_on:
            self._bar = max((latest for _, latest in islice(reversed(steps), RECENT)), default=-inf)
        if tick > self._bar:
            self._bar, self.advanced = tick, now
        self.heard = now
        if goes_on:
            steps[-1] = (now, max(tick, steps[-1][1]))
            return
        steps.append((now, tick))
        # The window begins at the first step that is kept.
        while len(steps) > 2 and steps[1][0] <= now - WINDOW:
            steps.popleft()

    @property
    def reached(self) -> int:
        """Return the latest tick of the last step."""
        return self._steps[-1][1]

    def progress(self, now: int) -> Progress:
        if self.heard < now - WINDOW:
            return Progress.SILENT
        return Progress.STALLED if self.advanced <= self.heard - WINDOW else Progress.ADVANCING

    @property
    def ticks_per_wall_second(self) -> float | None:
        """Return the pace within the window: 0 if the clock stands still or was set back; None before the second step."""
        (begun, first), (heard, last) = self._steps[0], self._steps[-1]
        return max(0, last - first) * 1e9 / (heard - begun) if heard > begun else None

    @property
    def slowdown(self) -> float | None:
        """Return wall seconds per simulated second; None if either rate is unknown."""
        pace = self.ticks_per_wall_second
        return self.ticks_per_second / pace if pace and self.ticks_per_second else None


class Paces:
    """Measures the paces of all sessions."""

    def __init__(self, most: int = 1000) -> None:
        self._most = most
        self._followed: OrderedDict[str, Pace] = OrderedDict()
        """Pace by session name, longest silent session first."""
        self._others: dict[str, str] = {}
        """Sources of the open sessions without a place, by session name."""

    def take(
        self,
        source: str,
        session: str,
        tick: int | None,
        ticks_per_second: float | None,
        now: int,
    ) -> None:
        """Record the latest tick of a session's records; None if the records have no ticks."""
        if tick is None:
            return
        pace = self._followed.get(session)
        if pace is None:
            if not self._make_room(now):
                self._others[session] = source
                return
            self._others.pop(session, None)
            pace = self._followed[session] = Pace(source)
        self._followed.move_to_end(session)
        pace.ticks_per_second = ticks_per_second
        pace.add(now, tick)

    def limit(self, most: int) -> None:
        """Set the maximum number of followed sessions. Drop the longest silent sessions beyond this number."""
        self._most = most
        while len(self._followed) > most:
            session, pace = self._followed.popitem(last=False)
            self._others[session] = pace.source

    def over(self, session: str) -> None:
        """Drop a finished session."""
        self._followed.pop(session, None)
        self._others.pop(session, None)

    def of(self, source: str) -> dict[str, Pace]:
        return {name: pace for name, pace in self._followed.items() if pace.source == source}

    def unfollowed(self, source: str) -> int:
        return sum(of == source for of in self._others.values())

    def _make_room(self, now: int) -> bool:
        """Return whether there is a place for one more session. Drop silent sessions if necessary."""
        followed = self._followed
        while len(followed) >= self._most:
            first = next(iter(followed), None)
            if first is None or followed[first].progress(now) != Progress.SILENT:
                return False
            self._others[first] = followed.pop(first).source
        return True


_DRIFT = 1000
"""Clock speeds are assumed to differ by less than one part in this number."""


class Lead:
    """Measures the lead of one incarnation's clock, with the clock's zero taken as 0. The incarnation's state holds
    everything that outlives the process."""

    def __init__(self, state: IncarnationState) -> None:
        self._state = state

    def at(self, now: int) -> int | None:
        """Return the lead (ns) at a time (Unix ns); None before the first event."""
        lead = self._state.lead
        return None if lead is None else lead - (now - self._state.lead_at) // _DRIFT

    @property
    def times(self) -> int:
        """Return the number of distinct arrival times at which the clock was observed. Events with one arrival time may
        all have been delayed together."""
        return self._state.heard_times

    def go_on(self, earlier: Lead, apart: int, now: int, most: int) -> None:
        """Take over the lead of an earlier incarnation, whose zero was `apart` nanoseconds before this incarnation's
        zero.

        Do nothing if the first records of this incarnation, which arrive now, would then be late by more than `most`
        nanoseconds: the clock may have been set."""
        known = earlier.at(now)
        if known is None or known - apart + now > most:
            return
        state, before = self._state, earlier._state
        state.lead, state.lead_at = known - apart, now
        state.heard_at, state.heard_times = before.heard_at, before.heard_times

    def hear(self, latest: int | None, now: int) -> None:
        """Record the latest end (ns) of events that arrive now; None if the events have no end."""
        if latest is None:
            return
        if now != self._state.heard_at:
            self._state.heard_at = now
            self._state.heard_times += 1
        before = self.at(now)
        if before is None or latest - now > before:
            self._state.lead, self._state.lead_at = latest - now, now
