"""Define the steps that the daemon's loops yield: waits and blocking calls.

A loop is a generator that yields a step and continues when the step is done. `drive` performs the steps with trio, with
blocking calls in worker threads. The simulator performs them in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

import trio

from tailrace.clock import Clock
from tailrace.flags import Flag
from tailrace.pauses import pause

T = TypeVar("T")


class Wait(NamedTuple):
    """A step that waits for `seconds`, or until `flag` is set, whichever is earlier. If `together` is true and there is
    no flag, all waits of equal duration end at the same times, to save wake-ups."""

    seconds: float = math.inf
    flag: Flag | None = None
    together: bool = False


class Work(NamedTuple):
    """A step that makes a blocking call. The loop gets its result, or its exception."""

    call: Callable[[], Any]


Step = Wait | Work
Steps = Generator[Step, Any, T]


class Between:
    """Delays calls until no entry of the spool is half decoded. The decoding loop calls `begun` before each entry, and
    `over` after it. Between these calls, other loops may only read the ingest's state."""

    def __init__(self) -> None:
        self._within = False
        self._calls: list[Callable[[], None]] = []

    def begun(self) -> None:
        self._within = True

    def over(self) -> None:
        """Record that the spool's current entry is decoded, and make the delayed calls."""
        self._within = False
        while self._calls:
            self._calls.pop(0)()

    def do(self, call: Callable[[], T]) -> Steps[T]:
        """Make a call as soon as no entry of the spool is half decoded, and return its result."""
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
"""A step without a wait that lets other tasks run."""


def within(clock: Clock, seconds: float, steps: Steps[object]) -> Steps[bool]:
    """Perform steps for at most `seconds`, without interrupting a blocking call. Return whether they were completed."""
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


async def drive(steps: Steps[T], limiter: trio.CapacityLimiter | None = None) -> T:
    """Perform all steps of a loop with trio. Return the loop's result, or raise its exception. `limiter` limits the
    threads for the loop's blocking calls, by default those of all loops together."""
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
                result = await _take(step, limiter)
            except Exception as raised:  # noqa: BLE001 - handed on to the loop, which knows them
                error = raised
    finally:
        steps.close()


async def flagged(flag: Flag) -> None:
    event = trio.Event()
    flag.add(event.set)
    try:
        await event.wait()
    finally:
        flag.remove(event.set)


async def _take(step: Step, limiter: trio.CapacityLimiter | None) -> object:
    if not isinstance(step, Wait):
        return await trio.to_thread.run_sync(step.call, limiter=limiter)
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
