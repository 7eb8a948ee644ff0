"""Compare the sequence numbers, ids and totals that a producer writes with the received events, to find missing and
duplicate events.

This package does no I/O and reads no clock. `counters` checks sequence numbers, `references` ids and totals, and
`split_runs` runs whose events are spread over several files. They report losses as `findings`.
"""

from __future__ import annotations
