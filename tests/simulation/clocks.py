"""Clocks of hosts: a wall clock that is set and goes at its own pace, and a monotonic clock beside it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from tailrace.clock import Timeline
from tailrace.figures import Figures
from tailrace.pipeline.timekeeping import Timekeeping
from tailrace.spool.entry import EntryKind
from tests.simulation.storage import Disk
from tests.simulation.world import BEGIN, SECOND, Time, World

MILLION = 10**6


class HostClock:
    """The clocks of a host (`tailrace.clock.Clock`). The monotonic clock is the world's."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._set_at = 0
        self._ahead = 0
        self.pace = 0
        """How much faster the wall clock goes than the monotonic clock (parts in a million)."""

    def step(self, by: int) -> None:
        """Set the wall clock ahead (ns)."""
        self._ahead += by

    def run(self, pace: int) -> None:
        """Let the wall clock go at another pace from now on, without a step."""
        self._ahead = self.ahead
        self._set_at, self.pace = self._world.age, pace

    @property
    def ahead(self) -> int:
        """Return how far the wall clock is ahead of the world (ns)."""
        return self._ahead + (self._world.age - self._set_at) * self.pace // MILLION

    def wall_ns(self) -> int:
        return self._world.now + self.ahead

    def monotonic(self) -> float:
        return (self._world.now - BEGIN) / SECOND


class HostTime(Time):
    """The module `time` on a program's host: the wall clock is wrong, and both clocks go at a pace of
    their own."""

    def __init__(self, world: World, ahead: int, pace: int) -> None:
        """The wall clock is `ahead` (ns); the clocks go faster than the world's by `pace` (parts in a
        million)."""
        super().__init__(world)
        self._ahead = ahead
        self._pace = pace
        self._last = 0

    def time_ns(self) -> int:
        return BEGIN + self._ahead + self.monotonic_ns()

    def monotonic_ns(self) -> int:
        age = self._world.now - BEGIN
        self._last = max(self._last + 1, age + age * self._pace // MILLION)
        return self._last

    def monotonic(self) -> float:
        return self.monotonic_ns() / SECOND


class ProgramsTime(Time):
    """The module `time` for all programs: to each, the clocks of its host."""

    def __init__(self, world: World, times: Callable[[object], Time | None]) -> None:
        """`times` returns the clocks for a group of processes, None for the world's."""
        super().__init__(world)
        self._times = times

    def _own(self) -> Time:
        return self._times(self._world.group) or Time(self._world)

    def monotonic(self) -> float:
        return self._own().monotonic()

    def monotonic_ns(self) -> int:
        return self._own().monotonic_ns()

    def time_ns(self) -> int:
        return self._own().time_ns()


def timekeeping(disk: Disk, timeline: Timeline, clock: HostClock) -> Timekeeping:
    """Return the daemon's own timekeeping. It appends to the log of a disk."""

    def append(kind: EntryKind, session: int, payload: bytes) -> None:
        disk.log.now = timeline.now()
        disk.log.add(kind, session, payload)

    spool = SimpleNamespace(timeline=timeline, append=append)
    gate = SimpleNamespace(touched=lambda: None)
    nobody = SimpleNamespace(conditions={}, degrade=lambda *_: None, clear=lambda _: None)
    return Timekeeping(spool, gate, clock, nobody, Figures())
