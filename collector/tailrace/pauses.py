"""Let periodic tasks pause until common times, so that the process wakes up less often.

To wake a sleeping process costs more than the periodic work.
"""

from __future__ import annotations

import trio


async def pause(seconds: float) -> None:
    """Sleep until trio's clock reaches the next multiple of `seconds`."""
    past = trio.current_time() // seconds
    await trio.sleep_until((past + 1) * seconds)
