"""Decode JETS with the kernel: usual lines to blocks, everything else by `JetsDecoder`, which decides."""

from __future__ import annotations

from tailrace.decoding.formats.jets._kernel import Scanner
from tailrace.decoding.formats.jets.decoder import IN_SESSION, JetsDecoder
from tailrace.decoding.lines import BLOCK
from tailrace.model.record import Record
from tailrace.rows.block import ROWS_MIN, Block

LINE_MIN = 40
"""Bytes of the shortest usual line, about."""

_scan = Scanner().scan
"""One kernel for all decoders, as they share memos: no block's records depend on what the kernel remembers."""


class JetsBlockDecoder(JetsDecoder):
    """A decoder that packs usual lines into blocks."""

    def blocks(self, data: bytes) -> list[Block | Record]:
        found: list[Block | Record] = []
        lines, least = self._lines, ROWS_MIN * LINE_MIN
        if len(data) >= least and b"\n" in data:
            # A copy costs less than what all stages spend on a torn line as a record of its own.
            data = lines.take_back() + data
        at, have, left = 0, len(data), 0
        while at < have:
            stop = at
            if have - at < least:
                stop = have
            elif lines.between:
                if self._stage in IN_SESSION:
                    block, stop = _scan(data, at, lines.offset, lines.limit, ROWS_MIN)
                    if block is not None:
                        found.append(block)
                        lines.skip(block.length)
                        at, left = stop, 0
                        continue
                # More at once where line after line is left to us.
                stop, left = min(stop + left, have), min(2 * left + 256, BLOCK)
            # The line at `stop`, too: the kernel has left it to us.
            end = data.find(b"\n", stop) + 1 or have
            found += super().feed(data[at:end])
            at = end
        return found
