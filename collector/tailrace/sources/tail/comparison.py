"""Compare the contents of files, to find each file whose content is also in other files: copies, pieces and merged
files.

`split` cuts a file into pieces, `tail` copies its last piece, and `cat` joins files. The events of the long file
and those of the pieces are the same. Names prove nothing, so contents are compared: the long file is read once, and
where a piece ends, another one may begin (`Cover`). A piece at the beginning of a file proves nothing if it is the only
one: two runs of one program may write the same bytes, and one of them may have died early. Such a piece counts if
another one follows, if the pieces are the whole file, or if the bytes state when the run began (`dated`).

Followed files are read while they grow, because nothing distinguishes a piece from a new trace then. Once files no
longer change, they are compared with each other (`Repeats`). In a format whose tools merge traces, the records of a
file are compared with those of other files in any order. If all content of a file is in other files, the source reports
the file to the daemon, and views leave out the file's session. If the file grows later, the report is no longer valid.

Reports never form a circle, so views show each event. In most formats, a report names a longer file as the one that has
the content. In a format whose traces are split and merged, the ledger joins the pieces of a run, and the session that
was read first has the run's gaps. Therefore a report names files that were read earlier.

To bound the work, only files with equal first bytes, last bytes or first records are compared, one at a time, in short
steps."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias, TypeVar

from zlib_ng.zlib_ng import crc32

from tailrace.decoding.contract import Files
from tailrace.sources.source import FileIntake
from tailrace.sources.tail.content import ContentSum, ReadPart, cut
from tailrace.sources.tail.identity import ContentCheck, Trail
from tailrace.sources.tail.location import FileStamp
from tailrace.sources.tail.phase import Phase
from tailrace.spool.payloads import HEAD, UNSAYING

if TYPE_CHECKING:
    from tailrace.sources.tail.follow import Followed

ALIKE_MAX = 16
"""Maximum number of files with equal first or last bytes that are compared. If there are more, none of them counts as a
piece (part) of another file, because each comparison requires a checksum."""

AHEAD = 4096
"""Number of bytes after an offset of the longer file that must be read before the pieces (shorter files) that may begin
at this offset can be found."""

SETTLED = 5.0
"""Time (seconds) without a change after which a file is compared with others."""

RECORD = 150
"""Number of bytes of the first record that are compared to find a merged file and its parts."""

NAMED = 5
"""Maximum number of copies that the daemon's log names for each source."""

_BESIDE = b" \t\r\n,[]"

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Compared:
    """A comparison of a file with another file, of which this source has read at least a part.

    - `part`: the part of the other file that was read; None if the session of that file has ended.
    - `changed_as`: the size and times that the compared file had at the comparison.
    - `trail`: the bytes that are equal so far.
    - `found`: the result; None while the comparison is unfinished."""

    def __init__(
        self,
        part: ReadPart | None,
        changed_as: FileStamp | None = None,
        trail: Trail | None = None,
    ) -> None:
        self.part = part
        self.changed_as = changed_as
        self.trail = trail or Trail()
        self.check = ContentCheck(self.trail)
        self.found: bool | None = None

    @property
    def taken(self) -> int:
        """Return the number of bytes that were read from the other file, with which this file is compared."""
        return (self.part or self).trail.offset


class CopyProof:
    """A comparison, in steps, that proves by equal checksums that an unchanged file is a copy of another file, or of
    the beginning of a longer file."""

    def __init__(self, fd: int) -> None:
        self.is_found = False
        self._content: ContentSum | Trail | None = ContentSum(fd)
        self._checks: dict[ReadPart, ContentCheck | bool] = {}
        """For each read part of another file, the comparison of this file with the part or, once it is finished, the
        result."""

    @property
    def is_summing(self) -> bool:
        """Return whether the file's checksum is still being computed, which may need a decompressor."""
        return isinstance(self._content, ContentSum)

    @property
    def content_size(self) -> int | None:
        """Return the size (bytes) of the file's content; None until the content's checksum is computed, and if the
        content is damaged."""
        return self._content.offset if isinstance(self._content, Trail) else None

    def step(self, fd: int, size: int, other: Followed, part: ReadPart) -> bool | None:
        """Continue the comparison with the read part of `other`. Return whether this file is a copy; None while
        unfinished. Raise OSError if a file cannot be read."""
        if isinstance(self._content, ContentSum):
            whole = self._content.step(fd, size)
            if whole is not None:
                self._content = self._content.trail if whole else None
            return None if whole is not False else False
        if self._content is None:
            return False
        check = self._checks.get(part)
        if check is None:
            check = self._checks[part] = _comparison(self._content, other, part)
        if isinstance(check, ContentCheck):
            found = check.step(other.location.open())
            if found is None:
                return None
            check = self._checks[part] = found
        self.is_found |= check
        return check


def _comparison(own: Trail, other: Followed, part: ReadPart) -> ContentCheck | bool:
    """Return whether the content read from `other` begins with the content `own`. If the known checksums do not decide
    this, return a check that reads `other` again."""
    read = other.handoff.content
    if other.handoff.lost or own.crc is None or own.offset > read.offset:
        return False
    if own.offset == read.offset and read.crc is not None:
        return own.crc == read.crc
    return ContentCheck(own) if part.is_plain else False


class PieceFile(NamedTuple, Generic[T]):
    """A file that may be a piece (part) of another file. The fields are the file's first bytes (up to `AHEAD`), its
    size, which is not 0, and the checksum of its content without the first `UNSAYING` bytes."""

    file: T
    head: bytes
    size: int
    crc: int


class _Candidate(Generic[T]):
    """A byte range of the long file, from the offset `begin` on, that may equal the content of a piece (shorter
    file)."""

    def __init__(self, piece: PieceFile[T], begin: int) -> None:
        self.piece = piece
        self.begin = begin
        self.end = begin + piece.size
        self.crc = 0

    def add(self, data: bytes, at: int) -> None:
        self.crc = crc32(data[max(0, self.begin + UNSAYING - at) :], self.crc)


class Cover(Generic[T]):
    """Finds other files (pieces) whose content is a part of the content of a long file. `feed` takes this content part
    by part.

    The function `beginning_with` returns the files whose content may begin at a given offset of the long file. Its
    arguments are the bytes from this offset on (`AHEAD`, or fewer at the end of the file) and the offset. `at_end` has
    the files that may be the last piece, by the offset of the long file at which this piece would begin."""

    def __init__(
        self,
        beginning_with: Callable[[bytes, int], Iterable[PieceFile[T]]],
        at_end: Mapping[int, list[PieceFile[T]]],
    ) -> None:
        self._beginning_with = beginning_with
        self._at_end = {begin: pieces for begin, pieces in at_end.items() if begin > 0}
        self._data = b""
        self._at = 0
        self._open: list[_Candidate[T]] = []
        self._found: dict[int, list[_Candidate[T]]] = {0: []}
        """Byte ranges of the long file that equal a piece (shorter file), by the offset at which the range ends."""
        self._heads: dict[int, bytes] = {}
        """The bytes (at most `HEAD`) that follow a piece (shorter file) in the long file, by the offset at which the
        piece ends."""
        self._times: Counter[PieceFile[T]] = Counter()
        """How often each piece (shorter file) was found. At most `ALIKE_MAX` times are counted, because a file may
        repeat one record."""

    @property
    def is_over(self) -> bool:
        """Return whether no further piece (file with a part of the content) can be found."""
        return not self._open and not self._at_end and self._at not in self._found

    @property
    def is_vain(self) -> bool:
        """Return whether no piece (file with a part of the content) was found, and none can be found any more."""
        return self.is_over and len(self._found) == 1

    @property
    def awaited(self) -> list[bytes]:
        """Return, for each piece (file with a part of the content) that was found, the bytes (at most `HEAD`) that
        follow it in the long file. Another piece may begin with these bytes."""
        return [self._heads[end] for end in self._found if end and end in self._heads]

    def feed(self, data: bytes) -> None:
        self._data += data
        self._go(self._at + max(0, len(self._data) - AHEAD))

    def found(self, *, dated: bool) -> tuple[list[T], list[T]]:
        """Return two lists of pieces: all that count as parts of the long file, and those that together are the whole
        long file, in order. A piece at the beginning of the long file counts only if `dated`, or if another piece that
        counts follows it. The second list is empty if no pieces together are the whole file. Pass all content of the
        file to `feed` before this call; this is not necessary if `is_over`."""
        if not self.is_over:
            self._go(self._at + len(self._data))
        whole: list[_Candidate[T]] = []
        end = 0 if self._data else self._at
        while end and self._found.get(end):
            whole.append(self._found[end][0])
            end = whole[-1].begin
        whole = [] if end else whole[::-1]
        pieces = dict.fromkeys(
            place
            for place in chain.from_iterable(self._found.values())
            if place.piece.size >= HEAD and (place.begin or dated)
        )
        pieces |= dict.fromkeys(whole)
        left = list(pieces)
        # A found piece (file with a part of the content) also counts if it ends where a counting piece begins.
        while left:
            before = [p for p in self._found.get(left.pop().begin, []) if p not in pieces]
            pieces |= dict.fromkeys(before)
            left += before
        return _files(pieces), _files(whole)

    def _go(self, stop: int) -> None:
        """Compare the long file's content with possible pieces up to the offset `stop`."""
        while self._at < stop:
            begun = self._at_end.pop(self._at, [])
            if self._at in self._found:
                self._heads[self._at] = self._data[:HEAD]
                begun = [*begun, *self._beginning_with(self._data[:AHEAD], self._at)]
            same = (piece for piece in dict.fromkeys(begun) if self._data.startswith(piece.head))
            self._open += [_Candidate(piece, self._at) for piece in same]
            end = min([stop, *self._at_end, *(place.end for place in self._open)])
            part = self._data[: end - self._at]
            for place in self._open:
                place.add(part, self._at)
            self._data, self._at = self._data[len(part) :], end
            for place in [each for each in self._open if each.end == end]:
                self._open.remove(place)
                if place.crc == place.piece.crc and self._times[place.piece] < ALIKE_MAX:
                    self._times[place.piece] += 1
                    self._found.setdefault(end, []).append(place)


def _files(places: Iterable[_Candidate[T]]) -> list[T]:
    return list(dict.fromkeys(place.piece.file for place in places))


class ReadContent(NamedTuple):
    """The size and the checksum of a file's content."""

    size: int
    crc: int


FileIndex: TypeAlias = "dict[bytes, dict[Followed, None]]"
IndexPlace: TypeAlias = tuple[FileIndex, bytes]


class RecordSum:
    """Sums the hashes of a file's records, so that their order does not matter, and collects the files whose first
    record is among these records. A line of more than `LINE_MAX` bytes counts as several records."""

    def __init__(self, firsts: FileIndex) -> None:
        self.total = 0
        self.files: dict[Followed, None] = {}
        self._firsts = firsts
        self._left = b""

    def feed(self, data: bytes) -> None:
        *lines, last = (self._left + data).split(b"\n")
        *full, self._left = cut(last)
        self._add(chain(chain.from_iterable(map(cut, lines)), full))

    def end(self) -> int:
        self._add([self._left])
        self._left = b""
        return self.total

    def _add(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            if record := line.strip(_BESIDE):
                self.total += hash(record)
                if (first := record[:RECORD]) in self._firsts:
                    self.files |= self._firsts[first]


class Repeats:
    """The files of one source that do not change at present, and the comparisons between them."""

    def __init__(self, source: str, files: Files, intake: FileIntake) -> None:
        self._source = source
        self._files = files
        self._intake = intake
        self._settled: dict[Followed, ReadContent] = {}
        self._begin: FileIndex = {}
        self._end: FileIndex = {}
        self._first: FileIndex = {}
        """Files by their first record, in a format whose tools merge traces."""
        self._awaiting: FileIndex = {}
        """Files for which pieces (files with a part of the content) were found, by the bytes with which a further piece
        would begin."""
        self._places: dict[Followed, list[IndexPlace]] = {}
        """For each file, its entries in the indexes `_begin`, `_end`, `_first` and `_awaiting`."""
        self._queue: dict[Followed, None] = {}
        self._steps: Iterator[None] | None = None
        self._named = 0

    @property
    def has_work(self) -> bool:
        return bool(self._queue) or self._steps is not None

    @property
    def due(self) -> float:
        """Return the time at which the next step is due: minus infinity if there is work to do now, otherwise
        infinity."""
        return float("-inf") if self.has_work else float("inf")

    def settle(self, file: Followed, now: float) -> None:
        """Let `step` compare a file that has not changed for `SETTLED` seconds with other unchanged files, once."""
        if now - file.location.changed_at < SETTLED or (known := _content(file)) is None:
            return
        if self._settled.get(file) == known:
            return
        self.forget(file)
        self._settled[file] = known
        self._places[file] = self._keys(file)
        for index, key in self._places[file]:
            alike = index.setdefault(key, {})
            alike[file] = None
            if 1 < len(alike) <= ALIKE_MAX:
                self._queue |= alike
        self._queue |= self._awaiting.pop(file.handoff.content.head, {})

    def forget(self, file: Followed) -> None:
        self._queue.pop(file, None)
        self._settled.pop(file, None)
        for index, key in self._places.pop(file, ()):
            if key in index:
                index[key].pop(file, None)
                if not index[key]:
                    del index[key]

    def step(self) -> None:
        """Compare the next bytes. If a file cannot be read, end the comparison and raise OSError."""
        if self._steps is None:
            if not self._queue:
                return
            file = next(iter(self._queue))
            del self._queue[file]
            self._steps = self._compare(file)
        steps, self._steps = self._steps, None
        if next(steps, self) is not self:
            self._steps = steps

    def _keys(self, file: Followed) -> list[IndexPlace]:
        content = file.handoff.content
        keys: list[IndexPlace] = [(self._begin, content.head)]
        if content.offset >= HEAD:
            keys.append((self._end, content.last))
        if self._files.pieces:
            first = content.head.lstrip(_BESIDE)
            record, ended, _ = first.partition(b"\n")
            if ended or len(record) >= RECORD:
                keys.append(
                    (self._first, record.rstrip(_BESIDE)[:RECORD] if ended else record[:RECORD])
                )
        return keys

    def _compare(self, whole: Followed) -> Iterator[None]:
        """Find, in steps, the files that have a part of the content of the file `whole` (pieces) and the files that
        were merged into it (parts). Report them to the daemon."""
        if whole not in self._settled:
            return
        at_end = self._ending_with(whole)
        if not at_end and not self._is_begun(whole):
            return
        cover = Cover(partial(self._beginning_with, whole), at_end)
        records = RecordSum(self._first) if self._files.pieces else None

        def take(data: bytes) -> None:
            cover.feed(data)
            if records:
                records.feed(data)

        if not (yield from self._read(whole, take, lambda: cover.is_vain and not records)):
            return
        pieces, parts = cover.found(dated=self._files.dated(whole.handoff.content.head))
        if records and not parts:
            parts = yield from self._parts(whole, records)
        if records:
            self._report_later(whole, pieces, parts)
        else:
            for piece in pieces:
                self._report(piece, [whole])
        for head in cover.awaited if whole in self._places else ():
            self._awaiting.setdefault(head, {})[whole] = None
            self._places[whole].append((self._awaiting, head))

    def _parts(self, whole: Followed, records: RecordSum) -> Generator[None, None, list[Followed]]:
        """Return the files that together have exactly the records of the file `whole`, in any order. Return an empty
        list if there are no such files."""
        total, parts = records.end(), [file for file in records.files if file is not whole]
        for part in parts:
            own = RecordSum({})
            if not (yield from self._read(part, own.feed)):
                return []
            total -= own.end()
        return parts if not total else []

    def _read(
        self, file: Followed, take: Callable[[bytes], object], is_enough: Callable[[], bool] = bool
    ) -> Generator[None, None, bool]:
        """Pass the content of a file to `take` in steps, until `is_enough` returns True. Return whether all content was
        passed and equals the content that the source has read."""
        if (known := self._settled.get(file)) is None:
            return False
        content = ContentSum(file.location.open(), take)
        while (sound := content.step(file.location.open(), file.size)) is None:
            if is_enough():
                return False
            yield
            if self._settled.get(file) != known:
                # Do not open the file again: the source may have forgotten it, and would not close it.
                return False
        return sound and (content.trail.offset, content.trail.crc) == known

    def _report_later(self, whole: Followed, pieces: list[Followed], parts: list[Followed]) -> None:
        """Report to the daemon which files are copies. If the file `whole` was read after all `parts` (the files that
        were merged into it), `whole` is the copy. If it was read before all of them, the parts are copies, and so are
        the `pieces` that were read after it. Only the session that was read first has the gaps of a run
        (`ledger.split_runs`)."""
        if parts and all(_number(part) < _number(whole) for part in parts):
            self._report(whole, parts)
        elif all(_number(part) > _number(whole) for part in parts):
            for piece in dict.fromkeys([*pieces, *parts]):
                if _number(piece) > _number(whole):
                    self._report(piece, [whole])

    def _is_begun(self, whole: Followed) -> bool:
        """Return whether another file may be a copy of the beginning of the file `whole`, or begins with the same first
        record."""
        head = whole.handoff.content.head
        if any(True for _ in self._beginning_with(whole, head, 0)):
            return True
        return any(
            1 < len(index[key]) <= ALIKE_MAX
            for index, key in self._keys(whole)
            if index is self._first
        )

    def _beginning_with(
        self, whole: Followed, data: bytes, at: int
    ) -> Iterator[PieceFile[Followed]]:
        """Yield the files whose content may begin at the offset `at` of the file `whole`. `data` has the bytes from
        there on."""
        for size in range(1, min(len(data), HEAD) + 1):
            alike = self._begin.get(data[:size], {})
            for file in alike if len(alike) <= ALIKE_MAX else ():
                piece, last = self._piece(file), file.handoff.content.last
                is_other = file is not whole and (at or piece.size < self._settled[whole].size)
                if is_other and whole.has(last, at + piece.size - len(last)):
                    yield piece

    def _ending_with(self, whole: Followed) -> dict[int, list[PieceFile[Followed]]]:
        """Return the files that may be copies of the end of the file `whole`, by the offset at which this copied end
        would begin."""
        found: dict[int, list[PieceFile[Followed]]] = {}
        alike = self._end.get(whole.handoff.content.last, {})
        for file in alike if len(alike) <= ALIKE_MAX else ():
            piece = self._piece(file)
            begin = self._settled[whole].size - piece.size
            if begin > 0 and whole.has(piece.head, begin):
                found.setdefault(begin, []).append(piece)
        return found

    def _piece(self, file: Followed) -> PieceFile[Followed]:
        return PieceFile(file, file.handoff.content.head, *self._settled[file])

    def _report(self, file: Followed, others: list[Followed]) -> None:
        """Report to the daemon that the files `others` together have all content of `file`, unless one of the files has
        changed."""
        if file.copied_in or any(self._settled.get(f) != _content(f) for f in (file, *others)):
            return
        file.repeats(tuple(self._intake.session(_number(other)) for other in others))
        self._named += 1
        if self._named <= NAMED:
            logger.info(
                "source %s: all content of %r is in %r%s; views leave out the copy; the first %d are named",
                self._source, file.location.path, others[0].location.path,
                f" and {len(others) - 1} more" if len(others) > 1 else "", NAMED,
                extra={"source": self._source},
            )  # fmt: skip


def _number(file: Followed) -> int:
    """Return the number of a file's session. Later sessions have higher numbers."""
    return -1 if file.handoff.number is None else file.handoff.number


def _content(file: Followed) -> ReadContent | None:
    """Return the content that was read from a file; None if bytes of it are unread or lost."""
    handoff = file.handoff
    read = handoff.content
    if file.phase is not Phase.FOLLOWED or handoff.number is None or handoff.lost or file.has_more:
        return None
    return ReadContent(read.offset, read.crc) if read.offset and read.crc is not None else None
