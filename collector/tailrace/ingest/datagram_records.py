"""Datagrams to records: no record continues beyond the end of its datagram."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from operator import itemgetter

from tailrace.decoding.contract import Decoder
from tailrace.decoding.foreign import of_datagram
from tailrace.ingest.parts import Decoded
from tailrace.model.record import Kind, Record
from tailrace.rows.block import Block
from tailrace.rows.fields import KIND, OFFSET
from tailrace.spool.entry import Datagrams

_offset, _kind = itemgetter(OFFSET), itemgetter(KIND)


def decode_datagrams(
    decoder: Decoder,
    decode: Callable[[bytes], Decoded],
    datagrams: Datagrams,
    whole: Callable[[bytes, tuple[int, ...], int, int], int] | None,
) -> Decoded:
    """Return what a decoder makes of datagrams; `decode` lets it take bytes (see `parts.decoding`).

    Datagrams that hold whole events (`Format.whole`) are decoded in one piece: the records are the same, and a
    kernel has enough at a time. The records of any other datagram are in one list."""
    payload, sizes = datagrams.payload, datagrams.sizes
    chunk: Decoded = []
    records: list[Record] = []
    index, at = 0, datagrams.begin
    while index < len(sizes):
        if whole and (count := whole(payload, sizes, index, at)):
            if records:
                chunk.append(records)
                records = []
            end = at + sum(sizes[index : index + count])
            chunk += decode(payload[at:end])
            index, at = index + count, end
            continue
        end = at + sizes[index]
        records += decode_datagram(decoder, payload[at:end])
        index, at = index + 1, end
    return [*chunk, records] if records or not chunk else chunk


def decode_datagram(decoder: Decoder, datagram: bytes) -> list[Record]:
    records = decoder.feed(datagram)
    if decoder.pending:
        records += decoder.end()
    unreadable = any(record.kind == Kind.MALFORMED for record in records)
    return of_datagram(records, datagram) if unreadable else records


def of_one_event_each(chunk: Decoded, datagrams: Datagrams) -> bool:
    """Return whether each datagram was one event and nothing else."""
    events = total = 0
    for records in chunk:
        if isinstance(records, Block):
            events += records.rows
            total += records.rows
        else:
            kinds = list(map(_kind, records))
            events += kinds.count(Kind.SPAN) + kinds.count(Kind.COUNTER)
            total += len(kinds)
    return events == total == len(datagrams)


def apart(chunk: Decoded, datagrams: Datagrams, place: int) -> Iterator[Decoded]:
    """Yield the records of datagrams that end at a place. The records of a datagram that tells of its
    session come apart from all others."""
    ends = list(accumulate(datagrams.sizes, initial=place - datagrams.length))
    others: Decoded = []
    for item in chunk:
        if isinstance(item, Block):
            others.append(item)
            continue
        done = 0
        for begin, end in _of_sessions(item, ends):
            if done < begin:
                others.append(item[done:begin])
            if others:
                yield others
            yield [item[begin:end]]
            others, done = [], end
        if done < len(item):
            others.append(item[done:])
    if others:
        yield others


def _of_sessions(records: list[Record], ends: list[int]) -> Iterator[tuple[int, int]]:
    """Yield where the records of datagrams that tell of their session begin and end in a list; `ends` has the places of
    the datagrams."""
    end = 0
    for index, record in enumerate(records):
        if record.kind != Kind.SESSION or index < end:
            continue
        datagram = bisect_right(ends, record.offset)
        begin = bisect_left(records, ends[datagram - 1], key=_offset)
        end = bisect_left(records, ends[datagram], key=_offset)
        yield begin, end
