"""Measure decoding alone, in chunks as a source reads them: with a kernel, and in Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tailrace.decoding.contract import BlockDecoder
from tailrace.decoding.formats import FORMATS
from tailrace.rows.block import Block

CHUNK = 256 * 1024
_LIMIT = 1 << 20


def blocks(format_: str, paths: list[str]) -> Callable[[], int]:
    """Return a function that decodes with the format's kernel and returns the number of records."""
    chunks = _chunks(paths)
    decoder = FORMATS[format_].decoder(_LIMIT, None)
    if not isinstance(decoder, BlockDecoder):
        raise TypeError(f"{format_} has no kernel here")

    def work() -> int:
        return sum(
            unit.rows if isinstance(unit, Block) else 1
            for chunk in chunks
            for unit in (
                decoder.blocks(chunk) if len(chunk) >= decoder.block_min else decoder.feed(chunk)
            )
        )

    return work


def records(format_: str, paths: list[str]) -> Callable[[], int]:
    """Return a function that decodes in Python and returns the number of records."""
    chunks = _chunks(paths)
    decoder = FORMATS[format_].decoder(_LIMIT, None)
    return lambda: sum(len(decoder.feed(chunk)) for chunk in chunks)


def _chunks(paths: list[str]) -> list[bytes]:
    data = b"".join(Path(path).read_bytes() for path in paths)
    return [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]
