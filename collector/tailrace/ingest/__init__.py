"""Turn spool entries into rows, without I/O and without a clock: equal entries give equal rows."""

from __future__ import annotations
