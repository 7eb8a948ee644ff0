"""Decode Heph with the kernel: usual events to blocks, everything else by `HephDecoder`, which decides."""

from __future__ import annotations

from tailrace.decoding.formats.heph._kernel import Scanner
from tailrace.decoding.formats.heph.decoder import SHORT, HephDecoder
from tailrace.decoding.formats.heph.packets import EVENT, EVENT_MIN, prefix
from tailrace.model.record import Record
from tailrace.rows.block import ROWS_MIN, Block

_scan = Scanner().scan
"""One kernel for all decoders, as they share memos: no block's records depend on what the kernel remembers."""

_PREFIX = 8
"""Bytes of a packet that tell its kind and its size."""


class HephBlockDecoder(HephDecoder):
    """A decoder that packs usual events into blocks."""

    def blocks(self, data: bytes) -> list[Block | Record]:
        found: list[Block | Record] = []
        have, limit = len(data), min(self._limit, SHORT)
        if have < ROWS_MIN * EVENT_MIN:
            found += super().feed(data)
            return found
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
            # The packet at `stop`, too: the kernel has left it to us.
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
        """Pack the event that waits and those behind it into one block. Return where it ends in `data`, 0 if there is none.

        A record between two blocks would cost all later stages as much as a block."""
        first = self._first(data, limit)
        if not first:
            return 0
        at = len(first) - len(self._waiting)
        block, stop = _scan(data, at, self._offset + len(first), limit, ROWS_MIN, first)
        if block is None:
            return 0
        found.append(block)
        self._waiting = bytearray()
        self._offset += block.length
        return stop

    def _first(self, data: bytes, limit: int) -> bytes:
        """Return the packet that waits, with its rest, which `data` begins with; nothing if it is no short event."""
        waiting = self._waiting
        have = len(waiting)
        if not have:
            return b""
        magic, size = prefix(waiting if have >= _PREFIX else waiting + data[:_PREFIX], 0)
        if magic != EVENT or not have < size <= min(limit, have + len(data)):
            return b""
        return bytes(waiting + data[: size - have])

    def _completed(self, data: bytes, found: list[Block | Record]) -> int:
        """Decode what waits with as much of `data` as completes it; return how much that is.

        So the rest is read where it is: to put it behind what waits would copy it twice."""
        at, have = 0, len(data)
        while self._waiting and at < have:
            lacking = have if self._seek else max(self._need - len(self._waiting), 1)
            found += super().feed(data[at : at + lacking])
            at = min(at + lacking, have)
        return at
