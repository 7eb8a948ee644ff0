"""Many records of the usual shape, as columns of packed buffers.

Kernels yield blocks where the decoders in Python yield one `Record` for each unit. A block holds the same
facts: `Block.records` returns the records that the decoder in Python would have yielded. A block has only
events without a detail, in their order in the input. Only events without an id and a parent may have a flaw.

All buffers are in the layout of Arrow, in the machine's byte order: 64-bit integers, 32-bit codes and ends,
and bitmaps of valid rows with the first row in the lowest bit. So a block becomes Arrow arrays without a copy.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from tailrace.model.record import FLAW_OF_ROW, Record

Buffer = bytes | bytearray | memoryview

ROWS_MIN = 16
"""Rows of a block that a kernel makes, at least: all stages together spend on a block as much as on a dozen records."""


class Integers(NamedTuple):
    """Signed 64-bit integers. `valid` is the bitmap of the rows that have a value, None if all have."""

    values: Buffer
    valid: Buffer | None = None

    @classmethod
    def of(cls, values: Sequence[int | None]) -> Integers:
        """Return values as a column, None as a row without a value."""
        packed = array("q", (value or 0 for value in values)).tobytes()
        if None not in values:
            return cls(packed)
        bits = sum(1 << i for i, value in enumerate(values) if value is not None)
        return cls(packed, bits.to_bytes(-(-len(values) // 8), "little"))

    @property
    def buffers(self) -> list[Buffer | None]:
        """Return the buffers in Arrow's order."""
        return [self.valid, self.values]

    def list(self, stop: int, begin: int = 0) -> list[Any]:
        """Return the values of some rows as Python integers, None for rows without a value."""
        values = memoryview(self.values).cast("B").cast("q")[begin:stop].tolist()
        return _masked(values, self.valid, begin)

    def of_rows(self, rows: Sequence[int]) -> Sequence[Any]:
        """Return the values of these rows."""
        values = memoryview(self.values).cast("B").cast("q")
        return _of_rows(rows, self.valid, values.__getitem__)


class Words(NamedTuple):
    """Texts that repeat: a 32-bit index into `texts` for each row. `texts` only grows; the block refers to its
    first `known` texts. The code of a row without a value is 0."""

    codes: Buffer
    texts: list[str]
    known: int
    valid: Buffer | None = None

    def list(self, stop: int, begin: int = 0) -> list[Any]:
        """Return the texts of some rows, None for rows without a value."""
        codes = memoryview(self.codes).cast("B").cast("i")[begin:stop].tolist()
        texts = self.texts
        found = [texts[code] for code in codes] if texts else [None] * len(codes)
        return _masked(found, self.valid, begin)

    def of_rows(self, rows: Sequence[int]) -> Sequence[Any]:
        """Return the values of these rows."""
        codes, texts = memoryview(self.codes).cast("B").cast("i"), self.texts
        return _of_rows(rows, self.valid, lambda row: texts[codes[row]])


class Texts(NamedTuple):
    """Texts that rarely repeat, as UTF-8 one behind the other. Row `i` is `data[ends[i]:ends[i + 1]]`."""

    ends: Buffer
    data: Buffer
    valid: Buffer | None = None

    @classmethod
    def of(cls, values: Sequence[str]) -> Texts:
        """Return a few values as a column."""
        data = [value.encode() for value in values]
        ends = array("i", accumulate(map(len, data), initial=0))
        return cls(ends.tobytes(), b"".join(data))

    @property
    def buffers(self) -> list[Buffer | None]:
        """Return the buffers in Arrow's order."""
        return [self.valid, self.ends, self.data]

    def list(self, stop: int, begin: int = 0) -> list[Any]:
        """Return the texts of some rows, None for rows without a value."""
        ends = memoryview(self.ends).cast("B").cast("i")[begin : stop + 1].tolist()
        data = memoryview(self.data)
        texts = [str(data[a:b], "utf-8") for a, b in pairwise(ends)]
        return _masked(texts, self.valid, begin)

    def of_rows(self, rows: Sequence[int]) -> Sequence[Any]:
        """Return the values of these rows."""
        ends, data = memoryview(self.ends).cast("B").cast("i"), memoryview(self.data)
        return _of_rows(rows, self.valid, lambda row: str(data[ends[row] : ends[row + 1]], "utf-8"))


Values = Integers | Words | Texts | None
"""One column of a block; None where no row has a value."""


class Block(NamedTuple):
    """Events of the usual shape, which cover `length` bytes of the input, without a gap unless those of other processes
    stand between them.

    The columns are those of `Record`, without `detail`; begins and ends are rows of their own. Attributes
    are JSON without white space around their names, and begin with `$flaw` as in a row of the table if there is a flaw."""

    rows: int
    length: int
    offset: Integers
    size: Integers
    kind: Words
    stream: Words
    substream: Values
    counter: Values
    name: Values
    category: Values
    id: Values
    parent: Values
    start: Integers | None
    end: Integers | None
    attributes: Values
    flaw: Words | None = None

    def column(self, values: Values) -> list[Any]:
        """Return one of the block's columns as a list."""
        return [None] * self.rows if values is None else values.list(self.rows)

    def columns(self, stop: int | None = None, begin: int = 0) -> list[list[Any]]:
        """Return all columns of some rows as lists of their own, in the order of `Record`'s fields."""
        stop = self.rows if stop is None else stop
        values: tuple[Values, ...] = (*self[2:], None)
        columns: list[list[Any]] = [
            [None] * (stop - begin) if each is None else each.list(stop, begin) for each in values
        ]
        if self.flaw is not None:
            *_, attributes, flaws, _ = columns
            for i, flaw in enumerate(flaws):
                if flaw:
                    rest = str(attributes[i]).removeprefix(f'{{"{FLAW_OF_ROW}":"{flaw}"')
                    attributes[i] = None if rest == "}" else "{" + rest[1:]
        return columns

    def records(self) -> Iterator[Record]:
        """Yield the records."""
        return map(Record._make, zip(*self.columns(), strict=True))


def _of_rows(rows: Sequence[int], valid: Buffer | None, value: Callable[[int], Any]) -> list[Any]:
    """Return the values of rows, None for each whose bit in `valid` is not set."""
    if valid is None:
        return [value(row) for row in rows]
    bits = memoryview(valid)
    return [value(row) if bits[row >> 3] >> (row & 7) & 1 else None for row in rows]


def _masked(values: list[Any], valid: Buffer | None, begin: int) -> list[Any]:
    """Return the values of rows from `begin` on, with None for each row whose bit in `valid` is not set."""
    if valid is None:
        return values
    bits = memoryview(valid).cast("B")
    return [v if bits[i >> 3] >> (i & 7) & 1 else None for i, v in enumerate(values, begin)]
