"""Pauses of periodic tasks, aligned to common times so that the process wakes up less often.

Waking a sleeping process costs more than the periodic work.
"""

from __future__ import annotations

import trio


async def pause(seconds: float) -> None:
    """Sleep until the next multiple of `seconds` on trio's clock."""
    past = trio.current_time() // seconds
    await trio.sleep_until((past + 1) * seconds)
