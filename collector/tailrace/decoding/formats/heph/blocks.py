"""Decode Heph with the kernel: usual events to blocks, everything else by `HephDecoder`, which decides."""

from __future__ import annotations

from tailrace.decoding.formats.heph._kernel import Scanner
from tailrace.decoding.formats.heph.decoder import SHORT, HephDecoder
from tailrace.decoding.formats.heph.packets import EVENT_MIN
from tailrace.model.block import ROWS_MIN, Block
from tailrace.model.record import Record

_scan = Scanner().scan
"""One kernel for all decoders, as they share memos: no block's records depend on what the kernel remembers."""


class HephBlockDecoder(HephDecoder):
    """A decoder that packs usual events into blocks."""

    def blocks(self, data: bytes) -> list[Block | Record]:
        found: list[Block | Record] = []
        have, limit = len(data), min(self._limit, SHORT)
        if have < ROWS_MIN * EVENT_MIN:
            found += super().feed(data)
            return found
        at = self._completed(data, found)
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

    def _completed(self, data: bytes, found: list[Block | Record]) -> int:
        """Decode what waits with as much of `data` as completes it; return how much that is.

        So the rest is read where it is: to put it behind what waits would copy it twice."""
        at, have = 0, len(data)
        while self._waiting and at < have:
            lacking = have if self._seek else max(self._need - len(self._waiting), 1)
            found += super().feed(data[at : at + lacking])
            at = min(at + lacking, have)
        return at
