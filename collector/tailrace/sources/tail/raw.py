"""The bytes of an open file from a place on, as they are in the file; holes told apart."""

from __future__ import annotations

import errno
import os
from typing import Literal, NamedTuple

from tailrace.sources.tail.identity import Trail


class SparseRange(NamedTuple):
    size: int


class RawBytes:
    """`trail` is how far they are taken."""

    def __init__(self, trail: Trail) -> None:
        self.trail = trail
        self._extent = range(0)
        """Where there is data, around our place or behind the hole at it."""

    def take(
        self, fd: int, size: int, limit: int, *, past_holes: bool, final: bool
    ) -> bytes | SparseRange | Literal["changed"] | None:
        """The next bytes of a file of this size, at most `limit`; None for none now. Raise OSError.

        A hole is given only with `past_holes`, and one that nothing follows only if the file is
        `final`: who made it so long may be about to fill it. "changed": the bytes before our place
        are not those we took."""
        trail = self.trail
        if trail.offset >= size:
            return None
        begin = self._data(fd, size)
        if begin > trail.offset:
            if not past_holes or (begin == size and not final):
                return None
            hole = SparseRange(begin - trail.offset)
            trail.pass_over(hole.size)
            return hole
        before = len(trail.last)
        limit = min(limit, self._extent.stop - trail.offset)
        data = os.pread(fd, before + limit, trail.offset - before)
        if len(data) < before or not trail.precedes(data[:before]):
            return "changed"
        data = data[before:]
        trail.add(data)
        return data or None

    def _data(self, fd: int, size: int) -> int:
        """Where data begins from our place on; `size` if nothing but a hole is left."""
        offset = self.trail.offset
        if offset in self._extent:
            return offset
        try:
            begin = os.lseek(fd, offset, os.SEEK_DATA)
            self._extent = range(begin, os.lseek(fd, begin, os.SEEK_HOLE))
        except OSError as error:
            if error.errno == errno.ENXIO:
                return size
            self._extent = range(offset, size)  # a file system that knows no holes
        return self._extent.start
