"""Decode DFTracer with the compiled kernel, which packs the most frequent records into blocks."""

from __future__ import annotations

from tailrace.decoding.formats.dftracer._kernel import Scanner, ranges
from tailrace.decoding.formats.dftracer.decoder import DFTracerDecoder
from tailrace.decoding.formats.dftracer.elements import Element
from tailrace.decoding.formats.dftracer.usual import turned
from tailrace.decoding.lines import BLOCK
from tailrace.model.record import Record
from tailrace.rows.block import ROWS_MIN, Block

RECORD_MIN = 100
"""Approximate size (bytes) of the shortest record that the compiled kernel reads."""

STEP_MIN = 16
"""Minimum number of bytes that Python decodes after two lines that the kernel cannot read. Each further line that the
kernel cannot read doubles the number, because a call of the kernel takes time."""

WAITING_MAX = 16 * 1024
"""Maximum size (bytes) of an unfinished line that is joined with the next input for the kernel."""

_scan = Scanner().scan
"""The compiled kernel's scanner, which all decoders share. Its caches never change the results."""


class DFTracerBlockDecoder(DFTracerDecoder):
    """A DFTracer decoder whose compiled kernel packs the most frequent records into blocks."""

    @property
    def block_min(self) -> int:
        return ROWS_MIN * RECORD_MIN

    def blocks(self, data: bytes) -> list[Block | Record]:
        found: list[Block | Record] = []
        if self._lines.pending <= WAITING_MAX and (waiting := self._lines.take_back()):
            data, self._element = waiting + data, Element()
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
            # Decode in Python the line at `stop` that the compiled kernel cannot read. After many such lines in
            # succession, decode more and more bytes at once.
            stop = max(stop, at + step)
            while at <= stop and at < have:
                at = self._read(data, at, stop - at)
            found += self._taken()
            step = min(2 * step + STEP_MIN, BLOCK)
        return found

    @property
    def _usual(self) -> bool:
        """Return whether the kernel may read from the next byte on. A line or an element must begin there, no split
        record may wait, and the run of the current process must be known and usual."""
        return (
            self._lines.between
            and not self._held
            and bool(self._processes.current.pid)
            and self._processes.current.run.usual
        )

    def _scan(self, data: bytes, at: int, found: list[Block | Record]) -> tuple[int, int]:
        """Append the kernel's blocks of the lines from `at` on to `found`. Return the number of rows in the blocks, and
        the position in `data` at which the kernel stopped."""
        processes = self._processes.usual
        parts, stop = _scan(
            data, at, self._offset, self._lines.limit, ROWS_MIN, self._names,
            [
                (each.pid.encode(), each.host.encode(), each.run.ids.believed, each.run.other_phase.encode())
                for _, each in processes
            ],
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
