"""Spool entries in, rows out: the deterministic heart. No I/O, no clock.

The same entries from the same state give the same rows, always: this is what makes a restart exact.
"""

from __future__ import annotations
