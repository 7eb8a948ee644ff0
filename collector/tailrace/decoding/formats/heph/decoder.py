"""Decode Heph 0.1.0: size-prefixed big-endian packets with events and metadata.

    packet    = event | metadata
    event     = %xC1FC1FB7 size:u32 stream:u32 count:u32 substream:u64 start:u64 end:u64
                string *attribute                                                  ; ≥ 42 bytes
    metadata  = %x75D11D4D size:u32 option:string value:*u8                        ; ≥ 10 bytes
    string    = length:u16 *u8                                                     ; UTF-8

`size` counts the whole packet. An event is a span, or a counter if its first attribute is named `tailrace.counter`.
`count` is the event's sequence number, and times are nanoseconds since the epoch. A time from 2^63 on is null in its
column, and the attribute `$start` or `$end` has the number. A metadata packet becomes a session record with the name of
its option. The option `epoch` (u64, Unix ns) defines the clock. docs/formats/heph.md describes the packets of real
producers.

An event whose attributes do not fill its size keeps its header and description. If another packet begins inside a
packet, a short write has truncated the outer packet, which is malformed up to the inner packet. Bytes outside of
packets are malformed up to the next magic, in records of at most `PIECE` bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, cast

import msgspec

from tailrace import kernels
from tailrace.decoding.formats.heph.body import (
    BODY_AT,
    read_body,
    recall,
)
from tailrace.decoding.formats.heph.packets import (
    EVENT,
    EVENT_MIN,
    MAGIC_SIZE,
    MAGICS,
    METADATA_MIN,
    fault_at,
    find_magic,
    packet_within,
    prefix,
    read_metadata,
)
from tailrace.decoding.lines import PIECE
from tailrace.model.record import Record, malformed
from tailrace.rows.block import ROWS_MIN, Block

if TYPE_CHECKING or kernels.active():
    from tailrace.decoding.formats.heph._kernel import Scanner

    _scan = Scanner().scan
    """The compiled kernel's scanner, which all decoders share. Its caches never change the results."""

SHORT = 4096
"""Maximum size (bytes) of a packet that is decoded first, and then searched for a packet inside it. Longer packets are
searched first.

In damaged data, long packets may seem to nest. If each were decoded first, the same bytes would be decoded many
times."""

_event = Struct(">IIIIqqqH").unpack_from
_record = cast(Callable[[type[Record], tuple[object, ...]], Record], tuple.__new__)
_stream_text = lru_cache(4096)(str)


class HephState(msgspec.Struct):
    """The waiting bytes of an unfinished packet, and their offset."""

    offset: int = 0
    waiting: bytes = b""
    # Reason of the malformed bytes directly before `waiting`; bytes without a magic that follow get the same reason.
    run: str = ""


class HephDecoder:
    """Decodes one session of Heph packets. A packet has at most `limit` bytes; a `limit` below 64 counts as 64."""

    def __init__(self, limit: int, state: HephState | None = None) -> None:
        state = state or HephState()
        self._limit = max(limit, 64)
        self._piece = min(PIECE, self._limit)
        self._offset = state.offset
        self._waiting = bytearray(state.waiting)
        self._run, self._run_end = state.run, state.offset
        self._need = 0  # Number of waiting bytes that the next decoding step needs.
        self._seek = False  # Whether fewer than `_need` bytes suffice if a magic is among them.

    @property
    def state(self) -> HephState:
        run = self._run if self._run_end == self._offset else ""
        return HephState(self._offset, bytes(self._waiting), run)

    @property
    def pending(self) -> int:
        return len(self._waiting)

    def feed(self, data: bytes) -> list[Record]:
        records: list[Record] = []
        if waiting := self._waiting:
            seen = len(waiting)
            waiting += data
            if len(waiting) < self._need and not (
                self._seek and find_magic(waiting, max(seen - 3, 1), len(waiting)) >= 0
            ):
                return records
            data = bytes(waiting)
        done = self._packets(data, records)
        self._waiting = bytearray(data[done:])
        self._offset += done
        return records

    def end(self) -> list[Record]:
        """Decode the waiting bytes. Packets inside the last packet, which is incomplete, become records."""
        records: list[Record] = []
        data = bytes(self._waiting)
        done, have = 0, len(data)
        while done < have:
            # The packet is incomplete. It ends where another packet begins inside it, or else at the end of the input.
            torn = packet_within(data, done + 1, have, self._limit)
            fault = fault_at(data, done, have, self._limit)
            if have - done < MAGIC_SIZE and any(magic.startswith(data[done:]) for magic in MAGICS):
                fault = "truncated"
            fault = fault or ("torn" if torn > 0 else "truncated")
            done += self._malformed(data, done, torn if torn > 0 else have, fault, records)
            done = self._packets(data, records, done)
        self._offset += done
        self._waiting, self._run = bytearray(), ""
        return records

    def give_up(self) -> list[Record]:
        records: list[Record] = []
        if data := bytes(self._waiting):
            self._offset += self._malformed(data, 0, len(data), "too_long", records)
            self._waiting = bytearray()
        return records

    def _packets(
        self, data: bytes, records: list[Record], at: int = 0, until: int | None = None
    ) -> int:
        """Decode the packets that begin between `at` and `until`. Return the position of the first undecoded byte."""
        append, offset, limit = records.append, self._offset, self._limit
        short = min(limit, SHORT)
        have = len(data)
        last = have - EVENT_MIN
        until = have if until is None else until
        while at < until:
            if at <= last:
                magic, size, stream, count, substream, start, end, length = _event(data, at)
                stop = at + size
                if magic == EVENT and length + EVENT_MIN <= size <= short and stop <= have:
                    body = data[at + BODY_AT : stop]
                    kind, name, attributes, flaw, suspects = recall(body) or read_body(body)
                    if suspects and (torn := self._begins_another(data, at, suspects, flaw)):
                        append(malformed(offset + at, data[at:torn], "torn"))
                        at = torn
                        continue
                    if start < 0 or end < 0:
                        start, end, attributes, flaw = _without_bad_times(
                            start, end, attributes, flaw
                        )
                    append(
                        _record(
                            Record,
                            (
                                offset + at, size, kind, _stream_text(stream), substream, count,
                                name, None, None, None, start, end, attributes, flaw, None,
                            ),
                        )
                    )  # fmt: skip
                    at = stop
                    continue
            taken = self._other(data, at, records)
            if not taken:
                break
            at += taken
        return at

    def _begins_another(
        self, data: bytes, at: int, suspects: tuple[tuple[int, int], ...], flaw: str | None
    ) -> int:
        """Return the position of a packet that begins inside the packet at `at`, in one of the ranges `suspects`; 0 if
        there is none."""
        # In a packet without a flaw, a magic counts only if the rest of the range has room for a whole header.
        room = MAGIC_SIZE if flaw else EVENT_MIN
        found = (packet_within(data, at + a, at + b, self._limit, room) for a, b in suspects)
        return next((place for place in found if place > 0), 0)

    def _other(self, data: bytes, at: int, records: list[Record]) -> int:
        """Decode anything except a short, complete event. Return the decoded size, or 0 if more input is necessary."""
        have = len(data) - at
        self._seek = False
        if have < 8:
            self._need = 8
            return 0
        fault = fault_at(data, at, len(data), self._limit)
        if fault:
            return self._skip(data, at, fault, records)
        magic, size = prefix(data, at)
        if size > have:
            # The packet's size field may be damaged. Wait only for the header, in which the lengths of strings show
            # whether the size is possible.
            checked = EVENT_MIN if magic == EVENT else METADATA_MIN
            self._need = checked if have < checked else size
            return 0
        packet = data[at : at + size]
        room = EVENT_MIN if magic == EVENT else MAGIC_SIZE
        if (torn := packet_within(packet, 4, size, self._limit, room)) > 0:
            records.append(malformed(self._offset + at, packet[:torn], "torn"))
            return torn
        read = _read_event if magic == EVENT else read_metadata
        records.append(read(self._offset + at, packet))
        return len(packet)

    def _skip(self, data: bytes, at: int, fault: str, records: list[Record]) -> int:
        """Add a malformed record of the bytes before the next magic, at most `PIECE` bytes. Return its size, or 0 if
        more input is needed."""
        stop = find_magic(data, at + 1, at + self._piece)
        if stop < 0:
            if len(data) - at < self._piece:
                self._need, self._seek = self._piece, True
                return 0
            # Keep the last three bytes of the input, because they may be the beginning of a packet's magic bytes.
            stop = at + self._piece - 3
        return self._malformed(data, at, stop, fault, records)

    def _malformed(self, data: bytes, at: int, stop: int, fault: str, records: list[Record]) -> int:
        """Add a malformed record and return its size. If it does not begin with a magic, and malformed bytes are
        directly before it, it gets the same reason as these bytes."""
        offset = self._offset + at
        if fault == "bad_magic" and self._run and self._run_end == offset:
            fault = self._run
        self._run, self._run_end = fault, self._offset + stop
        records.append(malformed(offset, data[at:stop], fault))
        return stop - at


def _read_event(offset: int, packet: bytes) -> Record:
    _, size, stream, count, substream, start, end, _ = _event(packet)
    kind, name, attributes, flaw, _ = read_body(packet[BODY_AT:])
    if start < 0 or end < 0:
        start, end, attributes, flaw = _without_bad_times(start, end, attributes, flaw)
    return Record(
        offset, size, kind, str(stream), substream, count,
        name, None, None, None, start, end, attributes, flaw, None,
    )  # fmt: skip


def _without_bad_times(
    start: int, end: int, attributes: str | None, flaw: str | None
) -> tuple[int | None, int | None, str, str]:
    """Move each time of 2^63 or more from its column to the attributes, because it is negative as a signed number."""
    times = {"$start": start, "$end": end}
    bad = ",".join(f'"{name}":{time + 2**64}' for name, time in times.items() if time < 0)
    rest = f",{attributes[1:]}" if attributes and attributes != "{}" else "}"
    return (
        None if start < 0 else start, None if end < 0 else end, f"{{{bad}{rest}",
        flaw or "bad_time",
    )  # fmt: skip


_PREFIX = 8  # size (bytes) of a packet's first two fields, magic and size


class HephBlockDecoder(HephDecoder):
    """A Heph decoder whose compiled kernel packs the most frequent events into blocks. Python decodes all else."""

    @property
    def block_min(self) -> int:
        return ROWS_MIN * EVENT_MIN

    def blocks(self, data: bytes) -> list[Block | Record]:
        found: list[Block | Record] = []
        have, limit = len(data), min(self._limit, SHORT)
        at = self._continued(data, limit, found) or self._completed(data, found)
        if at == have:
            return found
        self._offset = begin = self._offset - at
        while at < have:
            block, stop = None, have
            if have - at >= ROWS_MIN * EVENT_MIN:
                block, stop = _scan(data, at, begin + at, limit, ROWS_MIN)
            if block is not None:
                found.append(block)
                at = stop
                continue
            # Decode in Python the packet at `stop`, which the compiled kernel cannot read.
            records: list[Record] = []
            done = self._packets(data, records, at, min(stop + 1, have))
            found += records
            if done == at:
                break
            at = done
        self._waiting = bytearray(data[at:])
        self._offset = begin + at
        return found

    def _continued(self, data: bytes, limit: int, found: list[Block | Record]) -> int:
        """Pack one block that begins with the event in `_waiting`. Return the position in `data` after it, or 0.

        If the event became a single record, the later stages would need as much time for it as for a block."""
        waiting = self._waiting
        have = len(waiting)
        if not have:
            return 0
        magic, size = prefix(waiting if have >= _PREFIX else waiting + data[:_PREFIX], 0)
        if magic != EVENT or not have < size <= min(limit, have + len(data)):
            return 0
        at = size - have
        first = bytes(waiting + data[:at])
        block, stop = _scan(data, at, self._offset + len(first), limit, ROWS_MIN, first)
        if block is None:
            return 0
        found.append(block)
        self._waiting = bytearray()
        self._offset += block.length
        return stop

    def _completed(self, data: bytes, found: list[Block | Record]) -> int:
        """Complete and decode the waiting bytes. Return the number of bytes taken from `data`."""
        at, have = 0, len(data)
        while self._waiting and at < have:
            lacking = have if self._seek else max(self._need - len(self._waiting), 1)
            found += super().feed(data[at : at + lacking])
            at = min(at + lacking, have)
        return at
