"""Cut the packets of one stream into chunks, and read numbers back from packets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from tailrace_client._chunk import Chunk
from tailrace_client._wire import EVENT_MAGIC

_MAGIC = EVENT_MAGIC.to_bytes(4, "big")
_REPORT = b"tailrace.report"
_U32_MAX = 2**32 - 1


def cut(packets: Sequence[bytes], stream: int, following: int, size: int) -> Iterator[Chunk]:
    """Yield chunks of at most `size` bytes; a longer packet is a chunk of its own.

    Each packet is an event's, perhaps with metadata packets in front. `following` is as for `number`.
    """
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
    """Yield the numbers of a chunk's events as runs: the first number, and one more than the last."""
    data, first, next_ = chunk.data, chunk.first, chunk.first
    if _REPORT not in data:  # a report precedes each event that follows discarded events
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
    """Return the event's unwrapped number, which is less than `following`, by at most 2^32."""
    at = 0
    while packet[at : at + 4] != _MAGIC:
        at += int.from_bytes(packet[at + 4 : at + 8], "big")
    counter = int.from_bytes(packet[at + 12 : at + 16], "big")
    return following - 1 - ((following - 1 - counter) & _U32_MAX)
