"""Provide each format with a decoder that reads with its kernel. The decoder's `feed` returns the records of `blocks`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tailrace import kernels
from tailrace.decoding.contract import BlockDecoder, Format
from tailrace.model.record import Record, SessionFacts
from tailrace.rows.block import Block

if kernels.active():
    from tailrace.decoding.formats.dftracer import decoder as dftracer
    from tailrace.decoding.formats.et3 import decoder as et3
    from tailrace.decoding.formats.heph import decoder as heph
    from tailrace.decoding.formats.jets import decoder as jets
    from tailrace.decoding.formats.ovni import decoder as ovni

    # With these values, the kernels also read short inputs, so that the tests compare the kernels. Short inputs do not
    # become faster.
    heph.ROWS_MIN = jets.ROWS_MIN = ovni.ROWS_MIN = 1
    dftracer.ROWS_MIN = dftracer.RECORD_MIN = 1
    et3.ROWS_MIN = et3.LINE_MIN = 1


def records(units: Iterable[Block | Record]) -> list[Record]:
    found: list[Record] = []
    for unit in units:
        if isinstance(unit, Block):
            assert sum(unit.column(unit.size)) == unit.length
            found += unit.records()
        else:
            found.append(unit)
    return found


def by_line(units: Iterable[Block | Record], process: int | None) -> list[Record]:
    """Return records in the order of their lines.

    If the records of several processes alternate, a decoder with a kernel returns them grouped by process. `process` is
    the process of the first record."""
    found: list[tuple[int | None, Record]] = []
    now = process
    read = records(units)
    for record in read:
        if record.name == "process" and isinstance(record.detail, SessionFacts) and not record.size:
            now = record.detail.process
            turn = record
        else:
            found.append((now, record))
    if now == process and len(found) == len(read):
        return read
    lines: list[Record] = []
    for of, record in sorted(found, key=lambda each: each[1].offset):
        if of != process:
            lines.append(turn._replace(offset=record.offset, detail=SessionFacts(process=of)))
            process = of
        lines.append(record)
    return lines


def current(decoder: object) -> int | None:
    """Return the process to which the decoder assigns the next record. Return None for a decoder that does not
    distinguish processes."""
    # `isinstance` with the protocol `SeparatingDecoder` takes twice as long as a decoder with a short input.
    processes = getattr(decoder, "processes", None)
    return None if processes is None else next(iter(processes))


def units(decoder: BlockDecoder, data: bytes) -> list[Block | Record]:
    """Return blocks and records, as the ingest lets the decoder read."""
    return decoder.blocks(data) if len(data) >= decoder.block_min else decoder.feed(data)


def blockwise(format_: Format) -> Format | None:
    """Return a copy of the format whose decoder reads with the kernel. Return None if the format has no kernel or
    kernels are off."""
    decoder = format_.decoder(4096, None)
    if not isinstance(decoder, BlockDecoder):
        return None
    usual = type(decoder)

    class Blockwise(usual):
        def feed(self, data: bytes) -> list[Record]:
            if len(data) < self.block_min:
                return super().feed(data)
            process = current(self)
            return by_line(self.blocks(data), process)

    return msgspec.structs.replace(format_, decoder=Blockwise)
