"""The bound on the time that a daemon takes to end after a failure.

A task waits for its thread even when the task is cancelled. A thread that was refused memory as it handed over
its answer never gives the answer; nor does a thread that waits for a disk (1 of 100 starts under
`ulimit -v` stood still, 2026-11-23). Where no service manager watches, nobody would end such a process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 30


@contextmanager
def bounded() -> Iterator[None]:
    """End the process with 1 if the work within still runs `SECONDS` after `begin` was called."""

    def end(*_: object) -> None:
        os.write(2, b"tailrace: a task did not end after a failure; the process ends without it\n")
        os._exit(1)

    before = signal.signal(signal.SIGALRM, end)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def begin() -> None:
    """Begin to count, after a failure. The call takes no memory."""
    signal.alarm(SECONDS)
