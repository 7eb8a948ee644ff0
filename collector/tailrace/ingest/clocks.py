"""Measure the producers' clocks: their speed, and the time by which they are ahead of the collector's clock.

`Paces` measures the speed of each session's clock against wall time, over the last minute. A restart of the daemon
discards these measurements. `Lead` is the time by which a producer's clock is ahead. An event that ends at the time `e`
of this clock arrives at `e - lead` or later, so the event with the shortest delay determines the lead.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from enum import StrEnum
from itertools import islice
from math import inf

from tailrace.ingest.state import IncarnationState

WINDOW = 60 * 10**9
"""Duration (ns) over which the speed of a clock is measured, and after which a session counts as silent."""

STEP = 5 * 10**9

RECENT = 3
"""Number of earlier intervals (of `STEP` ns) with which a new event is compared: the producer's clock advances if the
event has a later time than all events in these intervals. One interval is too few, because the streams of a session may
lag behind one another. With more intervals, one event with a wrong time would block the measurement for longer."""


class Progress(StrEnum):
    ADVANCING = "advancing"
    STALLED = "stalled"
    """The clock stands still: events arrive, but during the last `WINDOW` ns no event had a later time than all events
    before it."""
    SILENT = "silent"


class Pace:
    """Measures the speed of one session's clock against wall time. Arrival times are Unix ns."""

    __slots__ = ("_bar", "_steps", "advanced", "heard", "source", "ticks_per_second")

    def __init__(self, source: str) -> None:
        self.source = source
        self.ticks_per_second: float | None = None
        """Ticks per simulated second, if known."""
        self.heard = 0
        self.advanced = 0
        """Arrival time of the last event whose time was later than all recent event times (see `RECENT`)."""
        self._steps: deque[tuple[int, int]] = deque()
        """Time of the last arrival, and latest event time (ticks), of each interval of `STEP` ns, oldest first."""
        self._bar: float = -inf
        """Latest event time (ticks) in the present interval of `STEP` ns and the `RECENT` intervals before."""

    def add(self, now: int, tick: int) -> None:
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
        # Remove intervals older than `WINDOW`, except the newest such interval, at which the measurement begins.
        while len(steps) > 2 and steps[1][0] <= now - WINDOW:
            steps.popleft()

    @property
    def reached(self) -> int:
        """Return the latest event time (ticks) in the newest interval of `STEP` ns in which events arrived."""
        return self._steps[-1][1]

    def progress(self, now: int) -> Progress:
        if self.heard < now - WINDOW:
            return Progress.SILENT
        return Progress.STALLED if self.advanced <= self.heard - WINDOW else Progress.ADVANCING

    @property
    def ticks_per_wall_second(self) -> float | None:
        """Return the clock's speed over the last minute, in ticks per second of wall time; 0 if it stands still or
        was set back. Return None until events have arrived in two intervals of `STEP` ns."""
        (begun, first), (heard, last) = self._steps[0], self._steps[-1]
        return max(0, last - first) * 1e9 / (heard - begun) if heard > begun else None

    @property
    def slowdown(self) -> float | None:
        """Return how many seconds of wall time one simulated second takes; None if unknown."""
        pace = self.ticks_per_wall_second
        return self.ticks_per_second / pace if pace and self.ticks_per_second else None


class Paces:
    """Measures the speeds of all sessions' clocks."""

    def __init__(self, most: int = 1000) -> None:
        self._most = most
        self._followed: OrderedDict[str, Pace] = OrderedDict()
        """Measured clock speed of each session, by session name. The session that has been silent longest is first."""
        self._others: dict[str, str] = {}
        """For each open session that is not measured because `_most` sessions are measured already: its source, by
        session name."""

    def take(
        self, source: str, session: str, tick: int | None, ticks_per_second: float | None, now: int
    ) -> None:
        if tick is None:
            return
        followed = self._followed
        pace = followed.get(session)
        if pace is None:
            # Stop measuring silent sessions if necessary.
            while len(followed) >= self._most:
                first = next(iter(followed), None)
                if first is None or followed[first].progress(now) != Progress.SILENT:
                    self._others[session] = source
                    return
                self._others[first] = followed.pop(first).source
            self._others.pop(session, None)
            pace = followed[session] = Pace(source)
        followed.move_to_end(session)
        pace.ticks_per_second = ticks_per_second
        pace.add(now, tick)

    def limit(self, most: int) -> None:
        """Set the maximum number of measured sessions. Drop the sessions that have been silent longest."""
        self._most = most
        while len(self._followed) > most:
            session, pace = self._followed.popitem(last=False)
            self._others[session] = pace.source

    def over(self, session: str) -> None:
        self._followed.pop(session, None)
        self._others.pop(session, None)

    def of(self, source: str) -> dict[str, Pace]:
        return {name: pace for name, pace in self._followed.items() if pace.source == source}

    def unfollowed(self, source: str) -> int:
        return sum(of == source for of in self._others.values())


_DRIFT = 1000
"""Bound on the drift of clocks: two clocks are assumed to drift apart by less than 1 ns within this number of ns."""


class Lead:
    """Measures the lead of a producer's clock: its time (ns since its zero) minus the collector's (Unix ns)."""

    def __init__(self, state: IncarnationState) -> None:
        self._state = state

    def at(self, now: int) -> int | None:
        """Return the lead (ns) at a time (Unix ns), minus the possible drift of the clocks since the measurement; None
        if unknown."""
        lead = self._state.lead
        return None if lead is None else lead - (now - self._state.lead_at) // _DRIFT

    def go_on(self, earlier: Lead, apart: int, now: int, most: int) -> None:
        """Take over the measured lead of an earlier incarnation (producer run) on the host. `apart` is the time (ns)
        between the zeros of the two clocks. Do nothing if records that arrive now would then have a delay above
        `most` ns: somebody may have set the clock."""
        known = earlier.at(now)
        if known is None or known - apart + now > most:
            return
        state, before = self._state, earlier._state
        state.lead, state.lead_at = known - apart, now
        state.heard_at, state.heard_times = before.heard_at, before.heard_times

    def hear(self, latest: int | None, now: int) -> None:
        """Update the lead (clock difference) with events that arrive now. `latest` is their latest end (ns) by the
        producer's clock."""
        if latest is None:
            return
        if now != self._state.heard_at:
            self._state.heard_at = now
            self._state.heard_times += 1
        before = self.at(now)
        if before is None or latest - now > before:
            self._state.lead, self._state.lead_at = latest - now, now
