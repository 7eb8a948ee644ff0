"""Turn spool entries into rows, without I/O and without a clock.

The same entries from the same state always give the same rows. So a restart loses and doubles nothing.
"""

from __future__ import annotations
