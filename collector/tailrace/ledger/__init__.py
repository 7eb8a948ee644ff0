"""Compare what a producer's own numbers promise with what came. Pure: no I/O and no clock.

`counters` follows per-stream counters; `references` follows ids that records refer to, and a footer's totals;
`split_runs` joins runs that several files have. All yield `findings`.
"""

from __future__ import annotations
