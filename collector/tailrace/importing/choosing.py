"""Choose the files that an import reads: only files with new content, and each content only once.

A file is compared with the other given files, and with the files that earlier imports read. There are four cases:

- Copy: both files have the same content, and the directories of both have metadata files with the same content
  (`Files.documents`). The file is left out.
- Later state: the file's content begins with the other file's content, and both belong to one stream: they have the
  same inode, or their names show it (`Files.copy`). The file is read again, and its new session replaces the earlier
  session.
- Piece: other files contain the whole content of the file (see `pieces`). The file is left out.
- Other content: the file is read into a session of its own.

So a repeated import stores nothing, unless a file has changed.

Many traces begin alike, so a few equal bytes prove little. Two files whose paths and inodes differ count as one stream
only if at least `HEAD` bytes are equal, or all bytes of both.

To save time, whole contents are compared only if the first bytes and, for uncompressed files, the sizes are equal.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Generic, NamedTuple, TypeVar

from zlib_ng.zlib_ng import crc32

from tailrace.decoding.contract import originals, without_gz
from tailrace.decoding.formats import FORMATS
from tailrace.importing.discover import LeftOut, Why
from tailrace.importing.pieces import contained
from tailrace.importing.readings import AsRead, Reading
from tailrace.model.spelling import spelled
from tailrace.sources.tail.content import Fingerprint, beginning, fingerprint
from tailrace.sources.tail.inflate import MAGIC
from tailrace.sources.tail.location import OPEN
from tailrace.spool.payloads import HEAD

Node = tuple[int, int]

Prints = dict[str, Fingerprint | None]
"""Fingerprint (size and checksums) of each file, by path. None for a file that cannot be read."""


class TakenFile(NamedTuple):
    """A file that the import reads.

    - `source`: the source of an interrupted import that has begun to read the file, or None.
    - `replaces`: the earlier sessions that the file's new session replaces."""

    path: str
    format: str
    source: str | None = None
    replaces: tuple[str, ...] = ()


class Choice(NamedTuple):
    taken: list[TakenFile]
    left_out: list[LeftOut]


def choose(
    traces: Mapping[str, Iterable[str]], readings: Iterable[Reading], *, again: bool
) -> Choice:
    """Choose the files that the import reads. Leave out each file whose content an earlier import has read, unless
    `again` is true.

    `traces` are the found trace files, by format. `readings` are the sessions of earlier imports, each with the file
    that it has read."""
    choice = Choice([], [])
    readings = [reading for reading in readings if not (again and reading.closed)]
    nodes: dict[Node, str] = {}
    for format_, files in traces.items():
        own: list[str] = []
        for file in files:
            first = nodes.setdefault(_node(file), file)
            if first == file:
                own.append(file)
            else:
                choice.left_out.append(_left_out(file, Why.COPY, first))
        known = _Known(readings)
        copies = contained(own, FORMATS[format_].files, {each.file.path for each in readings})
        choice.left_out.extend(_left_out(file, Why.COPY, of) for file, of in copies.items())
        own = [file for file in own if file not in copies]
        for group in _groups(format_, own):
            _Group(format_, group, *known.of(format_, group)).choose(choice)
    return choice


def _groups(format_: str, files: list[str]) -> list[list[str]]:
    """Return the files in groups. Each file is in one group.

    The files of a group may contain the same stream, according to their names or first bytes."""
    above = {file: file for file in files}
    first: dict[object, str] = {}

    def top(file: str) -> str:
        while above[file] != file:
            above[file] = above[above[file]]
            file = above[file]
        return file

    begins = {file: _begin(file) for file in files}
    named: dict[str, list[str]] = {}
    for file in files:
        named.setdefault(without_gz(file), []).append(file)
    packed = {begin.head for begin in begins.values() if begin.packed}
    for file in files:
        head, size, _, start = begins[file]
        keys: list[object] = [FORMATS[format_].files.copy(file)]
        if head is not None:
            keys.append((head, None if head in packed else size))
        for key in keys:
            above[top(file)] = top(first.setdefault(key, file))
        # Names that are derived from each other do not prove a copy: the files of different ranks or processes may have
        # such names, too. Therefore also compare the first bytes.
        for other in chain.from_iterable(named.get(original, ()) for original in originals(file)):
            if start is not None and start == begins[other].start:
                above[top(file)] = top(other)
    groups: dict[str, list[str]] = {}
    for file in files:
        groups.setdefault(top(file), []).append(file)
    return list(groups.values())


class _FileBegin(NamedTuple):
    """The beginning and the size of a file, by which `_groups` groups files that may be copies of each other.

    - `head`: the hash of the first content bytes (`beginning`), or None if the file is empty or cannot be read.
    - `start`: the hash of the first `HEAD` content bytes, or None if there are fewer.
    - `size`: the file's size (bytes).
    - `packed`: whether the file is compressed."""

    head: int | None
    size: int
    packed: bool
    start: int | None = None


def _begin(file: str) -> _FileBegin:
    try:
        fd = os.open(file, OPEN)
        try:
            head, size = beginning(fd), os.fstat(fd).st_size
            start = hash(head[:HEAD]) if len(head) >= HEAD else None
            packed = os.pread(fd, 2, 0) == MAGIC
            return _FileBegin(hash(head) if head else None, size, packed, start)
        finally:
            os.close(fd)
    except OSError:  # Ignore this error: it is reported when the file is read later.
        return _FileBegin(None, 0, packed=False)


class _Known:
    """Index of the files that earlier imports have read, by file name, inode and content (size and checksum)."""

    def __init__(self, readings: list[Reading]) -> None:
        self._by_content: dict[tuple[int, int | None], list[Reading]] = {}
        self._by_key: dict[str, list[Reading]] = {}
        self._by_original: dict[str, list[Reading]] = {}
        self._by_node: dict[tuple[int | None, int], list[Reading]] = {}
        for reading in readings:
            file = reading.file
            key = FORMATS[reading.format].files.copy(file.path)
            self._by_key.setdefault(key, []).append(reading)
            for original in originals(file.path):
                self._by_original.setdefault(original, []).append(reading)
            self._by_node.setdefault((file.device, file.inode), []).append(reading)
            self._by_content.setdefault((file.size, file.crc), []).append(reading)
        self._sizes = {size for size, _ in self._by_content}
        self._longest = max(self._sizes, default=-1)

    def of(self, format_: str, files: list[str]) -> tuple[list[Reading], Prints]:
        """Return the sessions of earlier imports that may have read one of these files (`Reading`). Also return the
        fingerprints of those files that an earlier import may have read."""
        found: dict[int, Reading] = {}
        prints: Prints = {}
        for file in files:
            key = spelled(FORMATS[format_].files.copy(file))
            near = [*self._by_key.get(key, ()), *self._by_node.get(_node(file), ())]
            near += self._by_original.get(without_gz(spelled(file)), ())
            for original in originals(spelled(file)):
                near += self._by_key.get(original, ())
            begin = _begin(file)
            if near or begin.size in self._sizes or (begin.packed and self._longest > 0):
                mine = prints[file] = _print(file, [reading.file.size for reading in near])
                near += self._by_content.get((mine.size, mine.crc), ()) if mine else ()
            found |= {id(reading): reading for reading in near}
        return list(found.values()), prints


T = TypeVar("T")


class _Kin(Generic[T]):
    """Index that stores values for files, such as sizes. The method `of` returns the values of a file, and those of all
    files that may be its copies or originals, according to the names of the files.

    The index replaces a search through all files: a directory may contain thousands of files with equal first bytes."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], list[T]] = {}

    def add(self, file: str, key: str, what: T) -> None:
        """Store the value `what` for a file. The method `of` returns it for this file and for its possible copies and
        originals.

        `key` is the result of `Files.copy` for this file. Files with equal keys may contain one stream."""
        name = without_gz(spelled(file))
        for mark in {("name", name), ("key", key), *(("copy of", of) for of in originals(name))}:
            self._found.setdefault(mark, []).append(what)

    def of(self, file: str, key: str) -> list[T]:
        name = without_gz(spelled(file))
        marks = {("name", name), ("key", key), ("copy of", name)}
        marks |= {("name", of) for of in originals(name)}
        return [what for mark in marks for what in self._found.get(mark, ())]


class _Group:
    """A group of files that may be copies of each other, and the sessions of earlier imports that may have read these
    files (`Reading`)."""

    def __init__(
        self, format_: str, files: list[str], readings: list[Reading], prints: Prints
    ) -> None:
        self._format = format_
        self._files = files
        begun = [each for each in readings if not each.closed and each.format == format_]
        self._going_on = {
            file: reading for file in files for reading in begun if _is_at(reading.file, file)
        }
        going_on = set(map(id, self._going_on.values()))
        self._readings = [reading for reading in readings if id(reading) not in going_on]
        self._read = _Kin[Reading]()
        self._read_at: dict[tuple[int | None, int], list[Reading]] = {}
        for reading in self._readings:
            read = reading.file
            self._read.add(read.path, self._key(read.path), reading)
            self._read_at.setdefault((read.device, read.inode), []).append(reading)
        self._by_content: dict[tuple[int, int | None], list[Reading]] = {}
        for reading in self._readings:
            read = reading.file
            self._by_content.setdefault((read.size, read.crc), []).append(reading)
        self._prints = prints
        self._documents_of: dict[str, dict[str, int]] = {}

    def choose(self, choice: Choice) -> None:
        kept: dict[str, int] = {}
        kin, twins = _Kin[str](), dict[object, str]()
        for file in self._in_order():
            mine = self._prints.get(file)
            content = mine and (mine.size, mine.crc, *sorted(self._documents(file).items()))
            alike = [twins[content]] if mine and content in twins else []
            near = sorted({*kin.of(file, self._key(file)), *alike}, key=kept.__getitem__)
            original = next((other for other in near if self._is_copy(file, other)), None)
            same = next(self._same(file), None)
            if reading := self._going_on.get(file):
                choice.taken.append(TakenFile(file, self._format, reading.source))
            elif original is not None:
                choice.left_out.append(_left_out(file, Why.COPY, original))
                continue
            elif same is not None:
                choice.left_out.append(_imported(file, same, self._format))
            else:
                choice.taken.append(TakenFile(file, self._format, None, tuple(self._begun(file))))
            kept[file] = len(kept)
            kin.add(file, self._key(file), file)
            if mine:
                twins.setdefault(content, file)

    def _in_order(self) -> list[str]:
        """Return the files of the group in the order in which `choose` decides about them.

        Files that an interrupted import has begun to read come first. After them come the largest files, because a
        longer file may begin with the whole content of a shorter one. Among files of equal size, a file precedes the
        files whose names are derived from its name."""
        if len(self._files) == 1 and not self._readings:
            return self._files
        if len(self._files) > 1:
            sizes = _Kin[int]()
            for file in self._files:
                if known := self._prints.get(file) or _print(file, ()):
                    sizes.add(file, self._key(file), known.size)
            for file in self._files:
                near = [reading.file.size for reading in self._near(file)]
                self._prints[file] = _print(file, [*sizes.of(file, self._key(file)), *near])
        return sorted(
            self._files,
            key=lambda file: (
                file not in self._going_on,
                -self._size(file),
                len(originals(file)),
            ),
        )

    def _size(self, file: str) -> int:
        known = self._prints[file]
        return known.size if known else 0

    def _is_copy(self, file: str, other: str) -> bool:
        """Return whether `file` is a copy of the file `other`: `other` begins with all content of `file`, and the paths
        or the metadata files show that both contain one stream."""
        mine, its = self._prints[file], self._prints[other]
        if mine is None or its is None or not its.begins_with(mine.size, mine.crc):
            return False
        if _in_one_place(file, other, mine.size, its.size):
            return True
        if mine.size < its.size:
            return mine.size >= HEAD and self._key(file) == self._key(other)
        return self._documents(file) == self._documents(other)

    def _same(self, file: str) -> Iterator[Reading]:
        """Yield the sessions of earlier imports that have completely read a file whose content and metadata files equal
        those of `file`."""
        mine = self._prints.get(file)
        if mine is None:
            return
        for reading in self._by_content.get((mine.size, None), ()):
            if reading.closed and _is_as_earlier_versions_knew(reading.file, file):
                yield reading
        for reading in self._by_content.get((mine.size, mine.crc), ()):
            if reading.closed and (
                reading.format != self._format or reading.file.documents == self._documents(file)
            ):
                yield reading

    def _begun(self, file: str) -> Iterator[str]:
        """Yield the sessions of earlier imports that have read only the first part of `file`, because it was shorter
        then."""
        mine = self._prints.get(file)
        for reading in self._near(file):
            read = reading.file
            if mine is None or read.size > mine.size or reading.format != self._format:
                continue
            if read.crc is None:
                begins = _is_as_earlier_versions_knew(read, file)
            else:
                begins = mine.begins_with(read.size, read.crc)
            here = _is_at(read, file) or _in_one_place(file, read.path, read.size, mine.size)
            goes_on = HEAD <= read.size < mine.size and self._key(file) == self._key(read.path)
            if begins and (here or goes_on):
                yield reading.session

    def _near(self, file: str) -> list[Reading]:
        """Return the sessions of earlier imports that may have read `file`, a copy of it, or its original. The names
        and inodes of the files decide."""
        found = [*self._read.of(file, self._key(file)), *self._read_at.get(_node(file), ())]
        return list({id(reading): reading for reading in found}.values())

    def _key(self, file: str) -> str:
        return spelled(FORMATS[self._format].files.copy(file))

    def _documents(self, file: str) -> dict[str, int]:
        """Return, by file name, the checksums of those metadata files beside `file` that belong to it. Metadata files
        that exceed the format's size limit are left out."""
        if (known := self._documents_of.get(file)) is not None:
            return known
        files = FORMATS[self._format].files
        found = self._documents_of[file] = {}
        for name in files.documents(file):
            data = _content(posixpath.join(posixpath.dirname(file), name), files.document_max)
            if data is not None:
                found[spelled(name)] = crc32(data)
        return found


def _print(file: str, sizes: Iterable[int]) -> Fingerprint | None:
    """Return the fingerprint of a file, or None if the file cannot be read. The error is reported when the file is read
    later."""
    try:
        return fingerprint(file, sizes)
    except OSError:
        return None


def _content(path: str, limit: int) -> bytes | None:
    """Return the content of a file. Return None if the file has more than `limit` bytes or cannot be read."""
    try:
        with os.fdopen(os.open(path, OPEN), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            data = file.read(limit + 1)
    except OSError:
        return None
    return data if len(data) <= limit else None


def _in_one_place(file: str, other: str, size: int, whole: int) -> bool:
    """Return whether the paths of two files show that both may contain the same stream. A suffix `.gz` is ignored.

    The paths must be equal, or one must be a name that log rotation or compression gives to a copy of the other
    (`originals`). The caller has found that the first `size` bytes of the files are equal. If the paths differ, `size`
    must be at least `HEAD` or equal to `whole`, the size of the longer file."""
    file, other = without_gz(spelled(file)), without_gz(spelled(other))
    if file == other:
        return True
    enough = size >= HEAD or size == whole
    return enough and (file in originals(other) or other in originals(file))


def _is_at(read: AsRead, file: str) -> bool:
    """Return whether `file` has the path or the inode of the file that a session has read.

    The contents are not compared."""
    return read.path == spelled(file) or (read.device, read.inode) == _node(file)


def _is_as_earlier_versions_knew(read: AsRead, file: str) -> bool:
    """Return whether `file` has the path and the inode of the file that a session has read.

    This comparison is for sessions of earlier versions of Tailrace, which stored no checksum of the content."""
    return read.path == spelled(file) and read.inode == _node(file)[1]


def _node(file: str) -> Node:
    """Return the device and the inode of a file. If the file does not exist, return a pair that no other file has."""
    try:
        found = os.stat(file)  # noqa: PTH116 - three times as fast
    except OSError:
        return -1, hash(file)
    return found.st_dev, found.st_ino


def _left_out(file: str, why: Why, of: str) -> LeftOut:
    return LeftOut(path=spelled(file), why=why, of=spelled(of))


def _imported(file: str, same: Reading, format_: str) -> LeftOut:
    path = spelled(file)
    of = "" if same.file.path == path else same.file.path
    other = "" if same.format == format_ else same.format
    return LeftOut(path=path, why=Why.IMPORTED, of=of, sessions=(same.session,), format=other)
