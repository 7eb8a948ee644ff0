"""Find files whose content other files of an import contain: pieces of a file, or a file that was joined or merged.

- In a format whose tools split and merge traces (`Files.pieces`), a file is left out if other files have all its lines,
  and its name or its first record shows that a tool may have made it.
- In any format, a file is left out if it is a piece of a longer file (`sources.tail.comparison` has the rules), or if
  earlier imports have read pieces that together are the file.

The last piece of a longer file is recognised only if it has at least `HEAD` bytes, because many files end with the same
few bytes."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Container, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from tailrace.decoding.contract import Files, originals, without_gz
from tailrace.filesystem import spelled
from tailrace.sources.tail.comparison import ALIKE_MAX, Cover, PieceFile
from tailrace.sources.tail.content import BEGINNING, chunks, inflated, lines
from tailrace.sources.tail.inflate import MAGIC
from tailrace.sources.tail.location import opened
from tailrace.spool.payloads import HEAD, checksum

LINES_MAX = 2**22
"""Maximum number of different lines in memory (about 400 MB) for the search for files that a tool has split off from
other files.

Files whose lines would exceed this number are imported without the search."""


def contained(files: list[str], format_: Files, read: Container[str]) -> dict[str, str]:
    """Return each file whose content is in other files, mapped to one of these files, which this import reads or an
    earlier import has read. `read` contains the files that earlier imports have read."""
    copies: dict[str, str] = {}
    if format_.pieces:
        for find in (partial(filter, format_.pieces), _longer, _merged, _supplemented):
            left = [file for file in files if file not in copies]
            copies |= _pieces(left, {file for file in find(left) if spelled(file) not in read})
    copies = _Alike(files, format_, read).pieces(copies) | copies
    for file, original in copies.items():
        while original in copies:
            original = copies[original]  # noqa: PLW2901 - name a file that is read
        copies[file] = original
    return copies


class _File(NamedTuple):
    """A file, its first and last content bytes, and its size. `last` and `size` are unknown if it is compressed."""

    path: str
    head: bytes
    last: bytes | None
    size: int | None

    def has(self, data: bytes, at: int) -> bool:
        """Return whether the file may have these bytes at an offset. Always return True for a compressed file: only the
        later comparison by checksum reads its content."""
        if self.size is None:
            return True
        with opened(self.path) as fd:
            return os.pread(fd, len(data), at) == data


class _Alike:
    """Finds files of one format that are pieces of others. Only files with equal first or last bytes are compared."""

    def __init__(self, files: list[str], format_: Files, read: Container[str]) -> None:
        self._format = format_
        self._read = read
        self._files: list[_File] = []
        self._begin: dict[bytes, list[_File]] = {}
        self._end: dict[bytes, list[_File]] = {}
        for path in files if len(files) > 1 else ():
            with suppress(OSError):  # the error is reported when the file is read later
                file = _file(path)
                self._files.append(file)
                for size in {HEAD, BEGINNING} if len(file.head) == BEGINNING else {HEAD}:
                    self._begin.setdefault(file.head[:size], []).append(file)
                if file.last:
                    self._end.setdefault(file.last, []).append(file)
        self._short = {len(head) for head in self._begin if len(head) < HEAD} | {HEAD}
        self._sums: dict[str, tuple[int, int] | None] = {}

    def pieces(self, copies: Container[str]) -> dict[str, str]:
        """Return the files to leave out, each mapped to the file that is the reason. A piece of another file is mapped
        to this other file. A file that consists of pieces which earlier imports have read is mapped to the first piece.
        `copies` are files that are left out anyway."""
        found: dict[str, str] = {}
        for file in sorted(self._files, key=lambda each: -(each.size or 0)):
            if file.path in copies:
                continue
            with suppress(OSError):  # the error is reported when the file is read later
                pieces, whole = self._pieces(file)
                for piece in pieces:
                    if self._may_leave_out(piece, file):
                        found.setdefault(piece.path, file.path)
                is_read = bool(whole) and all(spelled(piece.path) in self._read for piece in whole)
                if is_read and spelled(file.path) not in self._read:
                    found.setdefault(file.path, whole[0].path)
        return found

    def _pieces(self, whole: _File) -> tuple[list[_File], list[_File]]:
        """Return the files that are pieces of the file `whole`, and the pieces that together have all content of
        `whole`. Raise OSError if a file cannot be read."""
        begins = partial(self._beginning_with, whole)
        at_end: dict[int, list[PieceFile[_File]]] = {}
        alike = self._end.get(whole.last or b"", ())
        for file in alike if len(alike) <= ALIKE_MAX else ():
            begin = self._size(whole) - (file.size or 0)
            if begin > 0 and whole.has(file.head, begin) and (piece := self._piece(file)):
                at_end.setdefault(self._size(whole) - piece.size, []).append(piece)
        if not at_end and next(begins(whole.head, 0), None) is None:
            return [], []
        cover = Cover[_File](begins, at_end)
        for data in chunks(whole.path):
            if data is None:
                return [], []
            cover.feed(data)
            if cover.is_over:
                break
        return cover.found(dated=self._format.dated(whole.head))

    def _beginning_with(self, whole: _File, data: bytes, at: int) -> Iterator[PieceFile[_File]]:
        """Yield the files that may be a piece of the file `whole`, beginning at its offset `at`. `data` are the bytes
        of `whole` at this offset."""
        alike: list[_File] = []
        for size in self._short:
            same = self._begin.get(data[:size], [])
            if len(same) > ALIKE_MAX:
                same = self._begin.get(data[:BEGINNING], [])
            alike += same if len(same) <= ALIKE_MAX else []
        for file in alike:
            if file is whole or not data.startswith(file.head):
                continue
            if file.last and not whole.has(file.last, at + (file.size or 0) - len(file.last)):
                continue
            piece = self._piece(file)
            if piece is not None and (at or piece.size != self._size(whole)):
                yield piece

    def _piece(self, file: _File) -> PieceFile[_File] | None:
        """Return a file as a possible piece of a longer file, with its size and checksum; None if the file is empty or
        damaged. Raise OSError if it cannot be read."""
        if file.path not in self._sums:
            size = crc = 0
            for data in chunks(file.path):
                if data is None:
                    size = 0
                    break
                crc = checksum(crc, data, size)
                size += len(data)
            self._sums[file.path] = (size, crc) if size else None
        known = self._sums[file.path]
        return PieceFile(file, file.head, *known) if known else None

    def _size(self, file: _File) -> int:
        if file.size is not None:
            return file.size
        piece = self._piece(file)
        return piece.size if piece else 0

    def _may_leave_out(self, piece: _File, whole: _File) -> bool:
        """Return whether the import may leave out a file that is a piece of the file `whole`: no earlier import has
        read it, and it has no metadata files that could differ from those of `whole`."""
        if spelled(piece.path) in self._read:
            return False
        place = posixpath.dirname(piece.path)
        return place == posixpath.dirname(whole.path) or not any(
            os.path.lexists(posixpath.join(place, name))
            for name in self._format.documents(piece.path)
        )


def _file(path: str) -> _File:
    with opened(path) as fd:
        if os.pread(fd, len(MAGIC), 0) == MAGIC:
            return _File(path, inflated(fd, BEGINNING), None, None)
        size = os.fstat(fd).st_size
        last = os.pread(fd, HEAD, size - HEAD) if size >= HEAD else None
        return _File(path, os.pread(fd, BEGINNING, 0), last, size)


# Each of the three functions below yields files from each group of files with the same first record. If all files of a
# group are equal, the first file is not among them.


def _longer(files: list[str]) -> Iterator[str]:
    """Yield each file that may be a merge of other files: in each group of files with the same first record, all files
    except the file with the fewest records."""
    for alike in _alike(files):
        yield from sorted(alike, key=_records)[1:]


def _merged(files: list[str]) -> Iterator[str]:
    """Yield each file that a tool may have merged from others: in each group of files with the same first record, the
    file with the most records."""
    for alike in _alike(files):
        yield max(reversed(alike), key=_records)


def _supplemented(files: list[str]) -> Iterator[str]:
    """Yield each file that a tool may have copied and extended: in each group of files with the same first record, all
    files except the file with the most records."""
    for alike in _alike(files):
        most = max(alike, key=_records)
        yield from (file for file in alike if file != most)


def _records(file: str) -> int:
    """Return the number of lines with a record in a file, as far as it can be read."""
    count = 0
    with suppress(OSError):  # the error is reported when the file is read later
        for _ in _hashes(file):
            count += 1
    return count


def _alike(files: list[str]) -> list[list[str]]:
    """Return the files in groups of several files with the same first record. Omit files whose names show that they may
    be copies of another of the files: `_Group` compares these."""
    paths, names = set(files), set(map(without_gz, files))
    found: dict[int, list[str]] = {}
    for file in files:
        packed = without_gz(file) != file and without_gz(file) in paths
        if packed or not names.isdisjoint(originals(file)):
            continue
        with suppress(OSError):  # the error is reported when the file is read later
            if (first := next(_hashes(file), None)) is not None:
                found.setdefault(first, []).append(file)
    return [alike for alike in found.values() if len(alike) > 1]


def _pieces(files: list[str], candidates: Container[str]) -> dict[str, str]:
    """Return the candidates that are copies of other files or of parts of them: the other files contain all lines of
    such a candidate. Map each of these candidates to the first other file that contains a line of the candidate."""
    pieces = [file for file in files if file in candidates]
    originals = [file for file in files if file not in candidates] if pieces else []
    if not originals:
        return {}
    unseen: dict[int, str | list[str]] = {}
    """The piece (a file that was split off from another file) that contains a line, by the line's hash. The value is a
    list if several pieces contain the line."""
    left: dict[str, int] = {}
    for piece in pieces:
        with suppress(OSError):  # the error is reported when the file is read later
            if (count := _note(piece, unseen)) is not None:
                left[piece] = count
    found: dict[str, str] = {}
    for original in originals:
        with suppress(OSError):  # the error is reported when `original` is read later
            for each in _hashes(original):
                having = unseen.pop(each, [])
                for piece in [having] if isinstance(having, str) else having:
                    if piece in left:
                        found.setdefault(piece, original)
                        left[piece] -= 1
    return {piece: original for piece, original in found.items() if not left[piece]}


def _note(piece: str, unseen: dict[int, str | list[str]]) -> int | None:
    """Add the lines of a file, which may be a piece of other files, to `unseen` by their hashes. Return the number of
    different lines, or None if `unseen` would exceed `LINES_MAX` lines. Raise OSError if the file cannot be read."""
    count = 0
    for each in _hashes(piece):
        having = unseen.get(each)
        if having is None:
            if len(unseen) >= LINES_MAX:
                return None
            unseen[each] = piece
        elif isinstance(having, list):
            if having[-1] == piece:
                continue
            having.append(piece)
        elif having == piece:
            continue
        else:
            unseen[each] = [having, piece]
        count += 1
    return count


def _hashes(file: str) -> Iterator[int]:
    """Yield the hash of each line with a record in a file, and for each damaged place a hash that no other file has,
    because the records there are unknown. Raise OSError if the file cannot be read."""
    for number, line in enumerate(lines(file)):
        if line is None:
            yield hash((file, number))
        elif record := line.strip(b" \t\r,[]"):
            yield hash(record)
