"""Start all worker threads of a long-running process at its start, and keep them.

A limit on threads (`ulimit -u`, pids.max) also counts threads of other processes, so a later start may fail. trio and
the Delta table's library end a thread that is idle for 10 s. `hold` keeps trio's threads, and `occupy` the library's.
If the library cannot start a thread, the call never returns; so `require` first checks that enough threads can start.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import trio
from trio._core import _thread_cache

from tailrace.errors import TailraceError
from tailrace.pauses import pause

WORKERS = 5
"""Number of worker threads for two commits, checks of names, an upkeep, and a reload."""
SYNCERS = 1
"""Maximum number of threads that sync the log. Their limit is separate, because all workers may wait at the same time
for a store that does not answer."""
WRITERS = 1
"""Maximum number of threads that format metrics. Their limit is separate, so that many scrapes do not delay a sync."""

NEEDED = 24
"""Number of threads that a collector needs on two processors. Each further processor needs two more."""

OCCUPY_SECONDS = 4.0
"""Time (seconds) between two calls of `occupy`. The library ends threads that are idle for 10 s."""


def require() -> None:
    """Raise TailraceError if the system cannot start as many threads as a collector needs."""
    try:
        present = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - no path is needed
    except OSError:
        present = threading.active_count()
    over = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(present, NEEDED):
            started.append(threading.Thread(target=over.wait))
            started[-1].start()
    except RuntimeError as error:
        started.pop()
        raise _refusal(error) from error
    finally:
        over.set()
        for each in started:
            each.join()


async def hold() -> None:
    """Start the worker threads, and keep them for the life of the process. Raise TailraceError if one cannot start."""
    trio.to_thread.current_default_thread_limiter().total_tokens = WORKERS
    _thread_cache.IDLE_TIMEOUT = threading.TIMEOUT_MAX  # type: ignore[assignment]  # seconds, of either type
    ready = threading.Barrier(WORKERS + SYNCERS + WRITERS)
    every = trio.CapacityLimiter(ready.parties)

    async def start() -> None:
        try:
            await trio.to_thread.run_sync(ready.wait, limiter=every)
        except threading.BrokenBarrierError:
            # This thread has waited for another one, which could not start. The task of the other thread raises the
            # error.
            pass
        except RuntimeError as error:
            ready.abort()
            raise _refusal(error) from error

    async with trio.open_nursery() as nursery:
        for _ in range(ready.parties):
            nursery.start_soon(start)


async def occupy(call: Callable[[], object]) -> None:
    while True:
        await trio.to_thread.run_sync(call, abandon_on_cancel=True)
        await pause(OCCUPY_SECONDS)


def _refusal(error: RuntimeError) -> TailraceError:
    return TailraceError(f"{error}: raise the limit of processes (ulimit -u, TasksMax=)")
