"""Datagrams to records: no record continues beyond the end of its datagram."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate

from tailrace.decoding.contract import Decoder
from tailrace.decoding.foreign import of_datagram
from tailrace.model.record import Kind, Record
from tailrace.rows.records import Chunk, listed
from tailrace.spool.entry import Datagrams


def decode_datagrams(
    decoder: Decoder,
    decode: Callable[[bytes], Chunk],
    datagrams: Datagrams,
    whole: Callable[[bytes, tuple[int, ...], int, int], int] | None,
) -> Chunk:
    """Return what a decoder makes of datagrams; `decode` lets it take bytes (see `session.decoding`).

    Datagrams that hold whole events (`Format.whole`) are decoded in one piece: the records are the same, and a
    kernel has enough at a time. The records of any other datagram are in one list."""
    payload, sizes = datagrams.payload, datagrams.sizes
    chunk: Chunk = []
    records: list[Record] = []
    index, at = 0, datagrams.begin
    while index < len(sizes):
        if whole and (count := whole(payload, sizes, index, at)):
            chunk += listed(records)
            records = []
            end = at + sum(sizes[index : index + count])
            chunk += decode(payload[at:end])
            index, at = index + count, end
            continue
        end = at + sizes[index]
        records += decode_datagram(decoder, payload[at:end])
        index, at = index + 1, end
    return chunk + listed(records)


def decode_datagram(decoder: Decoder, datagram: bytes) -> list[Record]:
    records = decoder.feed(datagram)
    if decoder.pending:
        records += decoder.end()
    unreadable = any(record.kind == Kind.MALFORMED for record in records)
    return of_datagram(records, datagram) if unreadable else records


def of_one_event_each(chunk: Chunk, datagrams: Datagrams) -> bool:
    """Return whether each datagram was one event and nothing else."""
    events = sum(records.numbered_events for records in chunk)
    return events == sum(records.rows for records in chunk) == len(datagrams)


def apart(chunk: Chunk, datagrams: Datagrams, place: int) -> Iterator[Chunk]:
    """Yield the records of datagrams that end at a place. The records of a datagram that states something about its
    session come apart from all others."""
    ends = list(accumulate(datagrams.sizes, initial=place - datagrams.length))
    others: Chunk = []
    for records in chunk:
        for piece, of_session in records.apart(ends):
            if not of_session:
                others.append(piece)
                continue
            if others:
                yield others
            yield [piece]
            others = []
    if others:
        yield others
