"""Let all periodic tasks of a process wake up at common times, so that the process wakes up less often. These times are
the multiples of a task's interval.

Waking a sleeping process costs more than the work of these tasks."""

from __future__ import annotations

import trio


async def pause(seconds: float) -> None:
    """Sleep until trio's clock reaches the next multiple of `seconds`."""
    past = trio.current_time() // seconds
    await trio.sleep_until((past + 1) * seconds)
