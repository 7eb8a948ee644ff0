"""The content of a file as it is now, in a form that can be compared with what was read of it.

Content means what a session of the file would get: inflated, without holes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from tailrace.ingest.file_state import checksum
from tailrace.sources.tail import content
from tailrace.sources.tail.content import BEGIN, Compressed, Reader
from tailrace.sources.tail.identity import Trail
from tailrace.sources.tail.raw import ContentView, RawBytes, SparseRange
from tailrace.sources.tail.roots import OPEN


class Fingerprint(NamedTuple):
    """The size of a file's content, holes counted, and its checksum. `begins` maps some shorter sizes
    to the checksum of the content up to them."""

    size: int
    crc: int
    begins: dict[int, int]

    def begins_with(self, size: int, crc: int) -> bool:
        """Return whether the content up to a size that was asked for has this checksum."""
        return self.begins.get(size) == crc


def fingerprint(path: str, sizes: Iterable[int] = ()) -> Fingerprint:
    """Read a file once; return its fingerprint, with the checksums up to these sizes. Raise OSError."""
    stops = sorted({size for size in sizes if size > 0}, reverse=True)
    begins: dict[int, int] = {}
    offset = crc = 0
    fd = os.open(path, OPEN)
    try:
        view = ContentView(fd, os.fstat(fd).st_size, past_holes=True, final=True)
        for piece in _pieces(view):
            while stops and stops[-1] <= offset + _size(piece):
                stop = stops.pop()
                begins[stop] = (
                    crc
                    if isinstance(piece, SparseRange)
                    else checksum(crc, piece[: stop - offset], offset)
                )
            if not isinstance(piece, SparseRange):
                crc = checksum(crc, piece, offset)
            offset += _size(piece)
    finally:
        os.close(fd)
    return Fingerprint(offset, crc, begins)


def _pieces(view: ContentView) -> Iterable[bytes | SparseRange]:
    reader: Reader
    if content.kind(view.fd, final=True) is Compressed:
        reader = Compressed(BEGIN, Trail(), certain=True)
    else:
        reader = RawBytes(Trail())
    while (piece := reader.next(view)) is not None and not isinstance(piece, str):
        if isinstance(piece, bytes | SparseRange):
            yield piece


def _size(piece: bytes | SparseRange) -> int:
    return piece.size if isinstance(piece, SparseRange) else len(piece)
