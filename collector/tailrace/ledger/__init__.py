"""Compare what a producer's own numbers promise with what came. Pure: no I/O and no clock.

`counters` follows per-stream counters, `references` ids that records refer to, `totals` what a
footer says was written. All yield `findings`.
"""

from __future__ import annotations
