"""Start all worker threads of a long-running process at its start, and keep them.

trio starts a thread when a blocking call finds none idle, and ends a thread that was idle for 10 s. A daemon without
work for a while would then need a new thread for its next commit, and might not get it: a limit of the user or of the
control group (`ulimit -u`, pids.max) also counts the threads of other processes. So `hold` starts as many threads as
ever work at once, and keeps them.

The library that writes the table has threads of its own for blocking calls, and ends them after 10 s as well. If it then
gets none, its call never returns, even when there are threads again. So `occupy` calls the library every few seconds,
which keeps the threads that its calls need. A call at the start that gets no thread hangs as well, so `require` refuses such
a start first.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import trio
from trio._core import _thread_cache

from tailrace.errors import TailraceError
from tailrace.pauses import pause

WORKERS = 6
"""Blocking calls at once: a sync, two commits, an upkeep that may take long, a reload, and one to spare."""
WRITERS = 1
"""Blocking calls at once that write metrics, which have a limiter of their own, so that many scrapes at a time delay
no sync."""

NEEDED = 24
"""Threads of a collector on two processors, most of them the library's. The library has two more for each further
processor."""

OCCUPY_SECONDS = 4.0
"""Seconds between two calls, less than half of the time after which the library ends an idle thread."""


def require() -> None:
    """Raise TailraceError if this process cannot have as many threads as a collector needs."""
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
    """Start the threads, and keep them for the process. Raise TailraceError if they cannot be started."""
    trio.to_thread.current_default_thread_limiter().total_tokens = WORKERS
    _thread_cache.IDLE_TIMEOUT = threading.TIMEOUT_MAX  # type: ignore[assignment]  # seconds, of either type
    ready = threading.Barrier(WORKERS + WRITERS)
    every = trio.CapacityLimiter(WORKERS + WRITERS)

    async def start() -> None:
        try:
            await trio.to_thread.run_sync(ready.wait, limiter=every)
        except threading.BrokenBarrierError:  # another one could not be started
            pass
        except RuntimeError as error:
            ready.abort()
            raise _refusal(error) from error

    async with trio.open_nursery() as nursery:
        for _ in range(ready.parties):
            nursery.start_soon(start)


async def occupy(call: Callable[[], object]) -> None:
    """Call a library at regular intervals, so that it does not end the thread that the call needs."""
    while True:
        await trio.to_thread.run_sync(call, abandon_on_cancel=True)
        await pause(OCCUPY_SECONDS)


def _refusal(error: RuntimeError) -> TailraceError:
    return TailraceError(f"{error}: raise the limit of processes (ulimit -u, TasksMax=)")
