"""Chunks, and the recorder as the sender sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from tailrace_client._wire import EVENT_MAGIC

UNNUMBERED = -1
"""The stream of packets or lines without numbers."""


_EVENT = EVENT_MAGIC.to_bytes(4, "big")
_MASK = 2**32 - 1


class Chunk(NamedTuple):
    """Whole packets of one stream, in the order of their numbers. Numbers are unwrapped."""

    data: bytes
    stream: int
    first: int
    """The number of the first event."""
    next: int
    """One more than the number of the last event."""

    def places(self) -> Iterator[tuple[int, int]]:
        """Yield each event's number and the place of its first byte."""
        at, data = 0, self.data
        while at + 16 <= len(data):
            if data[at : at + 4] == _EVENT:
                count = int.from_bytes(data[at + 12 : at + 16], "big")
                yield self.first + ((count - self.first) & _MASK), at
            at += int.from_bytes(data[at + 4 : at + 8], "big")

    def behind(self, number: int) -> Chunk:
        """Return the chunk without its events below a number. At least one event must have this number or a higher
        one."""
        # A report of discarded events stands before the event that follows them, and goes with that event.
        at = max((at for each, at in self.places() if each < number), default=None)
        if at is None:
            return self
        at += int.from_bytes(self.data[at + 4 : at + 8], "big")
        return Chunk(self.data[at:], self.stream, number, self.next)

    def whole(self, size: int) -> int:
        """Return the number below which all events are in the first `size` bytes."""
        return max((each for each, at in self.places() if at <= size), default=self.first)


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

    def discard(self, reason: str, count: int = 1, /) -> None:
        """Count events that are discarded without the recorder."""
        ...

    def close(self) -> None:
        """Discard all events from now on."""
        ...
