"""Formats as their kernels read them: decoders whose `feed` returns the records of `blocks`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tailrace import kernels
from tailrace.decoding.contract import BlockDecoder, Format
from tailrace.model.record import Record
from tailrace.rows.block import Block

if kernels.active():
    from tailrace.decoding.formats.dftracer import blocks as dftracer
    from tailrace.decoding.formats.et3 import blocks as et3
    from tailrace.decoding.formats.heph import blocks as heph
    from tailrace.decoding.formats.jets import blocks as jets
    from tailrace.decoding.formats.ovni import blocks as ovni

    # Short inputs test the kernels as well, though they are no faster there.
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


def blockwise(format_: Format) -> Format | None:
    """The same format read with its kernel, if it has one and kernels run."""
    decoder = format_.decoder(4096, None)
    if not isinstance(decoder, BlockDecoder):
        return None
    usual = type(decoder)

    class Blockwise(usual):
        def feed(self, data: bytes) -> list[Record]:
            return records(self.blocks(data))

    return msgspec.structs.replace(format_, decoder=Blockwise)
