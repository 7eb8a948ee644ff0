"""Compare the sequence numbers, ids and totals that a producer writes with the received events, to find missing and
duplicate events.

This package does no I/O and reads no clock.

- `counters` checks the sequence numbers of each stream.
- `references` checks ids to which records refer, and the totals in a footer.
- `split_runs` joins a run of a producer whose events are spread over several files; `run_pieces` holds the parts in
  these files.

`counters`, `references` and `split_runs` report losses as `findings`.
"""

from __future__ import annotations
