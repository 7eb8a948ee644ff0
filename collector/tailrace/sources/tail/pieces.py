"""Find out which files are pieces of another file: one behind another, they have its first bytes, or all of them.

`split` and `csplit` cut a file into pieces, `tail` copies its last piece, and `cat` joins files. The events of the long file
and those of the pieces are the same. Names prove nothing, so contents are compared: the long file is read once, and
where a piece ends, another one may begin.

A piece at the beginning of a file proves nothing if it is the only one: two runs of one program may write the same
bytes, and one of them may have died early. Such a piece counts if another one follows, if the pieces are the whole file,
or if the bytes state when the run began (`dated`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Generic, NamedTuple, TypeVar

from zlib_ng.zlib_ng import crc32

from tailrace.spool.payloads import HEAD, UNSAYING

ALIKE_MAX = 16
"""Maximum number of files with equal first or last bytes that are compared. If there are more, none of them counts as a
piece, because each comparison costs a checksum."""

AHEAD = 4096
"""Number of bytes of the long file that must be known to find the pieces which may begin there."""

T = TypeVar("T")


class Piece(NamedTuple, Generic[T]):
    """A file that may be a piece of another file: its first bytes (up to `AHEAD`), its size, which is not 0, and the
    checksum of its content without the first `UNSAYING` bytes."""

    file: T
    head: bytes
    size: int
    crc: int


class _Place(Generic[T]):
    """A place in the long file, from the offset `begin` on, where the content of a piece may be."""

    def __init__(self, piece: Piece[T], begin: int) -> None:
        self.piece = piece
        self.begin = begin
        self.end = begin + piece.size
        self.crc = 0

    def add(self, data: bytes, at: int) -> None:
        self.crc = crc32(data[max(0, self.begin + UNSAYING - at) :], self.crc)


class Cover(Generic[T]):
    """Finds the pieces in the content of a long file, which is passed to `feed` part by part.

    `beginning_with` returns files that may be pieces, by the next bytes of the long file (`AHEAD`, or fewer at its end)
    and their offset. `at_end` has files that may be its last piece, by the offset at which they would begin."""

    def __init__(
        self,
        beginning_with: Callable[[bytes, int], Iterable[Piece[T]]],
        at_end: Mapping[int, list[Piece[T]]],
    ) -> None:
        self._beginning_with = beginning_with
        self._at_end = {begin: pieces for begin, pieces in at_end.items() if begin > 0}
        self._data = b""
        self._at = 0
        self._open: list[_Place[T]] = []
        self._found: dict[int, list[_Place[T]]] = {0: []}
        """By the offset at which they end: the places that have the content of a piece."""
        self._heads: dict[int, bytes] = {}
        """The next bytes (`HEAD`) at each offset at which a piece ends."""

    @property
    def is_over(self) -> bool:
        """Return whether no further piece can be found."""
        return not self._open and not self._at_end and self._at not in self._found

    @property
    def is_vain(self) -> bool:
        """Return whether no piece was found, and none can be found."""
        return self.is_over and len(self._found) == 1

    @property
    def awaited(self) -> list[bytes]:
        """Return the first bytes (`HEAD`) of pieces that may follow those that were found, and are not known yet."""
        return [self._heads[end] for end in self._found if end and end in self._heads]

    def feed(self, data: bytes) -> None:
        self._data += data
        self._go(self._at + max(0, len(self._data) - AHEAD))

    def found(self, *, dated: bool) -> tuple[list[T], list[T]]:
        """Return all pieces of the file; and those that together are the whole file, in order, or none. All content of
        the file must have been passed on, unless `is_over`."""
        if not self.is_over:
            self._go(self._at + len(self._data))
        whole: list[_Place[T]] = []
        end = 0 if self._data else self._at
        while end and self._found.get(end):
            whole.insert(0, self._found[end][0])
            end = whole[0].begin
        if end:
            whole = []
        pieces = [
            place
            for place in chain.from_iterable(self._found.values())
            if place.piece.size >= HEAD and (place.begin or dated)
        ]
        pieces += (place for place in whole if place not in pieces)
        for (
            place
        ) in pieces:  # What precedes a piece is a piece, too. The list grows while it is read.
            before = self._found.get(place.begin, [])
            pieces += (other for other in before if other not in pieces)
        return [place.piece.file for place in pieces], [place.piece.file for place in whole]

    def _go(self, stop: int) -> None:
        """Compare the content up to the offset `stop`."""
        while self._at < stop:
            begun = self._at_end.pop(self._at, [])
            if self._at in self._found:
                self._heads[self._at] = self._data[:HEAD]
                begun = [*begun, *self._beginning_with(self._data[:AHEAD], self._at)]
            same = (piece for piece in dict.fromkeys(begun) if self._data.startswith(piece.head))
            self._open += [_Place(piece, self._at) for piece in same]
            end = min([stop, *self._at_end, *(place.end for place in self._open)])
            part = self._data[: end - self._at]
            for place in self._open:
                place.add(part, self._at)
            self._data, self._at = self._data[len(part) :], end
            for place in [each for each in self._open if each.end == end]:
                self._open.remove(place)
                if place.crc == place.piece.crc:
                    self._found.setdefault(end, []).append(place)
