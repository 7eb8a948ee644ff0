"""The bytes of an open file from a place on, as they are in the file, with holes told apart.

They are the content of a file that is not compressed.
"""

from __future__ import annotations

import errno
import os
from typing import Literal, NamedTuple

from tailrace.sources.source import CHUNK_MAX
from tailrace.sources.tail.identity import Trail


class ContentView(NamedTuple):
    """An open file as it is now, and which of its holes are read.

    A hole is read only with `past_holes`, and a hole at the end only if the file is also `final`, because
    somebody may be about to fill it."""

    fd: int
    size: int
    past_holes: bool
    final: bool


class SparseRange(NamedTuple):
    """A hole in a sparse file."""

    size: int


class RawBytes:
    """The bytes of one file. `trail` is how far they are read."""

    def __init__(self, trail: Trail) -> None:
        self.trail = trail
        self._extent = range(0)
        """Where there is data: around the place reached, or behind the hole there."""

    def next(
        self, view: ContentView, limit: int = CHUNK_MAX
    ) -> bytes | SparseRange | Literal["changed"] | None:
        """Return the next bytes of the file, at most `limit`, or a hole; None if there is nothing now.
        Raise OSError.

        "changed" means that the bytes before the place reached are not those that were read, or that nothing was
        read of what is smaller by now."""
        fd, size, past_holes, final = view
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
        wanted = min(limit, self._extent.stop - trail.offset)
        data = os.pread(fd, before + wanted, trail.offset - before)
        if len(data) < before or not trail.precedes(data[:before]):
            return "changed"
        if not before and len(data) < min(limit, size) and os.lseek(fd, 0, os.SEEK_END) < size:
            return "changed"
        data = data[before:]
        trail.add(data)
        return data or None

    def _data(self, fd: int, size: int) -> int:
        """Return where data begins from the place reached on; `size` if only a hole is left."""
        offset = self.trail.offset
        if offset in self._extent:
            return offset
        try:
            begin = os.lseek(fd, offset, os.SEEK_DATA)
            self._extent = range(begin, os.lseek(fd, begin, os.SEEK_HOLE))
        except OSError as error:
            if error.errno == errno.ENXIO:
                return size
            self._extent = range(offset, size)  # a file system without holes
        return self._extent.start
