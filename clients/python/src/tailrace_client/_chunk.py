"""What goes from the recorder to the sender."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

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


class Recorder(Protocol):
    """Where chunks come from, as their sender sees it."""

    @property
    def discarded(self) -> Mapping[str, int]:
        """Events discarded so far, by reason."""
        ...

    def take(self) -> list[Chunk]:
        """All that is recorded."""
        ...

    def release(self, size: int, /) -> None:
        """So many bytes of what was taken are let go."""
        ...

    def next_numbers(self) -> Mapping[int, int]:
        """The number that the next event of each stream will have."""
        ...

    def discard(self, reason: str, /) -> None:
        """Count an event that was taken and is let go unsent."""
        ...

    def close(self) -> None:
        """Discard what comes from now on."""
        ...
