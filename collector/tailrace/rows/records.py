"""Represent decoded records until they become rows: as lists of fields, or packed in a block.

A Python decoder creates lists, a compiled kernel creates blocks. Callers use the methods of `Records`,
which are the same for lists and blocks. A method that returns few records returns lists, which are cheaper
for few records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress
from operator import add
from typing import TYPE_CHECKING, Any, Protocol

from tailrace.kernels import active
from tailrace.model.record import ALONE, Kind, Record
from tailrace.rows.block import Block, Integers, Values
from tailrace.rows.fields import COUNTER, END, ID, KIND, OFFSET, SIZE, START, STREAM

if TYPE_CHECKING or active():
    from tailrace.rows._columns import counted, greatest, present, shifted

Columns = Sequence[Sequence[Any]]

NUMBERED = frozenset({Kind.SPAN, Kind.COUNTER})
"""Kinds of records that carry the producer's counter, so that the ledger can find missing events."""

DUPLICATE = -1
"""Value in place of a sequence number, for an event that already arrived before."""

Numbered = tuple[str, int | None, int]
"""Stream of an event, its counter as the producer sent it, and its fingerprint (see `marks_of`)."""

_LATEST_OF = 16  # number of records, the last ones, that `latest_tick` searches to save time


Chunk = list["Records"]  # records that were decoded together, in order


class EventCounters(Protocol):
    """The interface of `ledger.counters.Counters`, which assigns sequence numbers to events."""

    def count(
        self, streams: Sequence[str], counts: Sequence[int], marks: Sequence[int], now: int, /
    ) -> list[int | None]: ...
    def count_block(self, block: Block, now: int, /) -> Integers | list[int | None]: ...
    def hear(self, names: dict[str, None], now: int, /) -> None: ...
    def hear_block(self, block: Block, now: int, /) -> None: ...


class SpanMatching(Protocol):
    """The interface that matches end records to begin records, and writes the rows of their spans."""

    def match(self, columns: list[list[Any]], now: int, /) -> None: ...
    def match_block(self, block: Block, now: int, /) -> None: ...


class RowsWriter(Protocol):
    """The interface that writes rows of events with their sequence numbers."""

    def write(self, columns: Columns, seqs: list[int | None], /) -> None: ...
    def write_block(self, block: Block, *, seqs: Values = None) -> None: ...


class Records(ABC):
    """Adjacent records of a chunk, in order; at least one."""

    __slots__ = ("rows",)

    rows: int
    packed: int
    """Number of these records that a compiled kernel packed into a block: either all of them or none."""

    # Methods that return facts about all records

    @property
    @abstractmethod
    def begin(self) -> int:
        """Return the offset of the first record in the session's bytes."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Return the number of input bytes that the records cover."""

    @property
    @abstractmethod
    def streams(self) -> Iterable[str]:
        """Return the names of the records' streams. A name may occur several times."""

    @property
    @abstractmethod
    def kinds(self) -> Mapping[str, int]:
        """Return the number of records, by kind."""

    @property
    @abstractmethod
    def latest_end(self) -> int | None:
        """Return the latest end tick; None if no record has an end."""

    @property
    @abstractmethod
    def latest_tick(self) -> int | None:
        """Return the latest tick (start or end) among the last few records; None if they have no ticks."""

    @property
    @abstractmethod
    def times(self) -> tuple[int, int] | None:
        """Return the earliest start tick and the latest tick (start or end); None if no record has a tick."""

    # Methods that return single records of a chunk

    @property
    @abstractmethod
    def alone(self) -> Sequence[int]:
        """Return the indices of the records that concern the session or a loss (kinds in `ALONE`)."""

    @abstractmethod
    def record(self, row: int) -> Record:
        """Return one record by its index."""

    def behind(self, row: int) -> Record | None:
        """Return the record after the record `row`; None after the last record."""
        return self.record(row + 1) if row + 1 < self.rows else None

    @abstractmethod
    def event_from(self, row: int) -> Numbered | None:
        """Return the first event with a counter, at index `row` or later; None if there is none."""

    @abstractmethod
    def begin_ids(self) -> Iterator[int | None]:
        """Yield the ids of the begin records; None for a begin without an id."""

    # Methods that return subsets of the records

    @abstractmethod
    def lists(self) -> ListRecords:
        """Return these records as lists, one for each field of `Record`."""

    @abstractmethod
    def slice(self, begin: int, stop: int) -> Chunk:
        """Return the records from index `begin` to index `stop` (exclusive) as a chunk, which may be empty."""

    @abstractmethod
    def moved(self, shift: int) -> Records:
        """Return the same records with `shift` added to their offsets."""

    # Methods that pass the records to the ledger and the table

    @abstractmethod
    def process(self, counters: EventCounters, rows: RowsWriter, now: int) -> Iterator[Records]:
        """Count the events in the ledger, and stop before the first event of a restarted producer. Yield the counted
        records. Then write their rows, without duplicates. `now` is the time (ns) of the spool's log, which never goes
        back."""

    @abstractmethod
    def hear(self, counters: EventCounters, now: int) -> None:
        """Report to the ledger which streams have events, without counting the events (see `Counters.hear`)."""

    @abstractmethod
    def match(self, spans: SpanMatching, now: int) -> None:
        """Match end records to begin records, and write the rows of the spans."""


class ListRecords(Records):
    """Records as lists, one list for each field of `Record`, in its order."""

    __slots__ = ("columns",)

    packed = 0

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.rows = len(columns[KIND])

    @property
    def begin(self) -> int:
        return int(self.columns[OFFSET][0])

    @property
    def length(self) -> int:
        return sum(self.columns[SIZE])

    @property
    def streams(self) -> Iterable[str]:
        return self.columns[STREAM]

    @property
    def kinds(self) -> Mapping[str, int]:
        kinds = self.columns[KIND]
        spans = kinds.count(Kind.SPAN)
        return {Kind.SPAN: spans} if spans == len(kinds) else Counter(kinds)

    @property
    def latest_end(self) -> int | None:
        return max((end for end in self.columns[END] if end is not None), default=None)

    @property
    def latest_tick(self) -> int | None:
        starts, ends = self.columns[START], self.columns[END]
        ticks = chain(starts[-_LATEST_OF:], ends[-_LATEST_OF:])
        return max((tick for tick in ticks if tick is not None), default=None)

    @property
    def times(self) -> tuple[int, int] | None:
        starts = [tick for tick in self.columns[START] if tick is not None]
        ends = (tick for tick in self.columns[END] if tick is not None)
        latest = max(chain(starts, ends), default=None)
        return None if latest is None else (min(starts, default=latest), latest)

    @property
    def alone(self) -> Sequence[int]:
        kinds = self.columns[KIND]
        if ALONE.isdisjoint(kinds):
            return ()
        return [row for row, kind in enumerate(kinds) if kind in ALONE]

    def record(self, row: int) -> Record:
        return Record._make(column[row] for column in self.columns)

    def event_from(self, row: int) -> Numbered | None:
        kinds = self.columns[KIND]
        for at in range(row, self.rows):
            if kinds[at] in NUMBERED:
                return numbered(self.slice(at, at + 1))[0]
        return None

    def begin_ids(self) -> Iterator[int | None]:
        kinds = zip(self.columns[KIND], self.columns[ID], strict=True)
        return (id_ for kind, id_ in kinds if kind == Kind.BEGIN)

    def lists(self) -> ListRecords:
        return self

    def slice(self, begin: int, stop: int) -> Chunk:
        if begin >= stop:
            return []
        return [ListRecords([column[begin:stop] for column in self.columns])]

    def pick(self, rows: Sequence[int]) -> Chunk:
        """Return the records with the given indices, which must be ascending."""
        if not rows or rows[-1] - rows[0] == len(rows) - 1:
            return self.slice(rows[0], rows[-1] + 1) if rows else []
        return [ListRecords([[column[row] for row in rows] for column in self.columns])]

    def moved(self, shift: int) -> Records:
        columns = list(self.columns)
        columns[OFFSET] = [offset + shift for offset in columns[OFFSET]]
        return ListRecords(columns)

    def process(
        self,
        counters: EventCounters,
        rows: RowsWriter,
        now: int,
        seqs: list[int | None] | None = None,
    ) -> Iterator[Records]:
        # If the records are counted already, `seqs` has their numbers.
        columns, counted = self.columns, self
        if seqs is None:
            seqs = counters.count(columns[STREAM], columns[COUNTER], marks_of(columns), now)
        if len(seqs) < self.rows:
            columns = [column[: len(seqs)] for column in columns]
            counted = ListRecords(columns)
        yield counted
        if DUPLICATE in seqs:
            keep = [seq != DUPLICATE for seq in seqs]
            columns = [list(compress(column, keep)) for column in columns]
            seqs = list(compress(seqs, keep))
        rows.write(columns, seqs)

    def hear(self, counters: EventCounters, now: int) -> None:
        counters.hear(dict.fromkeys(self.columns[STREAM]), now)

    def match(self, spans: SpanMatching, now: int) -> None:
        spans.match([list(column) for column in self.columns], now)


class BlockRecords(Records):
    """Records packed in a block. All of them are events (see `Block`)."""

    __slots__ = ("_block", "packed")

    def __init__(self, block: Block) -> None:
        self._block = block
        self.rows = self.packed = block.rows

    @property
    def begin(self) -> int:
        return int(self._block.offset.list(1)[0])

    @property
    def length(self) -> int:
        return self._block.length

    @property
    def streams(self) -> Iterable[str]:
        stream = self._block.stream
        return map(stream.texts.__getitem__, present(stream.codes, self.rows, stream.known))

    @property
    def kinds(self) -> Mapping[str, int]:
        kind = self._block.kind
        counts = counted(kind.codes, self.rows, kind.known)
        return {text: count for text, count in zip(kind.texts, counts, strict=False) if count}

    @property
    def latest_end(self) -> int | None:
        return _latest(self._block.end, self.rows, 0)

    @property
    def latest_tick(self) -> int | None:
        return self._latest_from(max(0, self.rows - _LATEST_OF))

    def _latest_from(self, begin: int) -> int | None:
        start = _latest(self._block.start, self.rows, begin)
        end = _latest(self._block.end, self.rows, begin)
        return end if start is None or (end is not None and end > start) else start

    @property
    def times(self) -> tuple[int, int] | None:
        latest = self._latest_from(0)
        if latest is None:
            return None
        starts = self._block.start
        found = [] if starts is None else starts.list(self.rows)
        return min((tick for tick in found if tick is not None), default=latest), latest

    @property
    def alone(self) -> Sequence[int]:
        return ()

    def record(self, row: int) -> Record:
        return Record._make(column[0] for column in self._block.columns(row + 1, row))

    def event_from(self, row: int) -> Numbered | None:
        return numbered(self.slice(row, row + 1))[0]

    def begin_ids(self) -> Iterator[int | None]:
        block = self._block
        kinds = zip(block.column(block.kind), block.column(block.id), strict=True)
        return (id_ for kind, id_ in kinds if kind == Kind.BEGIN)

    def lists(self) -> ListRecords:
        return ListRecords(self._block.columns())

    def slice(self, begin: int, stop: int) -> Chunk:
        return [ListRecords(self._block.columns(stop, begin))] if begin < stop else []

    def moved(self, shift: int) -> Records:
        block = self._block
        offsets = shifted(block.offset.values, block.rows, shift)
        if offsets is None:
            raise OverflowError(f"an offset and {shift} have more than 64 bits")
        return BlockRecords(block._replace(offset=Integers(offsets)))

    def process(self, counters: EventCounters, rows: RowsWriter, now: int) -> Iterator[Records]:
        seqs = counters.count_block(self._block, now)
        if isinstance(seqs, Integers):
            yield self
            rows.write_block(self._block, seqs=seqs)
        else:
            yield from self.lists().process(counters, rows, now, seqs)

    def hear(self, counters: EventCounters, now: int) -> None:
        counters.hear_block(self._block, now)

    def match(self, spans: SpanMatching, now: int) -> None:
        spans.match_block(self._block, now)


# Functions on chunks (see `Chunk`)


def listed(records: list[Record]) -> Chunk:
    """Return a chunk with one part that contains all `records`; an empty chunk if there are no records."""
    return [ListRecords(list(zip(*records, strict=True)))] if records else []


def gathered(items: Iterable[Block | Record]) -> Chunk:
    """Return a chunk with the output of a compiled kernel: blocks, and single records between the blocks."""
    chunk: Chunk = []
    records: list[Record] = []
    for item in items:
        if isinstance(item, Block):
            chunk += listed(records)
            chunk.append(BlockRecords(item))
            records = []
        else:
            records.append(item)
    return chunk + listed(records)


def joined(chunk: Sequence[Records]) -> ListRecords:
    """Return all records of a chunk as one `ListRecords`."""
    parts = [part.lists() for part in chunk]
    if len(parts) == 1:
        return parts[0]
    columns = zip(*(part.columns for part in parts), strict=True)
    return ListRecords([list(chain.from_iterable(column)) for column in columns])


def numbered(chunk: Sequence[Records]) -> list[Numbered]:
    """Return stream, counter as sent, and fingerprint (`marks_of`) of each record of a chunk."""
    columns = joined(chunk).columns
    return list(zip(columns[STREAM], columns[COUNTER], marks_of(columns), strict=True))


def marks_of(columns: Columns) -> list[int]:
    """Return a fingerprint (mark) for each record, by which two different events with equal sequence numbers can be
    distinguished.

    Marks increase with the times of the events, so that the ledger recognises an older event."""
    try:
        return list(map(add, map(add, columns[START], columns[END]), columns[SIZE]))
    except TypeError:
        times = zip(columns[START], columns[END], columns[SIZE], strict=True)
        return [(start or 0) + (end or 0) + size for start, end, size in times]


def _latest(column: Integers | None, rows: int, begin: int) -> int | None:
    if column is None or begin == rows:
        return None
    if column.valid is None:
        return greatest(column.values, rows, begin)
    return max((v for v in column.list(rows, begin) if v is not None), default=None)
