"""Collect rows, and unreadable bytes for the quarantine, between two commits. Pack the rows into Arrow buffers.

A batch consists of parts: a part is one block (`rows.block`), or a list for each column. A source with many connections
yields many small parts. `pack` joins them, because a part needs an Arrow array for each column: an array takes about 10
µs, however short it is, and a copy of a row 15 ns to 0.1 µs, depending on its texts (docs/decisions/speed.md, D107)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from tailrace.kernels import active
from tailrace.rows.block import Block, Buffer, Integers, Texts, Values, Words
from tailrace.rows.schema import CODED, COLUMNS, ROW, Row

if TYPE_CHECKING or active():
    from tailrace.rows import _joined
    from tailrace.rows._columns import divided, present, recoded
if TYPE_CHECKING or not active():
    import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
    from arro3.core import Array, DataType

LARGE = 2048
"""Minimum number of rows of a block that `pack` does not join: making and writing arrays for this block alone takes as
long as copying its rows."""

ENOUGH = 65536
"""Number of rows at which `pack` ends a group of joined parts. The next part begins a new group."""

_LONG = frozenset(column.name for column in COLUMNS if column.type == "long")
_MUST = frozenset(column.name for column in COLUMNS if not column.nullable)


class RowRun(msgspec.Struct):
    """The values that `rows` consecutive rows of a batch share."""

    day: int  # Days since 1970-01-01.
    source: str
    format: str
    session: str
    rows: int


class BlockRows(NamedTuple):
    """The rows of a block, their wall times, and columns that the ledger or the matching of spans has added."""

    block: Block
    time: Values
    seq: Values = None
    depth: Values = None
    end_offset: Values = None

    @property
    def rows(self) -> int:
        return self.block.rows

    def columns(self) -> tuple[Values, ...]:
        block = self.block
        return (
            block.stream, block.substream, self.seq, block.kind, block.name, block.category, block.id, block.parent,
            self.depth, block.start, block.end, self.time, None, block.attributes, block.offset, self.end_offset,
        )  # fmt: skip


ListRows = list[list[Any]]
"""The columns of several rows, as lists of values, in the order of `ROW`."""

Rows = ListRows | BlockRows

Emitted = Row | Sequence[Sequence[Any]] | BlockRows
"""Rows as a batch accepts them: one row, the columns of several rows in the order of `ROW`, or the rows of a block."""


class Part(NamedTuple):
    """Consecutive rows of a batch with the same day."""

    day: int
    rows: Rows


class QuarantinedBytes(NamedTuple):
    """Unreadable bytes as a frame of a session's quarantine file, and the position of this frame in the file."""

    session: str
    at: int
    frame: bytes


class Batch:
    """The rows and the unreadable bytes of one commit, in order."""

    __slots__ = (
        "_day", "_last", "_parts", "_single", "bytes", "day", "quarantined", "runs", "size",
    )  # fmt: skip

    def __init__(self) -> None:
        self.day = 0  # day of the rows that are added next
        self._clear()

    def _clear(self) -> None:
        self.runs: list[RowRun] = []  # values that consecutive rows share
        self.size = 0
        self.bytes = 0  # approximate size of the rows (bytes)
        self.quarantined: list[QuarantinedBytes] = []
        self._parts: list[Part] = []
        self._single: list[Row] = []  # The last rows, if they were added one by one.
        self._day = 0  # Day of the rows in `_single`.
        self._last: dict[Callable[[], None], None] = {}

    def __len__(self) -> int:
        return self.size

    @property
    def parts(self) -> list[Part]:
        self._join()
        return self._parts

    def packed(self) -> Iterator[tuple[int, list[RowRun], list[PackedRows]]]:
        """Yield for each day: the day, the values that consecutive rows share, and the columns packed by `pack`."""
        runs = groupby(self.runs, key=attrgetter("day"))
        parts = groupby(self.parts, key=attrgetter("day"))
        for (day, of_day), (_, same_day) in zip(runs, parts, strict=True):
            yield day, list(of_day), pack([part.rows for part in same_day])

    @property
    def some(self) -> bool:
        """Return whether this batch may have rows to write at the next commit."""
        return bool(self.size or self._last)

    def at_last(self, write: Callable[[], None]) -> None:
        """Let the next call of `take` call the function `write` once. `write` adds rows for the spans that are open at
        that time."""
        self._last[write] = None

    def keep(self, session: str, at: int, frame: bytes) -> None:
        """Add encoded bytes for a session's quarantine file, at the position `at` in the file."""
        self.quarantined.append(QuarantinedBytes(session, at, frame))

    def take(self) -> Batch:
        """Return a batch with everything that was added since the last call, and empty this batch."""
        for write in self._last:
            write()
        self._last = {}
        taken = copy(self)
        self._clear()
        return taken

    def extend(self, source: str, format_: str, session: str, rows: Emitted, size: int) -> None:
        """Append rows, with the day `day`. `size` is their approximate size in bytes."""
        day = self.day
        count = 1 if isinstance(rows, Row) else _count(rows)
        if not count:
            return
        last = self.runs[-1] if self.runs else None
        if last and last.session == session and last.day == day and last.source == source:
            last.rows += count
        else:
            self.runs.append(RowRun(day, source, format_, session, count))
        self.size += count
        self.bytes += size
        if isinstance(rows, Row):
            if day != self._day:
                self._join()
                self._day = day
            self._single.append(rows)
            return
        self._join()
        if isinstance(rows, BlockRows):
            self._parts.append(Part(day, rows))
        else:
            self._append(day, rows)

    def _join(self) -> None:
        if self._single:
            rows, self._single = self._single, []
            self._append(self._day, list(zip(*rows, strict=True)))

    def _append(self, day: int, columns: Sequence[Sequence[Any]]) -> None:
        last = self._parts[-1] if self._parts else None
        if last and last.day == day and isinstance(last.rows, list):
            for mine, more in zip(last.rows, columns, strict=True):
                mine.extend(more)
        else:
            self._parts.append(Part(day, [list(column) for column in columns]))


class PackedRows(NamedTuple):
    """The rows of one or several joined parts of a batch, as packed columns."""

    rows: int
    columns: dict[str, Values]
    """The table's columns by name. Columns in `CODED` are `Words`. A column without values is None."""

    def words(self, name: str) -> Words | None:
        """Return the column `name`, which must be one of `CODED`; None if no row has a value."""
        return cast("Words | None", self.columns[name])

    def values(self, name: str) -> Integers | Texts | None:
        """Return the column `name`, which must not be one of `CODED`; None if no row has a value."""
        return cast("Integers | Texts | None", self.columns[name])

    @property
    def walls(self) -> Integers | None:
        """Return the column `wall`: the times in microseconds, rounded towards zero; None if no row has a time."""
        times = cast("Integers | None", self.columns["time"])
        if times is None:
            return None
        if active():
            return Integers(divided(times.values, self.rows, 1000), times.valid)
        valid = None if times.valid is None else pa.py_buffer(times.valid)
        values = pa.py_buffer(times.values)
        nanoseconds = pa.Array.from_buffers(pa.int64(), self.rows, [valid, values])
        micros = Array(nanoseconds).cast(DataType.timestamp("ns")).cast(DataType.timestamp("us"))
        return Integers(pa.array(micros).buffers()[1], times.valid)


def pack(parts: Sequence[Rows]) -> list[PackedRows]:
    """Pack the parts of a batch (blocks or lists of rows) into columns, in order. Join small parts.

    Raise TypeError, OverflowError or UnicodeError for a value that its column cannot hold. The exception has the
    column's name as a note."""
    return list(map(_packed, _groups(parts)))


def _groups(parts: Sequence[Rows]) -> Iterator[list[Rows]]:
    """Yield groups of parts to join. A large block is a group of its own. Without kernels, each part is a group of its
    own."""
    group: list[Rows] = []
    rows = 0
    for part in parts:
        count = _count(part)
        alone = not isinstance(part, list) and count >= LARGE
        if group and (alone or rows >= ENOUGH or not active()):
            yield group
            group, rows = [], 0
        if alone:
            yield [part]
        else:
            group.append(part)
            rows += count
    if group:
        yield group


def _packed(parts: list[Rows]) -> PackedRows:
    first, *others = parts
    if not others and not isinstance(first, list):
        return PackedRows(first.rows, dict(zip(ROW, first.columns(), strict=True)))
    counts = [_count(part) for part in parts]
    columns = zip(
        *[part if isinstance(part, list) else part.columns() for part in parts], strict=True
    )
    found = {name: _column(name, [*each], counts) for name, each in zip(ROW, columns, strict=True)}
    return PackedRows(sum(counts), found)


def _column(name: str, values: list[Any], counts: list[int]) -> Values:
    found: Values = None
    try:
        if not all(map(_has_none, values)):
            if not active():
                found = _of_list(name, values[0])
            elif name in _LONG:
                found = Integers(*_joined.integers(values, counts))
            elif name in CODED:
                codes, texts, valid = _joined.words(values, counts)
                found = Words(codes, texts, len(texts), valid)
            else:
                found = Texts(*_joined.texts(values, counts))
        if name in _MUST and (found is None or found.valid is not None):
            raise TypeError("a row has no value")  # noqa: TRY301 - the note below is for all errors
    except (TypeError, OverflowError, UnicodeError) as error:
        error.add_note(f"in column {name!r}")
        raise
    return found


def _of_list(name: str, values: list[Any]) -> Values:
    """Pack a list of values as the column `name`, with arro3.

    pyarrow would silently truncate fractions, and import pandas (30 MB, 250 ms) if installed."""
    column = Array(values, DataType.int64() if name in _LONG else DataType.string())
    if name in CODED:
        coded = pa.array(column.cast(DataType.dictionary(DataType.int32(), DataType.string())))
        texts = coded.dictionary.to_pylist()
        valid, codes = coded.indices.buffers()
        return Words(codes, texts, len(texts), valid)
    valid, *buffers = pa.array(column).buffers()
    if name in _LONG:
        return Integers(buffers[0], valid)
    return Texts(buffers[0], buffers[1], valid)


def _has_none(values: Any) -> bool:  # noqa: ANN401 - a column of a block, or a list
    """Return whether a column of a part has no value in any row."""
    if isinstance(values, list):
        return (not values or values[0] is None) and values.count(None) == len(values)
    return values is None


def _count(part: Sequence[Sequence[Any]] | BlockRows) -> int:
    return part.rows if isinstance(part, BlockRows) else len(part[0])


class Coding:
    """One dictionary of the texts that occur in the `Words` columns of many blocks."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        # for each list of texts, by its `id`: the code of each text in the list; -1 for a text without a code
        self._tables: dict[int, array[int]] = {}

    @property
    def texts(self) -> list[str]:
        return list(self._codes)

    def codes(self, words: Words, rows: int) -> Buffer:
        """Return each row's code in this dictionary, to which new texts are added; 0 for a row without a text."""
        codes, texts = self._codes, words.texts
        if not active():
            # Without compiled kernels, `texts` was made from these rows, so each text in it occurs in some row.
            known = [codes.setdefault(text, len(codes)) for text in texts]
            if known == list(range(len(texts))):
                return words.codes
            found = memoryview(words.codes).cast("B").cast("i")
            return array("i", map(known.__getitem__, found)).tobytes()
        table = self._tables.setdefault(id(texts), array("i"))
        table.frombytes(b"\xff" * (4 * max(0, words.known - len(table))))
        for code in present(words.codes, rows, words.known, words.valid):
            if table[code] < 0:
                table[code] = codes.setdefault(texts[code], len(codes))
        return recoded(words.codes, rows, table)
