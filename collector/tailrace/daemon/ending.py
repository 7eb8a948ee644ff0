"""The bound on the time that a daemon takes to end after a failure.

A task waits for its thread even when the task is cancelled. A thread that was refused memory as it handed over
its answer never gives the answer; nor does a thread that waits for a disk (1 of 100 starts under
`ulimit -v` stood still, 2026-11-23). Where no service manager watches, nobody would end such a process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import trio

from tailrace.errors import causes
from tailrace.standard import last_words

SECONDS = 30

P = ParamSpec("P")
T = TypeVar("T")
Failed = Callable[[BaseException], None]


@contextmanager
def bounded(message: Callable[[BaseException], str]) -> Iterator[Failed]:
    """Yield a function that takes a failure. `SECONDS` after its first call the process ends with 1, if the work
    within still runs, and writes the failure's `message` to standard error."""
    failures: list[BaseException] = []

    def failed(error: BaseException) -> None:
        signal.alarm(SECONDS)  # takes no memory
        failures.append(error)

    def end(*_: object) -> None:
        try:
            said = message(failures[0]) if failures else "memory was refused"
            last_words(f"tailrace: {said}; a task did not end after this failure\n")
        finally:
            os._exit(1)

    before = signal.signal(signal.SIGALRM, end)
    try:
        yield failed
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def telling(failed: Failed, work: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Return the work of a task such that `failed` takes its failure before other tasks are waited for.

    To be cancelled is no failure."""

    async def telling_work(*arguments: P.args, **more: P.kwargs) -> T:
        try:
            return await work(*arguments, **more)
        except BaseException as error:
            if any(not isinstance(cause, trio.Cancelled) for cause in causes(error)):
                failed(error)
            raise

    return telling_work
