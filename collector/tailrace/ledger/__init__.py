"""Compare the numbers and totals that a producer states with the received events. This package does no I/O and reads no
clock.

`counters` checks per-stream counters. `references` checks ids that records refer to, and a footer's totals.
`split_runs` joins runs that are spread over several files. All three modules produce `findings`.
"""

from __future__ import annotations
