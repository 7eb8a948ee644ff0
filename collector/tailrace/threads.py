"""Start all worker threads of a long-running process at its start, and keep them.

trio starts a thread for a blocking call if none is idle, and ends a thread after 10 idle seconds. An idle daemon would
need a new thread for its next commit, and might not get one: a limit of the user or of the control group (`ulimit -u`,
pids.max) also counts the threads of other processes. So `hold` starts as many threads as can be busy at the same time,
and keeps them.

The Delta table's library has its own threads, and also ends idle ones after 10 s. If it cannot start a thread, the call
never returns. So `occupy` calls the library every few seconds, which keeps its threads alive, and `require` checks
before the first call that enough threads can be started.
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
"""Number of worker threads, which is the maximum number of blocking calls at the same time: a sync, two commits, an
upkeep, a reload, and a spare one."""
WRITERS = 1
"""Maximum number of threads that format metrics at the same time.

They have a limit of their own, so that many scrapes at once do not delay a sync.
"""

NEEDED = 24
"""Number of threads that a collector needs on a machine with two processors, most of them in the Delta table's library.

For each further processor, the library starts two more threads.
"""

OCCUPY_SECONDS = 4.0
"""Time (seconds) between two calls by which `occupy` keeps the threads of the Delta table's library alive.

It is less than half of the time after which the library ends idle threads.
"""


def require() -> None:
    """Test whether as many threads can be started as a collector needs, by starting and ending them.

    Raise TailraceError if one of them cannot start.
    """
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
    """Start the worker threads, and keep them for the life of the process. Raise TailraceError if one cannot
    start."""
    trio.to_thread.current_default_thread_limiter().total_tokens = WORKERS
    _thread_cache.IDLE_TIMEOUT = threading.TIMEOUT_MAX  # type: ignore[assignment]  # seconds, of either type
    ready = threading.Barrier(WORKERS + WRITERS)
    every = trio.CapacityLimiter(WORKERS + WRITERS)

    async def start() -> None:
        try:
            await trio.to_thread.run_sync(ready.wait, limiter=every)
        except threading.BrokenBarrierError:
            # Another worker thread could not start. The task of that thread raises the error.
            pass
        except RuntimeError as error:
            ready.abort()
            raise _refusal(error) from error

    async with trio.open_nursery() as nursery:
        for _ in range(ready.parties):
            nursery.start_soon(start)


async def occupy(call: Callable[[], object]) -> None:
    """Run `call` in a worker thread every `OCCUPY_SECONDS` seconds, so that the thread stays alive. Never return."""
    while True:
        await trio.to_thread.run_sync(call, abandon_on_cancel=True)
        await pause(OCCUPY_SECONDS)


def _refusal(error: RuntimeError) -> TailraceError:
    return TailraceError(f"{error}: raise the limit of processes (ulimit -u, TasksMax=)")
