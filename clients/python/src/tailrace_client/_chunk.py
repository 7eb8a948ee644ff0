"""What goes from the recorder to the sender."""

from __future__ import annotations

from typing import NamedTuple

UNNUMBERED = -1
"""The stream of packets, or lines, that have no numbers."""


class Chunk(NamedTuple):
    """Whole packets of one stream, in the order of their numbers, which are unwrapped ones."""

    data: bytes
    stream: int
    first: int
    """Its first event's number."""
    next: int
    """One more than its last event's number."""
