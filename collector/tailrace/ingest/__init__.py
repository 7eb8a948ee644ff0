"""Turn spool entries into rows, without I/O and without a clock.

The same entries, applied to the same state, always produce the same rows. Therefore a restart neither loses nor
duplicates rows.
"""

from __future__ import annotations
