"""Run the steps of the collector's loops (`tailrace.daemon.loops.steps`) in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

from tailrace.daemon.loops.steps import Steps, Wait
from tailrace.flags import Flag
from tests.simulation.disk import Crash
from tests.simulation.world import MS, SECOND, World

WORK = 2 * MS
"""Usual maximum duration (ns) of a blocking call."""
SLOW, SLOW_SHARE = 500 * MS, 0.01
STALLED = 4 * SECOND
"""Duration (ns) of a blocking call while a disk or an object store stalls.

It is longer than the interval of commits, so that a batch waits behind another one.
"""


class Driver:
    """Drives the loops of one process.

    `failed` is called with the exception that a loop raised, or that ended a call. `stalls` is the share of blocking
    calls that take seconds; `stalled` is called with the time of each of them.
    """

    def __init__(
        self,
        world: World,
        random: Random,
        failed: Callable[[BaseException], None],
        *,
        stalls: float,
        stalled: list[tuple[int, int]],
    ) -> None:
        self.dead = False
        self.works_again = 0
        """Until this age of the world (ns), the process does nothing."""
        self._world = world
        self._random = random
        self._ties = Random(0)
        self._stalls = stalls
        self._stalled = stalled
        self._failed = failed

    def drive(self, steps: Steps[object], done: Callable[[], None] = lambda: None) -> None:
        """Begin to run the steps of a loop. Call `done` after the last one."""
        _Task(self, steps, done).go(None)

    def soon(self, delay: int, step: Callable[[], None]) -> None:
        """Call a function after some nanoseconds.

        If the process is suspended then, call it later; if it is dead, never.
        """

        def due() -> None:
            if self.dead:
                return
            if (late := self.works_again - self._world.age) > 0:
                self._world.after(late, due)
            else:
                self.attempt(step)

        self._world.after(delay, due)

    def attempt(self, call: Callable[[], None]) -> None:
        try:
            call()
        except (Crash, Exception) as error:  # noqa: BLE001 - whatever the code under test raises
            self._failed(error)

    def tie(self) -> int:
        """Return a few random nanoseconds. They decide which of several tasks continues first."""
        return self._ties.randrange(8)

    def duration(self) -> int:
        """Return how long (ns) a blocking call takes."""
        most = SLOW if self._random.random() < SLOW_SHARE else WORK
        if self._stalls and self._ties.random() < self._stalls:
            most = STALLED
            self._stalled.append((self._world.age, self._world.age + STALLED))
        return self._random.randrange(MS // 10, most)


class _Task:
    def __init__(self, driver: Driver, steps: Steps[object], done: Callable[[], None]) -> None:
        self._driver = driver
        self._steps = steps
        self._done = done
        self._waits = 0
        """Number of waits that have ended."""
        self._flag: Flag | None = None

    def go(self, result: object, error: Exception | None = None) -> None:
        """Run the next step."""
        try:
            step = self._steps.send(result) if error is None else self._steps.throw(error)
        except StopIteration:
            self._done()
            return
        if isinstance(step, Wait):
            self._wait(step)
        else:
            driver, call = self._driver, step.call
            duration = driver.duration()
            before = driver.duration() % duration
            driver.soon(before, lambda: self._work(call, duration - before))

    def _wait(self, step: Wait) -> None:
        number = self._waits
        if step.seconds != math.inf:
            self._driver.soon(round(step.seconds * SECOND), lambda: self._over(number))
        if step.flag is not None:
            self._flag = step.flag
            step.flag.add(self._set)

    def _set(self) -> None:
        """Continue soon, because a flag was set. Tasks that wake at the same time continue in any order."""
        number = self._waits
        if not self._driver.dead:
            self._driver.soon(self._driver.tie(), lambda: self._over(number))

    def _over(self, number: int) -> None:
        """Continue, if the wait that ended is still the current one."""
        if number == self._waits:
            self._waits += 1
            if self._flag is not None:
                self._flag.remove(self._set)
                self._flag = None
            self.go(None)

    def _work(self, call: Callable[[], object], left: int) -> None:
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - handed on to the loop, which knows them
            raised = error
            self._driver.soon(left, lambda: self.go(None, raised))
        else:
            self._driver.soon(left, lambda: self.go(result))
