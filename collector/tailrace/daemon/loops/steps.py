"""The next step of a loop of the daemon, as data: a wait, or a call that blocks.

A loop is a generator. It decides, yields a step, and goes on once the step is done; it has no thread, no
scheduler and no clock but the `Clock` that it was given. `drive` takes the steps with trio: it waits in the
event loop, and makes blocking calls in threads. The simulator takes the steps in virtual time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

import trio

from tailrace.clock import Clock
from tailrace.pauses import pause

T = TypeVar("T")


class Flag:
    """A condition that loops wait for. Only the loops' thread sets and clears it."""

    def __init__(self, *, is_set: bool = False) -> None:
        self.is_set = is_set
        self._listeners: dict[Callable[[], None], None] = {}

    def set(self) -> None:
        self.is_set = True
        for listener in tuple(self._listeners):
            listener()

    def clear(self) -> None:
        self.is_set = False

    def put(self, is_set: bool) -> None:
        """Set or clear the flag, unless it is so already."""
        if is_set != self.is_set:
            self.set() if is_set else self.clear()

    def pulse(self) -> None:
        """Wake the present waiters and no later ones."""
        self.set()
        self.clear()

    def add(self, listener: Callable[[], None]) -> None:
        """Call the listener when the flag is set, at once if it is, until `remove`."""
        self._listeners[listener] = None
        if self.is_set:
            listener()

    def remove(self, listener: Callable[[], None]) -> None:
        del self._listeners[listener]


class Wait(NamedTuple):
    """Go on after so many seconds, or earlier if the flag is set. With `together`, and without a flag, go on when
    others do that look as often: after so many seconds at most."""

    seconds: float = math.inf
    flag: Flag | None = None
    together: bool = False


class Work(NamedTuple):
    """Go on when the call has returned, with its result or its exception. The call blocks."""

    call: Callable[[], Any]


Step = Wait | Work
Steps = Generator[Step, Any, T]


class Between:
    """Delays calls until the ingest stands between two entries.

    The loop that decodes calls `begun` and `over`. Between these two calls, other loops may only read from the ingest."""

    def __init__(self) -> None:
        self._within = False
        self._calls: list[Callable[[], None]] = []

    def begun(self) -> None:
        self._within = True

    def over(self) -> None:
        """Make the waiting calls."""
        self._within = False
        while self._calls:
            self._calls.pop(0)()

    def do(self, call: Callable[[], T]) -> Steps[T]:
        """Make a call at the end of the present entry, or at once if there is none, and return its result."""
        if not self._within:
            return call()
        results: list[T] = []
        done = Flag()

        def at_end() -> None:
            results.append(call())
            done.set()

        self._calls.append(at_end)
        yield Wait(flag=done)
        return results[0]


GIVE_WAY = Wait(0)
"""A step that lets other tasks run."""


def within(clock: Clock, seconds: float, steps: Steps[object]) -> Steps[bool]:
    """Take steps for so many seconds at most. Return whether they ended in time.

    A call that blocks is waited for, however long it takes."""
    deadline = clock.monotonic() + seconds
    result: object = None
    error: Exception | None = None
    try:
        while True:
            try:
                step = steps.send(result) if error is None else steps.throw(error)
            except StopIteration:
                return True
            left = deadline - clock.monotonic()
            if left <= 0:
                return False
            if isinstance(step, Wait):
                step = step._replace(seconds=min(step.seconds, left))
            result = error = None
            try:
                result = yield step
            except Exception as raised:  # noqa: BLE001 - handed on to the loop, which knows them
                error = raised
    finally:
        steps.close()


async def drive(steps: Steps[T]) -> T:
    """Take all steps; return what the loop returns, or raise what it raises."""
    result: object = None
    error: Exception | None = None
    try:
        while True:
            try:
                step = steps.send(result) if error is None else steps.throw(error)
            except StopIteration as end:
                returned: T = end.value
                return returned
            result = error = None
            try:
                result = await _take(step)
            except Exception as raised:  # noqa: BLE001 - handed on to the loop, which knows them
                error = raised
    finally:
        steps.close()


async def flagged(flag: Flag) -> None:
    """Return once a flag is set."""
    event = trio.Event()
    flag.add(event.set)
    try:
        await event.wait()
    finally:
        flag.remove(event.set)


async def _take(step: Step) -> object:
    if not isinstance(step, Wait):
        return await trio.to_thread.run_sync(step.call)
    if step.seconds <= 0:
        await trio.lowlevel.checkpoint()
    elif step.together:
        await pause(step.seconds)
    elif step.flag is None:
        await trio.sleep(step.seconds)
    else:
        with trio.move_on_after(step.seconds):
            await flagged(step.flag)
    return None
