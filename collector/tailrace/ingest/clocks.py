"""The producers' clocks: how fast each goes, and how far it is ahead of the collector's.

Nothing here reads a clock: the caller states when events came.

- `Paces` measures how fast the clocks of sessions go, against wall time, over the last minute. For each `STEP` of
  arrival time in which events came, a session keeps the latest tick and the time of the last events. At most `most`
  sessions are followed. A session keeps its place until it is silent. Paces are no part of the ingest's state: after a
  restart they are measured anew.
- `Lead` is how far an incarnation's clock is ahead, measured by the fastest datagrams. An event with end `e` arrives at
  `e - lead` or later, so the event that travelled fastest gives the lead. The lead then falls by one part in `_DRIFT`
  of the time that passes, so that it follows a clock of another speed. The next incarnation at an address takes the
  lead over, because both share a clock.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from enum import StrEnum
from itertools import islice
from math import inf

from tailrace.ingest.state import IncarnationState

WINDOW = 60 * 10**9
"""Nanoseconds over which a pace is measured, and after which a session is silent or stalled."""

STEP = 5 * 10**9

RECENT = 3
"""Steps whose ticks an event must exceed for the clock to advance: the streams of a session may be
behind one another, and a nonsense tick must not hold for long."""


class Progress(StrEnum):
    ADVANCING = "advancing"
    STALLED = "stalled"
    """Events come, but for a minute none has been later than those before."""
    SILENT = "silent"
    """No event came for a minute."""


class Pace:
    """The pace of one session's clock. Times are Unix ns of arrival."""

    __slots__ = ("_bar", "_steps", "advanced", "heard", "source", "ticks_per_second")

    def __init__(self, source: str) -> None:
        self.source = source
        self.ticks_per_second: float | None = None
        """Ticks in a simulated second, if known."""
        self.heard = 0
        """When the last events came."""
        self.advanced = 0
        """When events last exceeded the ticks of the RECENT last steps."""
        self._steps: deque[tuple[int, int]] = deque()
        """For each step, when its last events came, and its latest tick."""
        self._bar: float = -inf
        """The latest tick of the RECENT last steps."""

    def add(self, now: int, tick: int) -> None:
        """Take note that events came, the latest at this tick."""
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
        """Return the pace within the window: 0 if the clock stands or was set back, None before two
        steps."""
        (begun, first), (heard, last) = self._steps[0], self._steps[-1]
        return max(0, last - first) * 1e9 / (heard - begun) if heard > begun else None

    @property
    def slowdown(self) -> float | None:
        """Return wall seconds per simulated second; None if one of them is unknown."""
        pace = self.ticks_per_wall_second
        return self.ticks_per_second / pace if pace and self.ticks_per_second else None


class Paces:
    """The paces of all sessions."""

    def __init__(self, most: int = 1000) -> None:
        self._most = most
        self._followed: OrderedDict[str, Pace] = OrderedDict()
        """By the session's name; the session that has been silent longest is first."""
        self._others: dict[str, str] = {}
        """Open sessions for which there was no place, with their sources."""

    def take(
        self,
        source: str,
        session: str,
        tick: int | None,
        ticks_per_second: float | None,
        now: int,
    ) -> None:
        """Take the latest tick of records of a session, None if they have none."""
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
        """Follow at most `most` sessions from now on. Drop those that have been silent longest."""
        self._most = most
        while len(self._followed) > most:
            session, pace = self._followed.popitem(last=False)
            self._others[session] = pace.source

    def over(self, session: str) -> None:
        """Drop a session that is over."""
        self._followed.pop(session, None)
        self._others.pop(session, None)

    def of(self, source: str) -> dict[str, Pace]:
        return {name: pace for name, pace in self._followed.items() if pace.source == source}

    def unfollowed(self, source: str) -> int:
        return sum(of == source for of in self._others.values())

    def _make_room(self, now: int) -> bool:
        """Return whether there is a place for one more session. Drop silent sessions for it."""
        followed = self._followed
        while len(followed) >= self._most:
            first = next(iter(followed), None)
            if first is None or followed[first].progress(now) != Progress.SILENT:
                return False
            self._others[first] = followed.pop(first).source
        return True


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
