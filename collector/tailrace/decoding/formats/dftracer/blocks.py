"""Decode DFTracer with the kernel: usual records to blocks, everything else by `DFTracerDecoder`, which decides."""

from __future__ import annotations

from tailrace.decoding.formats.dftracer._kernel import Scanner, ranges
from tailrace.decoding.formats.dftracer.decoder import DFTracerDecoder
from tailrace.decoding.formats.dftracer.usual import turned
from tailrace.decoding.lines import BLOCK
from tailrace.model.record import Record
from tailrace.rows.block import ROWS_MIN, Block

RECORD_MIN = 100
"""The size of a short record."""

STEP_MIN = 16
"""Bytes after which the Python decoder takes more than one line; this doubles with each line that it takes."""

WAITING_MAX = 16 * 1024
"""The longest beginning of a line that is copied in front of its rest, for the kernel to read the whole line."""

_scan = Scanner().scan
"""The scanner remembers nothing that changes a block's records, so all decoders share one, as they share memos."""


class DFTracerBlockDecoder(DFTracerDecoder):
    """A decoder that packs usual records into blocks."""

    def blocks(self, data: bytes) -> list[Block | Record]:
        found: list[Block | Record] = []
        if len(data) < ROWS_MIN * RECORD_MIN:
            found += super().feed(data)
            return found
        if self._lines.pending <= WAITING_MAX:
            data = self._lines.take_back() + data
        at, have, step = 0, len(data), 0
        while at < have:
            rows, stop = 0, at
            if have - at >= ROWS_MIN * RECORD_MIN and self._usual:
                rows, stop = self._scan(data, at, found)
            if rows:
                at = stop
                if rows >= ROWS_MIN:
                    step = 0
                continue
            # The line at `stop`, too: the kernel has left it to us. Where it leaves many, take more and more at once.
            stop = data.find(b"\n", min(max(stop, at + step), have)) + 1 or have
            found += super().feed(data[at:stop])
            at, step = stop, min(2 * step + STEP_MIN, BLOCK)
        return found

    @property
    def _usual(self) -> bool:
        """Return whether a record begins with the next byte, and nothing before it changes how it is read."""
        return (
            self._lines.between
            and not self._held
            and bool(self._processes.current.pid)
            and self._processes.current.run.usual
        )

    def _scan(self, data: bytes, at: int, found: list[Block | Record]) -> tuple[int, int]:
        """Add what the kernel makes of the lines from `at` on. Return how many they are, and where they end."""
        processes = self._processes.usual
        parts, stop = _scan(
            data, at, self._offset, self._lines.limit, ROWS_MIN, self._names,
            [(each.pid.encode(), each.host.encode(), each.run.ids.believed) for _, each in processes],
        )  # fmt: skip
        for which, block, numbers, counts in parts:
            number, process = processes[which]
            if self._processes.go(number):
                found.append(turned(self._offset, self._processes))
            found.append(block)
            self._offset += block.length
            self._lines.skip(block.length)
            come, ids = ranges(numbers), process.run.ids
            if come is None or not ids.add_ranges(*come):
                ids.add(memoryview(numbers).cast("q"))
            process.run.shown(numbered=bool(numbers), counts=counts)
        return sum(block.rows for _, block, _, _ in parts), stop
