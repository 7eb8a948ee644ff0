"""Chunks, and the recorder as the sender sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

UNNUMBERED = -1
"""The stream of packets or lines without numbers."""


class Chunk(NamedTuple):
    """Whole packets of one stream, in the order of their numbers. Numbers are unwrapped."""

    data: bytes
    stream: int
    first: int
    """The number of the first event."""
    next: int
    """One more than the number of the last event."""


class Recorder(Protocol):
    """A source of chunks."""

    @property
    def discarded(self) -> Mapping[str, int]:
        """Events discarded so far, by reason."""
        ...

    def take(self) -> list[Chunk]:
        """Return all that is recorded."""
        ...

    def release(self, size: int, /) -> None:
        """Take note that `size` bytes of chunks are let go."""
        ...

    def next_numbers(self) -> Mapping[int, int]:
        """Return the number of each stream's next event."""
        ...

    def discard(self, reason: str, /) -> None:
        """Count an event that was taken and is discarded."""
        ...

    def close(self) -> None:
        """Discard all events from now on."""
        ...
