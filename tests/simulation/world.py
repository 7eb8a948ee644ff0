"""Provide a virtual clock, the steps that are due, and the processes that run them.

Time passes only while all processes wait. A *process* is code that may wait in the middle (`sleep`, `wait`). Each
process is a greenlet, and all of them share one thread: the order of all steps is a function of the seed. No two
readings of the clock are equal.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from queue import Empty
from random import Random

from greenlet import getcurrent, greenlet

MS, SECOND = 10**6, 10**9
BEGIN = 1_800_000_000 * SECOND
FOR_EVER = 10**9 * SECOND


class Killed(BaseException):
    """Raised in the code of a process that was killed, to end it."""


class Process:
    """Code that may wait. `done` is set once the code has returned. Processes of one group are killed together."""

    def __init__(self, world: World, body: Callable[[], None], group: object) -> None:
        self._world = world
        self._body = body
        self.group = group
        self._code = greenlet(self._run, world.player)
        self.killed = self.done = False
        self.deadline: int | None = None
        """While the process waits, the number of the step that ends the wait."""

    def kill(self) -> None:
        """Run no further steps. The code ends together with the world."""
        self.killed = True
        self.deadline = None

    def resume(self) -> None:
        """Run the process until it waits or ends."""
        self.deadline = None
        self._code.switch()

    def pause(self) -> None:
        """Let the player continue until it resumes this process. Raise Killed."""
        self._world.player.switch()
        if self.killed:
            raise Killed

    def _run(self) -> None:
        try:
            self._body()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by the world
            self._world.failure = self._world.failure or error
        self.done = True

    @property
    def is_paused(self) -> bool:
        return bool(self._code)


class World:
    def __init__(self, seed: object) -> None:
        self.seed = seed
        self.failure: BaseException | None = None
        self.player = getcurrent()
        """The code that lets time pass."""
        self._now = BEGIN
        self._steps: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._processes: list[Process] = []
        self._waiting: dict[Process, Callable[[], bool]] = {}
        """Conditions that end the waits of processes before their deadlines."""
        self._current: Process | None = None

    def random(self, concern: str) -> Random:
        """Return the random numbers for one purpose."""
        return Random(f"{self.seed}/{concern}")

    @property
    def now(self) -> int:
        """Return the time (Unix ns)."""
        self._now += 1
        return self._now

    @property
    def age(self) -> int:
        """Return the age of the world (ns)."""
        return self._now - BEGIN

    def after(self, delay: int, step: Callable[[], None]) -> int:
        """Run a step after some nanoseconds. Return the number of the step."""
        self._count += 1
        heapq.heappush(self._steps, (self._now + max(0, delay), self._count, step))
        return self._count

    def at(self, age: int, step: Callable[[], None]) -> None:
        """Run a step when the world has this age (ns)."""
        self.after(age - self.age, step)

    def every(self, period: int, step: Callable[[], None]) -> None:
        def again() -> None:
            step()
            self.after(period, again)

        self.after(period, again)

    def spawn(self, body: Callable[[], None], group: object = None) -> Process:
        """Begin a process with the next step. It belongs to the group of the process that calls this, if any."""
        process = Process(self, body, self._current.group if self._current else group)
        self._processes.append(process)
        self.after(0, lambda: self._go_on(process))
        return process

    def kill(self, group: object) -> None:
        """Run no further steps of the processes of a group."""
        for process in self._processes:
            if process.group is group:
                process.kill()

    # Calls of a process

    @property
    def group(self) -> object:
        """Return the group of the process that runs; None outside of processes."""
        return self._current.group if self._current else None

    def sleep(self, duration: int) -> None:
        """Wait for some nanoseconds."""
        self._wait(self._here(), duration)

    def wait(self, duration: int, until: Callable[[], bool]) -> None:
        """Wait until a condition is true, but no longer than some nanoseconds."""
        process = self._here()
        if until():
            return
        self._waiting[process] = until
        try:
            self._wait(process, duration)
        finally:
            del self._waiting[process]

    def _here(self) -> Process:
        """Return the process that calls this. Raise Killed if it was killed."""
        process = self._current
        assert process is not None, "only a process can wait"
        if process.killed:
            raise Killed
        return process

    def _wait(self, process: Process, duration: int) -> None:
        number = self.after(duration, lambda: self._time_out(process, number))
        process.deadline = number
        process.pause()

    # Calls of the player

    def run(self, duration: int) -> None:
        """Let some nanoseconds pass."""
        end = self._now + duration
        while self._steps and self._steps[0][0] <= end:
            at, _, step = heapq.heappop(self._steps)
            self._now = max(self._now, at)
            step()
            for process, until in list(self._waiting.items()):
                if process.deadline is not None and until():
                    self._go_on(process)
            if self.failure:
                raise self.failure
        self._now = max(self._now, end)

    def close(self) -> None:
        """End the code of all processes."""
        for process in self._processes:
            process.kill()
            while process.is_paused:
                self._current = process
                process.resume()

    def _go_on(self, process: Process) -> None:
        if process.killed or process.done:
            return
        self._current = process
        process.resume()
        self._current = None

    def _time_out(self, process: Process, number: int) -> None:
        if process.deadline == number:
            self._go_on(process)


class Queue:
    """A `queue.SimpleQueue` at which a process of the world waits."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._items: list[object] = []

    def put(self, item: object) -> None:
        self._items.append(item)

    def get(self, timeout: float | None = None) -> object:
        duration = FOR_EVER if timeout is None else round(timeout * SECOND)
        self._world.wait(duration, lambda: bool(self._items))
        if not self._items:
            raise Empty
        return self._items.pop(0)


class Time:
    """Replaces the module `time` in a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic(self) -> float:
        return (self._world.now - BEGIN) / SECOND

    def monotonic_ns(self) -> int:
        return self._world.now - BEGIN

    def time_ns(self) -> int:
        return self._world.now

    def sleep(self, seconds: float) -> None:
        self._world.sleep(round(seconds * SECOND))
