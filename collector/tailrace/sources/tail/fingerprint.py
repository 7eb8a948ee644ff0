"""The content of a file as it is now, in a form that can be compared with what was read of it.

Content means what a session of the file would get: inflated, without holes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tailrace.ingest.file_state import checksum
from tailrace.sources.tail import content
from tailrace.sources.tail.content import BEGIN, Compressed, Reader
from tailrace.sources.tail.identity import Trail
from tailrace.sources.tail.inflate import MAGIC
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


BEGINNING = 4096
LINE_MAX = 2**20


def beginning(fd: int) -> bytes:
    """Return the first bytes of an open file's content, up to `BEGINNING`, without what is damaged. Pass over a hole,
    which a log rotation leaves before a trace. Raise OSError."""
    head = os.pread(fd, BEGINNING, 0)
    if head.startswith(b"\0"):
        return _behind_hole(fd) or head
    return content.inflated(fd, BEGINNING) if head.startswith(MAGIC) else head


def _behind_hole(fd: int) -> bytes:
    """Return the first bytes behind the NULs with which a file begins, if its first block of data has any."""
    try:
        data = os.lseek(fd, 0, os.SEEK_DATA)
    except OSError as error:
        if error.errno not in {
            errno.ENXIO,
            errno.EINVAL,
        }:  # no data, or a file system without holes
            raise
        data = 0
    return os.pread(fd, 2 * BEGINNING, data).lstrip(b"\0")[:BEGINNING]


def fingerprint(path: str, sizes: Iterable[int] = ()) -> Fingerprint:
    """Read a file once; return its fingerprint, with the checksums up to these sizes. Raise OSError."""
    stops = sorted({size for size in sizes if size > 0}, reverse=True)
    begins: dict[int, int] = {}
    offset = crc = 0
    for piece in _pieces(path):
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
    return Fingerprint(offset, crc, begins)


def lines(path: str) -> Iterator[bytes]:
    """Yield the lines of a file's content, without their terminators; those over `LINE_MAX` in parts of this size. Raise
    OSError."""
    left = b""
    for piece in _pieces(path):
        if isinstance(piece, bytes):
            *whole, last = (left + piece).split(b"\n")
            for line in whole:
                yield from _cut(line)
            *full, left = _cut(last)
            yield from full
    yield left


def _cut(line: bytes) -> list[bytes]:
    return [line[at : at + LINE_MAX] for at in range(0, max(1, len(line)), LINE_MAX)]


def _pieces(path: str) -> Iterator[bytes | SparseRange]:
    fd = os.open(path, OPEN)
    try:
        view = ContentView(fd, os.fstat(fd).st_size, past_holes=True, final=True)
        reader: Reader
        if content.kind(view.fd, final=True) is Compressed:
            reader = Compressed(BEGIN, Trail(), certain=True)
        else:
            reader = RawBytes(Trail())
        while (piece := reader.next(view)) is not None and not isinstance(piece, str):
            if isinstance(piece, bytes | SparseRange):
                yield piece
    finally:
        os.close(fd)


def _size(piece: bytes | SparseRange) -> int:
    return piece.size if isinstance(piece, SparseRange) else len(piece)
