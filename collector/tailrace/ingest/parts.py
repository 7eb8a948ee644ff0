"""The parts that a decoder makes of a chunk: events listed in columns, or packed in blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, compress, islice
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tailrace.decoding.contract import Decoder, packs
from tailrace.kernels import active
from tailrace.ledger.counters import DUPLICATE, Counters, count_block, hear_block
from tailrace.model.record import Announcement, Kind, Record, SessionFacts
from tailrace.rows.block import Block, Integers, Values
from tailrace.rows.fields import COUNTER, END, ID, KIND, OFFSET, SIZE, START, STREAM

if TYPE_CHECKING or active():
    from tailrace.rows._columns import counted, greatest, present, shifted

Columns = Sequence[Sequence[Any]]

NUMBERED = frozenset({Kind.SPAN, Kind.COUNTER})
"""Kinds of an event with a counter."""

Numbered = tuple[str, int | None, int]
"""Stream, number on the wire and mark of an event."""

_LATEST_OF = 16
"""Records at the end of a part that are asked for the latest tick: fewer records take less time."""


class Listed:
    """Rows as lists, in the order of `Record`'s fields."""

    __slots__ = ("columns", "rows")

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.rows = len(columns[KIND])

    @property
    def length(self) -> int:
        """Return how many bytes of the input the rows cover."""
        return sum(self.columns[SIZE])

    @property
    def streams(self) -> Iterable[str]:
        return self.columns[STREAM]

    @property
    def kinds(self) -> Mapping[str, int]:
        """Return how many rows there are of each kind."""
        kinds = self.columns[KIND]
        spans = kinds.count(Kind.SPAN)
        return {Kind.SPAN: spans} if spans == len(kinds) else Counter(kinds)

    @property
    def latest_end(self) -> int | None:
        return max((end for end in self.columns[END] if end is not None), default=None)

    @property
    def latest_tick(self) -> int | None:
        """Return the latest tick of the last rows, None if they have none."""
        starts, ends = self.columns[START], self.columns[END]
        ticks = chain(starts[-_LATEST_OF:], ends[-_LATEST_OF:])
        return max((tick for tick in ticks if tick is not None), default=None)

    @property
    def times(self) -> tuple[int, int] | None:
        """Return the earliest start and the latest tick of all rows, None if they have none."""
        starts = [tick for tick in self.columns[START] if tick is not None]
        ends = (tick for tick in self.columns[END] if tick is not None)
        latest = max(chain(starts, ends), default=None)
        return None if latest is None else (min(starts, default=latest), latest)

    def count(self, counters: Counters, now: int) -> CountedRows:
        """Count the events, up to the first event of another incarnation."""
        columns = self.columns
        seqs, _ = counters.count(columns[STREAM], columns[COUNTER], marks_of(columns), now)
        return CountedRows(self, seqs)

    def match(self, spans: SpanMatching, now: int) -> None:
        """Match ends to begins."""
        spans.match([list(column) for column in self.columns], now)

    def hear(self, counters: Counters, now: int) -> None:
        """Let the ledger hear the streams of the part (see `Counters.hear`)."""
        counters.hear(dict.fromkeys(self.streams), now)

    def listed(self) -> Listed:
        return self

    def placed(self, shift: int) -> Listed:
        """Return the rows with their offsets moved."""
        columns = list(self.columns)
        columns[OFFSET] = [offset + shift for offset in columns[OFFSET]]
        return Listed(columns)


class Packed:
    """Rows in a block."""

    __slots__ = ("block",)

    def __init__(self, block: Block) -> None:
        self.block = block

    @property
    def rows(self) -> int:
        return self.block.rows

    @property
    def length(self) -> int:
        return self.block.length

    @property
    def streams(self) -> Iterable[str]:
        """Return each stream once."""
        stream = self.block.stream
        return map(stream.texts.__getitem__, present(stream.codes, self.rows, stream.known))

    @property
    def kinds(self) -> Mapping[str, int]:
        """Return how many rows there are of each kind."""
        kind = self.block.kind
        counts = counted(kind.codes, self.rows, kind.known)
        return {text: count for text, count in zip(kind.texts, counts, strict=False) if count}

    @property
    def latest_end(self) -> int | None:
        return _latest(self.block.end, self.rows, 0)

    @property
    def latest_tick(self) -> int | None:
        """Return the latest tick of the last rows, None if they have none."""
        return self._latest_from(max(0, self.rows - _LATEST_OF))

    def _latest_from(self, begin: int) -> int | None:
        start = _latest(self.block.start, self.rows, begin)
        end = _latest(self.block.end, self.rows, begin)
        return end if start is None or (end is not None and end > start) else start

    @property
    def times(self) -> tuple[int, int] | None:
        """Return the earliest start and the latest tick of all rows, None if they have none."""
        latest = self._latest_from(0)
        if latest is None:
            return None
        starts = self.block.start
        found = [] if starts is None else starts.list(self.rows)
        return min((tick for tick in found if tick is not None), default=latest), latest

    def count(self, counters: Counters, now: int) -> CountedRows | CountedBlock:
        """Count the events (see `count_block`), up to the first event of another incarnation."""
        seqs = count_block(counters, self.block, now)
        if isinstance(seqs, Integers):
            return CountedBlock(self, seqs)
        return CountedRows(self.listed(), seqs)

    def match(self, spans: SpanMatching, now: int) -> None:
        """Match ends to begins."""
        spans.match_block(self.block, now)

    def hear(self, counters: Counters, now: int) -> None:
        """Let the ledger hear the streams of the part (see `Counters.hear`)."""
        hear_block(counters, self.block, now)

    def listed(self) -> Listed:
        return Listed(self.block.columns())

    def placed(self, shift: int) -> Packed:
        """Return the rows with their offsets moved."""
        block = self.block
        offsets = shifted(block.offset.values, block.rows, shift)
        if offsets is None:
            raise OverflowError(f"an offset and {shift} have more than 64 bits")
        return Packed(block._replace(offset=Integers(offsets)))


Part = Listed | Packed


class RowsWriter(Protocol):
    """Writes rows of events with their sequence numbers."""

    def write(self, columns: Columns, seqs: list[int | None]) -> None: ...
    def write_block(self, block: Block, *, seqs: Values = None) -> None: ...


class SpanMatching(Protocol):
    """Matches ends to begins, and writes the rows."""

    def match(self, columns: list[list[Any]], now: int) -> None: ...
    def match_block(self, block: Block, now: int) -> None: ...


class CountedRows:
    """The first rows of a list, with their sequence numbers. Some may be duplicates, or have no number."""

    def __init__(self, part: Listed, seqs: list[int | None]) -> None:
        self.rows = len(seqs)
        self._columns, self._seqs = part.columns, seqs

    def write(self, rows: RowsWriter) -> Part:
        """Write the rows without the duplicates. Return these events."""
        columns, seqs = self._columns, self._seqs
        if len(columns[KIND]) > len(seqs):
            columns = [column[: len(seqs)] for column in columns]
        events = Listed(columns)
        if DUPLICATE in seqs:
            keep = [seq != DUPLICATE for seq in seqs]
            columns = [list(compress(column, keep)) for column in columns]
            seqs = list(compress(seqs, keep))
        rows.write(columns, seqs)
        return events


class CountedBlock:
    """All rows of a block with their sequence numbers."""

    def __init__(self, part: Packed, seqs: Integers) -> None:
        self.rows = part.rows
        self._part, self._seqs = part, seqs

    def write(self, rows: RowsWriter) -> Part:
        """Write the rows. Return these events."""
        rows.write_block(self._part.block, seqs=self._seqs)
        return self._part


def marks_of(columns: Columns) -> list[int]:
    """Return the marks of records: the sums of their times and sizes, which tell events apart and grow with their times."""
    try:
        return list(map(add, map(add, columns[START], columns[END]), columns[SIZE]))
    except TypeError:
        times = zip(columns[START], columns[END], columns[SIZE], strict=True)
        return [(start or 0) + (end or 0) + size for start, end, size in times]


def numbered(columns: Columns) -> list[Numbered]:
    return list(zip(columns[STREAM], columns[COUNTER], marks_of(columns), strict=True))


def merged(parts: Sequence[Part]) -> Columns:
    """Return the rows of some parts as one list for each column."""
    listed = [part.listed().columns for part in parts]
    if len(listed) == 1:
        return listed[0]
    return [list(chain.from_iterable(columns)) for columns in zip(*listed, strict=True)]


def begun_in(parts: Iterable[Part]) -> Iterator[int | None]:
    """Yield the ids of the begins in some parts."""
    for part in parts:
        columns = part.listed().columns
        for kind, id_ in zip(columns[KIND], columns[ID], strict=True):
            if kind == Kind.BEGIN:
                yield id_


Decoded = list[Block | list[Record]]
"""The records of a chunk, in order, with blocks between them."""


def decoding(decoder: Decoder) -> Callable[[bytes], Decoded]:
    """Return the function that lets a decoder take bytes."""
    if packs(decoder):
        return partial(_gather, decoder.blocks)
    feed = decoder.feed
    return lambda data: [records] if (records := feed(data)) else []


def packed(chunk: Decoded) -> int:
    """Return how many records are in blocks."""
    return sum(item.rows for item in chunk if isinstance(item, Block))


def _gather(blocks: Callable[[bytes], Iterable[Block | Record]], data: bytes) -> Decoded:
    """Return the blocks in bytes, and lists of the records between them."""
    found: Decoded = []
    records: list[Record] = []
    for item in blocks(data):
        if not isinstance(item, Block):
            if not records:
                found.append(records)
            records.append(item)
            continue
        found.append(item)
        records = []
    return found


class Place(NamedTuple):
    """The place of a record: its index in one of the lists of a chunk."""

    chunk: Decoded
    part: int
    row: int

    @property
    def record(self) -> Record:
        records = self.chunk[self.part]
        if isinstance(records, Block):
            raise TypeError("a block has no records of its own")
        return records[self.row]

    def announcement_after(self) -> Announcement | None:
        """Return the announcement in the record directly behind, None if there is none."""
        records = self.chunk[self.part]
        if isinstance(records, Block) or self.row + 1 == len(records):
            return None
        facts = records[self.row + 1].detail
        return facts.announces if isinstance(facts, SessionFacts) else None

    def event_after(self) -> Numbered | None:
        """Return the first event with a counter behind the record, None if there is none."""
        begin = self.row + 1
        for records in islice(self.chunk, self.part, None):
            if isinstance(records, Block):
                return numbered(records.columns(1))[0]
            for record in islice(records, begin, None):
                if record.kind in NUMBERED:
                    return numbered([(value,) for value in record])[0]
            begin = 0
        return None


def _latest(column: Integers | None, rows: int, begin: int) -> int | None:
    """Return the greatest value of the rows from `begin` on, None if there is none."""
    if column is None or begin == rows:
        return None
    if column.valid is None:
        return greatest(column.values, rows, begin)
    return max((v for v in column.list(rows, begin) if v is not None), default=None)
