"""Pauses that end together: all that looks around from time to time wakes the process at the same moments.

A process that sleeps pays more for being woken than for what it then looks at.
"""

from __future__ import annotations

import trio


async def pause(seconds: float) -> None:
    """Sleep until the next moment that is a multiple of so many seconds: for that long at most."""
    past = trio.current_time() // seconds
    await trio.sleep_until((past + 1) * seconds)
