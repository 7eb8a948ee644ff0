"""Datagrams to records: no record continues beyond the end of its datagram."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from operator import itemgetter

from tailrace.decoding.contract import Decoder, Format
from tailrace.model.record import Kind, Record
from tailrace.normalize import OFFSET

_offset = itemgetter(OFFSET)


def decode_datagrams(
    decoder: Decoder, payloads: list[bytes], whole: Callable[[bytes], bool] | None
) -> list[Record]:
    """Return the records of datagrams.

    If each datagram is one `whole` record, decode all in one piece: the records are the same, and a
    quarter of the time is saved."""
    if whole and all(map(whole, payloads)):
        return decoder.feed(b"".join(payloads)) + (decoder.end() if decoder.pending else [])
    records: list[Record] = []
    for payload in payloads:
        records += decoder.feed(payload)
        if decoder.pending:
            records += decoder.end()
    return records


def readable(format_: Format, record_max: int, datagram: bytes) -> bool:
    """Return whether a datagram has a readable record."""
    records = decode_datagrams(format_.decoder(record_max, None), [datagram], None)
    return any(record.kind != Kind.MALFORMED for record in records)


def apart(records: list[Record], payloads: list[bytes], place: int) -> Iterator[list[Record]]:
    """Yield the records of datagrams that end at a place. The records of a datagram that tells of its
    session come apart from all others."""
    done = end = 0
    begin = place - sum(map(len, payloads))
    ends = list(accumulate(map(len, payloads), initial=begin))
    for index, record in enumerate(records):
        if record.kind != Kind.SESSION or index < end:
            continue
        datagram = bisect_right(ends, record.offset)
        begin = bisect_left(records, ends[datagram - 1], key=_offset)
        end = bisect_left(records, ends[datagram], key=_offset)
        if done < begin:
            yield records[done:begin]
        yield records[begin:end]
        done = end
    if done < len(records):
        yield records[done:]
