"""Compressed bytes to content, member by member. Sans-IO.

A file may have many gzip members. Each begins with 1f 8b 08; a member that was never finished (its
writer was killed) is followed at once by the next one, inside what should be its own bytes.
"""

from __future__ import annotations

MAGIC = b"\x1f\x8b"
