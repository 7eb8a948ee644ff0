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
from tailrace.filesystem import spelled
from tailrace.importing.discover import LeftOut, Why
from tailrace.importing.pieces import contained
from tailrace.importing.readings import AsRead, Reading
from tailrace.sources.tail.content import Fingerprint, beginning, fingerprint
from tailrace.sources.tail.inflate import MAGIC
from tailrace.sources.tail.location import OPEN, opened
from tailrace.spool.payloads import HEAD


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
    """Choose the files that the import reads from `traces`, the found files by format. Leave out each file whose content
    a session in `readings` has read, unless `again` is true."""
    choice = Choice([], [])
    readings = [reading for reading in readings if not (again and reading.closed)]
    known = _Known(readings)
    nodes: dict[tuple[int, int], str] = {}
    for format_, files in traces.items():
        own: list[str] = []
        for file in files:
            first = nodes.setdefault(_node(file), file)
            if first == file:
                own.append(file)
            else:
                choice.left_out.append(_left_out(file, Why.COPY, first))
        copies = contained(own, FORMATS[format_].files, {each.file.path for each in readings})
        choice.left_out.extend(_left_out(file, Why.COPY, of) for file, of in copies.items())
        own = [file for file in own if file not in copies]
        for group in _groups(format_, own):
            _Group(format_, group, known).choose(choice)
    return choice


def _groups(format_: str, files: list[str]) -> list[list[str]]:
    """Return the files in groups. Each file is in one group. The files of a group may contain the same stream, according
    to their names or first bytes."""
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

    - `head`: the hash of the first content bytes, at most 4 KiB (`beginning`). None if the file is empty or cannot be
      read.
    - `start`: the hash of the first `HEAD` content bytes, or None if there are fewer.
    - `size`: the file's size (bytes).
    - `packed`: whether the file is compressed."""

    head: int | None
    size: int
    packed: bool
    start: int | None = None


def _begin(file: str) -> _FileBegin:
    try:
        with opened(file) as fd:
            head, size = beginning(fd), os.fstat(fd).st_size
            start = hash(head[:HEAD]) if len(head) >= HEAD else None
            packed = os.pread(fd, 2, 0) == MAGIC
            return _FileBegin(hash(head) if head else None, size, packed, start)
    except OSError:  # the error is reported when the file is read later
        return _FileBegin(None, 0, packed=False)


T = TypeVar("T")


class _Kin(Generic[T]):
    """Index that stores values for files, such as sizes. The method `of` returns the values of a file, and those of all
    files that may be its copies or originals, according to the names of the files.

    The index replaces a search through all files: a directory may contain thousands of files with equal first bytes.
    The methods take a file together with its key (`_key`). Files with equal keys may contain one stream."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], list[T]] = {}

    def add(self, file: str, key: str, what: T) -> None:
        name = without_gz(spelled(file))
        for mark in {("name", name), ("key", key), *(("copy of", of) for of in originals(name))}:
            self._found.setdefault(mark, []).append(what)

    def of(self, file: str, key: str) -> list[T]:
        name = without_gz(spelled(file))
        marks = [("name", name), ("key", key), ("copy of", name)]
        marks += (("name", of) for of in originals(name))
        return [what for mark in marks for what in self._found.get(mark, ())]


def _key(format_: str, file: str) -> str:
    return spelled(FORMATS[format_].files.copy(file))


class _Known:
    """Index of the sessions of earlier imports, by the name, the inode and the content of each session's file."""

    def __init__(self, readings: list[Reading]) -> None:
        self._kin = _Kin[Reading]()
        self._by_node: dict[tuple[int | None, int], list[Reading]] = {}
        self.by_content: dict[tuple[int, int | None], list[Reading]] = {}
        for reading in readings:
            read = reading.file
            self._kin.add(read.path, _key(reading.format, read.path), reading)
            self._by_node.setdefault((read.device, read.inode), []).append(reading)
            self.by_content.setdefault((read.size, read.crc), []).append(reading)
        self._sizes = {size for size, _ in self.by_content}

    def near(self, format_: str, file: str) -> list[Reading]:
        """Return the sessions that may have read `file`, a copy of it, or its original, to judge by the names and
        inodes."""
        found = [*self._kin.of(file, _key(format_, file)), *self._by_node.get(_node(file), ())]
        return list({id(reading): reading for reading in found}.values())

    def may_have_content(self, file: str) -> bool:
        begin = _begin(file)
        return begin.size in self._sizes or (begin.packed and any(self._sizes))


class _Group:
    """A group of files that may be copies of each other. For each file, the group also has the sessions of earlier
    imports that may have read the file, a copy of it, or its original."""

    def __init__(self, format_: str, files: list[str], known: _Known) -> None:
        self._format = format_
        self._files = files
        self._known = known
        self._keys = {file: _key(format_, file) for file in files}
        near = {file: known.near(format_, file) for file in files}
        self._going_on = {
            file: reading
            for file in files
            for reading in near[file]
            if not reading.closed and reading.format == format_ and _is_at(reading.file, file)
        }
        """The sessions in which an interrupted import has begun to read files."""
        going_on = set(map(id, self._going_on.values()))
        self._near = {
            file: [reading for reading in near[file] if id(reading) not in going_on]
            for file in files
        }
        self._prints = {
            file: _print(file, [reading.file.size for reading in near[file]])
            for file in files
            if near[file] or known.may_have_content(file)
        }
        """Fingerprint (size and checksums) of each file that must be compared. None if it cannot be read."""
        self._documents_of: dict[str, dict[str, int]] = {}

    def choose(self, choice: Choice) -> None:
        kept: dict[str, int] = {}
        kin, twins = _Kin[str](), dict[object, str]()
        for file in self._in_order():
            mine = self._prints.get(file)
            content = mine and (mine.size, mine.crc, *sorted(self._documents(file).items()))
            alike = [twins[content]] if mine and content in twins else []
            near = sorted({*kin.of(file, self._keys[file]), *alike}, key=kept.__getitem__)
            original = next((other for other in near if self._is_copy(file, other)), None)
            same = next(self._same(file), None)
            if reading := self._going_on.get(file):
                choice.taken.append(TakenFile(file, self._format, reading.source))
            elif original is not None:
                choice.left_out.append(_left_out(file, Why.COPY, original))
                continue
            elif same is not None:
                path = spelled(file)
                of = "" if same.file.path == path else same.file.path
                other = "" if same.format == self._format else same.format
                choice.left_out.append(
                    LeftOut(
                        path=path, why=Why.IMPORTED, of=of, sessions=(same.session,), format=other
                    )
                )
            else:
                choice.taken.append(TakenFile(file, self._format, None, tuple(self._begun(file))))
            kept[file] = len(kept)
            kin.add(file, self._keys[file], file)
            if mine:
                twins.setdefault(content, file)

    def _in_order(self) -> list[str]:
        """Return the files of the group in the order in which `choose` decides whether to read them.

        Files that an interrupted import has begun to read come first. After them come the largest files, because a
        longer file may begin with the whole content of a shorter one. Among files of equal size, a file precedes the
        files whose names are derived from its name."""
        if len(self._files) == 1:
            return self._files
        kin, sizes = _Kin[int](), dict.fromkeys(self._files, 0)
        for file in self._files:
            if known := self._prints.get(file) or _print(file, ()):
                sizes[file] = known.size
                kin.add(file, self._keys[file], known.size)
        for file in self._files:
            near = [reading.file.size for reading in self._near[file]]
            self._prints[file] = _print(file, [*kin.of(file, self._keys[file]), *near])

        def order(file: str) -> tuple[bool, int, int]:
            return file not in self._going_on, -sizes[file], len(originals(file))

        return sorted(self._files, key=order)

    def _is_copy(self, file: str, other: str) -> bool:
        """Return whether `other` begins with all content of `file`, and names or metadata show that both are one
        stream."""
        mine, its = self._prints[file], self._prints[other]
        if mine is None or its is None or not its.begins_with(mine.size, mine.crc):
            return False
        if _in_one_place(file, other, mine.size, its.size):
            return True
        if mine.size < its.size:
            return mine.size >= HEAD and self._keys[file] == self._keys[other]
        return self._documents(file) == self._documents(other)

    def _same(self, file: str) -> Iterator[Reading]:
        """Yield the earlier sessions that have completely read a file with the same content and metadata files."""
        mine = self._prints.get(file)
        if mine is None:
            return
        for reading in self._known.by_content.get((mine.size, None), ()):
            if reading.closed and _is_as_earlier_versions_knew(reading.file, file):
                yield reading
        content = mine.size, mine.crc
        # The session of the file itself comes before those of its copies.
        near = (each for each in self._near[file] if (each.file.size, each.file.crc) == content)
        for reading in chain(near, self._known.by_content.get(content, ())):
            if reading.closed and (
                reading.format != self._format or reading.file.documents == self._documents(file)
            ):
                yield reading

    def _begun(self, file: str) -> Iterator[str]:
        """Yield the earlier sessions that have read only the first part of `file`, because it was shorter then."""
        mine = self._prints.get(file)
        for reading in self._near[file]:
            read = reading.file
            if mine is None or read.size > mine.size or reading.format != self._format:
                continue
            if read.crc is None:
                begins = _is_as_earlier_versions_knew(read, file)
            else:
                begins = mine.begins_with(read.size, read.crc)
            here = _is_at(read, file) or _in_one_place(file, read.path, read.size, mine.size)
            goes_on = HEAD <= read.size < mine.size and self._keys[file] == _key(
                self._format, read.path
            )
            if begins and (here or goes_on):
                yield reading.session

    def _documents(self, file: str) -> dict[str, int]:
        """Return, by name, the checksums of the metadata files that belong to `file` and are within the size limit."""
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
    try:
        return fingerprint(file, sizes)
    except OSError:  # the error is reported when the file is read later
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
    """Return whether the paths of two files, whose first `size` bytes are equal, show that both may contain one stream.

    Apart from a suffix `.gz`, they must be equal, or one must be a name that log rotation or compression gives to a copy
    of the other (`originals`). If they differ, `size` must be at least `HEAD`, or `whole`, the longer file's size."""
    file, other = without_gz(spelled(file)), without_gz(spelled(other))
    if file == other:
        return True
    enough = size >= HEAD or size == whole
    return enough and (file in originals(other) or other in originals(file))


def _is_at(read: AsRead, file: str) -> bool:
    """Return whether `file` has the path or the inode of the file that a session has read."""
    return read.path == spelled(file) or (read.device, read.inode) == _node(file)


def _is_as_earlier_versions_knew(read: AsRead, file: str) -> bool:
    """Return whether `file` has the path and the inode of the file that a session has read. Earlier versions of
    Tailrace stored no checksum of its content."""
    return read.path == spelled(file) and read.inode == _node(file)[1]


def _node(file: str) -> tuple[int, int]:
    """Return the device and the inode of a file. If the file does not exist, return a pair that no other file has."""
    try:
        found = os.stat(file)  # noqa: PTH116 - three times as fast
    except OSError:
        return -1, hash(file)
    return found.st_dev, found.st_ino


def _left_out(file: str, why: Why, of: str) -> LeftOut:
    return LeftOut(path=spelled(file), why=why, of=spelled(of))
