"""Takes the steps of the daemon's loops with trio: waits in the event loop, blocking calls in threads."""

from __future__ import annotations

import trio

from tailrace.daemon.loops.steps import Flag, Step, Steps, T, Wait
from tailrace.rhythm import pause


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
