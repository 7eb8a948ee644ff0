"""Find followed files whose content other followed files have, too: pieces beside their file, or a joined or merged file
beside its parts.

All of them are read while they grow, because nothing tells a piece from a new trace then. Once files do not change any
more, their contents are compared (`pieces`). In a format whose tools merge traces, the records of a file are compared with
those of other files in any order. A file whose content is in others is reported; readers leave out its session. If the
file grows, the report is void.

Reports have no circle, so each event is in a session that readers show: in most formats, a report names a longer file. In a
format whose traces are split and merged, the ledger joins the pieces of a run, and the session that was read first has its
gaps, so a report names files that were read earlier.

To bound the work, only files whose first or last bytes are equal are compared, one at a time, in short steps."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from functools import partial
from typing import NamedTuple

from tailrace.decoding.contract import Files
from tailrace.sources.source import FileIntake
from tailrace.sources.tail.content import ContentSum
from tailrace.sources.tail.follow import Followed
from tailrace.sources.tail.identity import Trail
from tailrace.sources.tail.phase import Phase
from tailrace.sources.tail.pieces import ALIKE_MAX, Cover, Piece
from tailrace.spool.payloads import HEAD

SETTLED = 5.0
"""Time (seconds) without a change after which a file is compared with others."""

RECORD = 150
"""Number of bytes of a first record by which a merged file and its parts are found."""

NAMED = 5
_BESIDE = b" \t\r\n,[]"

logger = logging.getLogger(__name__)


class Content(NamedTuple):
    """The size and the checksum of a file's content."""

    size: int
    crc: int


Index = dict[bytes, dict[Followed, None]]
Place = tuple[Index, bytes]


class RecordSum:
    """Sums the hashes of a file's records, whatever their order, and finds the first records of other files in it."""

    def __init__(self, firsts: Index) -> None:
        self.total = 0
        self.files: dict[Followed, None] = {}
        self._firsts = firsts
        self._left = b""

    def feed(self, data: bytes) -> None:
        *whole, self._left = (self._left + data).split(b"\n")
        self._add(whole)

    def end(self) -> int:
        self._add([self._left])
        self._left = b""
        return self.total

    def _add(self, lines: list[bytes]) -> None:
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
        self._settled: dict[Followed, Content] = {}
        self._begin: Index = {}
        self._end: Index = {}
        self._first: Index = {}
        """Files by their first record, in a format whose tools merge traces."""
        self._awaiting: Index = {}
        """Files of which the first pieces are known, by the first bytes of the next piece."""
        self._places: dict[Followed, list[Place]] = {}
        """Where each file stands in these indexes."""
        self._queue: dict[Followed, None] = {}
        self._steps: Iterator[None] | None = None
        self._named = 0

    @property
    def has_work(self) -> bool:
        return bool(self._queue) or self._steps is not None

    @property
    def due(self) -> float:
        """Return the time of the next step: now, or never."""
        return float("-inf") if self.has_work else float("inf")

    def settle(self, file: Followed, now: float) -> None:
        """Compare a file that has not changed for `SETTLED` seconds with other such files, unless this was done."""
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
        """Compare the next bytes. Raise OSError if a file cannot be read, and do not compare this file again."""
        if self._steps is None:
            if not self._queue:
                return
            file = next(iter(self._queue))
            del self._queue[file]
            self._steps = self._compare(file)
        steps, self._steps = self._steps, None
        if next(steps, self) is not self:
            self._steps = steps

    def _keys(self, file: Followed) -> list[Place]:
        content = file.handoff.content
        keys: list[Place] = [(self._begin, content.head)]
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
        """Find the pieces and parts of a file, in steps."""
        if (known := self._settled.get(whole)) is None:
            return
        at_end = self._ending_with(whole)
        if not at_end and not self._is_begun(whole):
            return
        cover = Cover[Followed](partial(self._beginning_with, whole), at_end)
        records = RecordSum(self._first) if self._files.pieces else None

        def take(data: bytes) -> None:
            cover.feed(data)
            if records:
                records.feed(data)

        content = ContentSum(whole.location.open(), take)
        while (sound := content.step(whole.location.open(), whole.size)) is None:
            if cover.is_vain and not records:
                return
            yield
        if not sound or not _is_same(content.trail, known):
            return
        pieces, parts = cover.found(dated=self._files.dated(content.trail.head))
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
        """Return the files that together have the records of a file, whatever their order; none if there are none."""
        total, parts = records.end(), [file for file in records.files if file is not whole]
        for part in parts:
            own, known = RecordSum({}), self._settled.get(part)
            content = ContentSum(part.location.open(), own.feed)
            while (sound := content.step(part.location.open(), part.size)) is None:
                yield
            if not sound or known is None or not _is_same(content.trail, known):
                return []
            total -= own.end()
        return parts if not total else []

    def _report_later(self, whole: Followed, pieces: list[Followed], parts: list[Followed]) -> None:
        """Report pieces or parts of a file, or the file itself, if they were read later. Only the session that was read first has
        the gaps of a run (`ledger.split_runs`)."""
        if parts and all(_number(part) < _number(whole) for part in parts):
            self._report(whole, parts)
        elif all(_number(part) > _number(whole) for part in parts):
            for piece in dict.fromkeys([*pieces, *parts]):
                if _number(piece) > _number(whole):
                    self._report(piece, [whole])

    def _is_begun(self, whole: Followed) -> bool:
        """Return whether another file may be the first piece of a file, or have its first record."""
        head = whole.handoff.content.head
        if any(True for _ in self._beginning_with(whole, head, 0)):
            return True
        return any(
            1 < len(index[key]) <= ALIKE_MAX
            for index, key in self._keys(whole)
            if index is self._first
        )

    def _beginning_with(self, whole: Followed, data: bytes, at: int) -> Iterator[Piece[Followed]]:
        """Yield the files that may begin with `data`, which stands at the offset `at` of the file `whole`."""
        for size in range(1, min(len(data), HEAD) + 1):
            alike = self._begin.get(data[:size], {})
            if len(alike) <= ALIKE_MAX:
                pieces = (self._piece(file) for file in alike if file is not whole)
                yield from (p for p in pieces if at or p.size < self._settled[whole].size)

    def _ending_with(self, whole: Followed) -> dict[int, list[Piece[Followed]]]:
        """Return the files that may be the last piece of a file, by the offset at which they would begin."""
        found: dict[int, list[Piece[Followed]]] = {}
        alike = self._end.get(whole.handoff.content.last, {})
        for file in alike if len(alike) <= ALIKE_MAX else ():
            piece = self._piece(file)
            begin = self._settled[whole].size - piece.size
            if begin > 0:
                found.setdefault(begin, []).append(piece)
        return found

    def _piece(self, file: Followed) -> Piece[Followed]:
        return Piece(file, file.handoff.content.head, *self._settled[file])

    def _report(self, file: Followed, others: list[Followed]) -> None:
        """Report that other files together have all content of `file`, unless a file has changed."""
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


def _content(file: Followed) -> Content | None:
    """Return the content that was read from a file; None if bytes of it are unread or lost."""
    handoff = file.handoff
    read = handoff.content
    if file.phase is not Phase.FOLLOWED or handoff.number is None or handoff.lost or file.has_more:
        return None
    return Content(read.offset, read.crc) if read.offset and read.crc is not None else None


def _is_same(trail: Trail, known: Content) -> bool:
    return (trail.offset, trail.crc) == known
