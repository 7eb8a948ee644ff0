"""Simulate the clocks of hosts: a wall clock that may be set and has its own pace, and a monotonic clock."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.world import BEGIN, SECOND, Time, World

MILLION = 10**6


class HostClock:
    """The clocks of one host (see `tailrace.clock.Clock`). The monotonic clock is that of the world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._set_at = 0
        self._ahead = 0
        self.pace = 0
        """How much faster the wall clock runs than the monotonic clock (parts per million)."""

    def step(self, by: int) -> None:
        """Set the wall clock forward by this time (ns)."""
        self._ahead += by

    def run(self, pace: int) -> None:
        """Let the wall clock run at another pace from now on, without a step."""
        self._ahead = self.ahead
        self._set_at, self.pace = self._world.age, pace

    @property
    def ahead(self) -> int:
        """Return how far the wall clock is ahead of the world's time (ns)."""
        return self._ahead + (self._world.age - self._set_at) * self.pace // MILLION

    def wall_ns(self) -> int:
        return self._world.now + self.ahead

    def monotonic(self) -> float:
        return (self._world.now - BEGIN) / SECOND


class HostTime(Time):
    """Replaces the module `time` on the host of a program: the wall clock is wrong, and both clocks have a pace of
    their own.
    """

    def __init__(self, world: World, ahead: int, pace: int) -> None:
        """The wall clock is ahead by `ahead` (ns).

        Both clocks run faster than the world's by `pace` (parts per million).
        """
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
    """Replaces the module `time` for all programs. Each program gets the clocks of its host."""

    def __init__(self, world: World, times: Callable[[object], Time | None]) -> None:
        """`times` returns the clocks for a group of processes; None stands for the world's own."""
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

    def process_time_ns(self) -> int:
        """Return 0, because CPU times of the real process differ from run to run. A client then states no cost."""
        return 0

    thread_time_ns = process_time_ns
