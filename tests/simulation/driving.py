"""Takes the steps of the collector's loops (`tailrace.pipeline.steps`) in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from random import Random

from tailrace.pipeline.steps import Step, Steps, Wait
from tests.simulation.disk import Crash
from tests.simulation.world import MS, SECOND, World

WORK = 2 * MS
"""What a blocking call takes at most, usually."""
SLOW, SLOW_SHARE = 500 * MS, 0.01


class Driver:
    """Drives the loops of one process. `failed` is told what a loop raised, or that a call crashed."""

    def __init__(
        self, world: World, random: Random, failed: Callable[[BaseException], None]
    ) -> None:
        self.dead = False
        self.works_again = 0
        """Until then the process does nothing (age, ns)."""
        self._world = world
        self._random = random
        self._failed = failed

    def drive(self, steps: Steps[object], done: Callable[[], None] = lambda: None) -> None:
        """Begin to take the steps of a loop; `done` is called when there are no more."""
        _Task(self, steps, done).go(None)

    def soon(self, delay: int, step: Callable[[], None]) -> None:
        """Call after so many nanoseconds, later if the process is stopped then, never if it is dead."""

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

    def duration(self) -> int:
        """Return how long a blocking call takes."""
        most = SLOW if self._random.random() < SLOW_SHARE else WORK
        return self._random.randrange(MS // 10, most)


class _Task:
    def __init__(self, driver: Driver, steps: Steps[object], done: Callable[[], None]) -> None:
        self._driver = driver
        self._steps = steps
        self._done = done
        self._wait = 0
        """The number of the wait that is under way."""
        self._heard = ExitStack()

    def go(self, result: object, error: Exception | None = None) -> None:
        """Take the next step."""
        self._heard.close()
        try:
            step = self._steps.send(result) if error is None else self._steps.throw(error)
        except StopIteration:
            self._done()
        else:
            self._take(step)

    def _take(self, step: Step) -> None:
        driver = self._driver
        if not isinstance(step, Wait):
            duration = driver.duration()
            before = driver.duration() % duration
            driver.soon(before, lambda: self._work(step.call, duration - before))
            return
        self._wait += 1
        number = self._wait

        def over() -> None:
            if number == self._wait and not driver.dead:
                self._wait += 1
                driver.soon(0, lambda: self.go(None))

        if step.seconds != math.inf:
            driver.soon(
                round(step.seconds * SECOND), over if step.seconds else lambda: self.go(None)
            )
        if step.flag is not None:
            self._heard.enter_context(step.flag.heard_by(over))

    def _work(self, call: Callable[[], object], left: int) -> None:
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - handed on to the loop, which knows them
            raised = error
            self._driver.soon(left, lambda: self.go(None, raised))
        else:
            self._driver.soon(left, lambda: self.go(result))
