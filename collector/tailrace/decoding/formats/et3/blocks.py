"""Decode ET3 with the kernel: usual lines to blocks, everything else by `Et3Decoder`, which decides."""

from __future__ import annotations

from tailrace.decoding.formats.et3._kernel import Scanner
from tailrace.decoding.formats.et3.decoder import Et3Decoder
from tailrace.decoding.formats.et3.events import ET1, ET3
from tailrace.decoding.formats.et3.form import AGENT, DOUBT, TIME_MAX, TRUST
from tailrace.decoding.formats.et3.stack import DEPTH_MAX, THREADS_MAX
from tailrace.decoding.lines import BLOCK
from tailrace.model.record import Record
from tailrace.rows.block import ROWS_MIN, Block

LINE_MIN = 16
"""The size of a short line."""

STEP_MIN = 16
"""Bytes after which the Python decoder takes more than one line; this doubles with each line that it takes."""

_scan = Scanner(
    AGENT, depth=DEPTH_MAX, threads=THREADS_MAX, trust=TRUST, doubt=DOUBT, time=TIME_MAX
).scan
"""The scanner remembers nothing that changes a block's records, so all decoders share one, as they share memos."""


class Et3BlockDecoder(Et3Decoder):
    """A decoder that packs usual lines into blocks."""

    def blocks(self, data: bytes) -> list[Block | Record]:
        found: list[Block | Record] = []
        if len(data) < ROWS_MIN * LINE_MIN:
            found += super().feed(data)
            return found
        data = self._lines.take_back() + data
        at, have, step = 0, len(data), 0
        while at < have:
            block, stop = self._scan(data, at)
            if block is not None:
                found.append(block)
                at, step = stop, 0
                continue
            # The line at `stop`, too: the kernel has left it to us. Where it leaves many, take more and more at once.
            stop = data.find(b"\n", min(max(stop, at + step), have)) + 1 or have
            found += super().feed(data[at:stop])
            at, step = stop, min(2 * step + STEP_MIN, BLOCK)
        return found

    def _scan(self, data: bytes, at: int) -> tuple[Block | None, int]:
        """Return what the kernel makes of the lines from `at` on, and where it ends; it gets nothing where a line
        is under way, or where what came before changes how a line is read."""
        events, state = self._events, self._state
        if not events or not state.form or state.nuls or not self._lines.between:
            return None, at
        if events.version == ET1:
            return None, at
        lines = self._lines
        block, stop, of_et3 = _scan(
            data, at, lines.offset, lines.limit, ROWS_MIN, state.form, self._names
        )
        if block is not None:
            lines.skip(block.length)
            if of_et3 and not events.version:
                events.version = ET3
        return block, stop
