"""Define chunks, cut packets into chunks, and define the interface of a recorder to the sender."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

from tailrace_client._wire import EVENT_MAGIC

UNNUMBERED = -1
"""Stream number of packets or lines without sequence numbers."""

_MAGIC = EVENT_MAGIC.to_bytes(4, "big")
_REPORT = b"tailrace.report"
_U32_MAX = 2**32 - 1


class Chunk(NamedTuple):
    """Whole packets of one stream, in the order of their sequence numbers, which here do not wrap at 32 bits."""

    data: bytes
    stream: int
    first: int
    next: int
    """The sequence number of the chunk's last event plus one."""

    def places(self) -> Iterator[tuple[int, int]]:
        """Yield the number of each event, with the offset (bytes) of the event's packet in the chunk."""
        at, data = 0, self.data
        while at + 16 <= len(data):
            if data[at : at + 4] == _MAGIC:
                count = int.from_bytes(data[at + 12 : at + 16], "big")
                yield self.first + ((count - self.first) & _U32_MAX), at
            at += int.from_bytes(data[at + 4 : at + 8], "big")

    def behind(self, number: int) -> Chunk:
        """Return the chunk without the events below `number`. At least one event must have a number from `number` on."""
        # A report of discarded events stands directly before the stream's next event. Remove the report together with
        # this event.
        at = max((at for each, at in self.places() if each < number), default=None)
        if at is None:
            return self
        at += int.from_bytes(self.data[at + 4 : at + 8], "big")
        return Chunk(self.data[at:], self.stream, number, self.next)

    def whole(self, size: int) -> int:
        """Return the sequence number below which all events lie within the first `size` bytes of the chunk."""
        return max((each for each, at in self.places() if at <= size), default=self.first)


class ChunkSource(Protocol):
    """The interface through which the sender gets recorded events from a recorder, as chunks."""

    @property
    def discarded(self) -> Mapping[str, int]:
        """Number of events discarded so far, by reason."""
        ...

    def take(self) -> list[Chunk]: ...

    def release(self, size: int, /) -> None:
        """Free `size` bytes of memory, because chunks of this size were dropped."""
        ...

    def next_numbers(self) -> Mapping[int, int]: ...

    def discard(self, reason: str, count: int = 1, /) -> None:
        """Count events that another component of the client has discarded."""
        ...

    def close(self) -> None:
        """Discard all events that are recorded from now on."""
        ...


def cut(packets: Sequence[bytes], stream: int, following: int, size: int) -> Iterator[Chunk]:
    """Yield chunks of at most `size` bytes from the packets of one stream; a longer packet becomes a chunk of its own.
    Each item is an event packet, perhaps preceded by metadata packets. `following` is the number after the stream's
    last event."""
    data = b"".join(packets)
    ends = list(accumulate(map(len, packets)))
    at = begin = 0
    while at < len(packets):
        stop = max(at + 1, bisect_right(ends, begin + size, at))
        end = ends[stop - 1]
        first, last = number(packets[at], following), number(packets[stop - 1], following)
        yield Chunk(data[begin:end], stream, first, last + 1)
        at, begin = stop, end


def runs(chunk: Chunk) -> Iterator[tuple[int, int]]:
    """Yield the numbers of a chunk's events as contiguous ranges: the first number, and the last number plus one."""
    data, first, next_ = chunk.data, chunk.first, chunk.first
    # If no events were discarded within the chunk, it contains no report, and its numbers are one range.
    if _REPORT not in data:
        yield chunk.first, chunk.next
        return
    at = 0
    while at < len(data):
        if data[at : at + 4] == _MAGIC:
            counter = int.from_bytes(data[at + 12 : at + 16], "big")
            skipped = (counter - next_) & _U32_MAX
            if skipped:
                yield first, next_
                first = next_ + skipped
            next_ += skipped + 1
        at += int.from_bytes(data[at + 4 : at + 8], "big")
    yield first, next_


def number(packet: bytes, following: int) -> int:
    """Return the sequence number of a packet's event: the highest number below `following` with the 32 bits that the
    packet contains."""
    at = 0
    while packet[at : at + 4] != _MAGIC:
        at += int.from_bytes(packet[at + 4 : at + 8], "big")
    counter = int.from_bytes(packet[at + 12 : at + 16], "big")
    return following - 1 - ((following - 1 - counter) & _U32_MAX)
