"""Represent many ordinary records as columns of packed buffers.

Compiled kernels yield blocks; the Python decoders yield one `Record` per unit. Both contain the same facts:
`Block.records` returns the records that the Python decoder would have yielded. A block contains only events without a
detail, in input order. Only events without an id and a parent may have a flaw.

All buffers have the Arrow layout in the machine's byte order: 64-bit integers, 32-bit codes and ends, and validity
bitmaps with the first row in the lowest bit. A block therefore becomes Arrow arrays without a copy.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from tailrace.model.record import FLAW_OF_ROW, Record

Buffer = bytes | bytearray | memoryview

ROWS_MIN = 16
"""Minimum number of rows of a block from a compiled kernel. All stages together spend as much time on a block as on a
dozen records."""


class Integers(NamedTuple):
    """Column of signed 64-bit integers. `valid` is the bitmap of rows with a value; None if all rows have a value."""

    values: Buffer
    valid: Buffer | None = None

    @classmethod
    def of(cls, values: Sequence[int | None]) -> Integers:
        """Convert values to a column; None becomes a row without a value."""
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
        """Return the values of the rows from `begin` to `stop` as Python integers; None for a row without a value."""
        values = memoryview(self.values).cast("B").cast("q")[begin:stop].tolist()
        return _masked(values, self.valid, begin)

    def of_rows(self, rows: Sequence[int]) -> Sequence[Any]:
        """Return the values of the given rows."""
        values = memoryview(self.values).cast("B").cast("q")
        return _of_rows(rows, self.valid, values.__getitem__)


class Words(NamedTuple):
    """Column of repeated texts: each row has a 32-bit index into `texts`. `texts` only grows; the block refers to the
    first `known` texts. A row without a value has index 0."""

    codes: Buffer
    texts: list[str]
    known: int
    valid: Buffer | None = None

    def list(self, stop: int, begin: int = 0) -> list[Any]:
        """Return the texts of the rows from `begin` to `stop`; None for a row without a value."""
        codes = memoryview(self.codes).cast("B").cast("i")[begin:stop].tolist()
        texts = self.texts
        found = [texts[code] for code in codes] if texts else [None] * len(codes)
        return _masked(found, self.valid, begin)

    def of_rows(self, rows: Sequence[int]) -> Sequence[Any]:
        """Return the values of the given rows."""
        codes, texts = memoryview(self.codes).cast("B").cast("i"), self.texts
        return _of_rows(rows, self.valid, lambda row: texts[codes[row]])


class Texts(NamedTuple):
    """Column of texts that rarely repeat, as concatenated UTF-8. Row `i` is `data[ends[i]:ends[i + 1]]`."""

    ends: Buffer
    data: Buffer
    valid: Buffer | None = None

    @classmethod
    def of(cls, values: Sequence[str]) -> Texts:
        """Convert a few values to a column."""
        data = [value.encode() for value in values]
        ends = array("i", accumulate(map(len, data), initial=0))
        return cls(ends.tobytes(), b"".join(data))

    @property
    def buffers(self) -> list[Buffer | None]:
        """Return the buffers in Arrow's order."""
        return [self.valid, self.ends, self.data]

    def list(self, stop: int, begin: int = 0) -> list[Any]:
        """Return the texts of the rows from `begin` to `stop`; None for a row without a value."""
        ends = memoryview(self.ends).cast("B").cast("i")[begin : stop + 1].tolist()
        data = memoryview(self.data)
        texts = [str(data[a:b], "utf-8") for a, b in pairwise(ends)]
        return _masked(texts, self.valid, begin)

    def of_rows(self, rows: Sequence[int]) -> Sequence[Any]:
        """Return the values of the given rows."""
        ends, data = memoryview(self.ends).cast("B").cast("i"), memoryview(self.data)
        return _of_rows(rows, self.valid, lambda row: str(data[ends[row] : ends[row + 1]], "utf-8"))


Values = Integers | Words | Texts | None
"""One column of a block; None if no row has a value."""


class Block(NamedTuple):
    """Ordinary events that cover `length` bytes of the input. The bytes are contiguous, unless events of other
    processes lie between them.

    The columns are those of `Record`, without `detail`. Begins and ends are separate rows. Attributes are JSON without
    white space around their names. If there is a flaw, the attributes begin with `$flaw`, as in a row of the table."""

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
        """Return all columns of the rows from `begin` to `stop` as new lists, in the order of `Record`'s fields."""
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
        """Yield the rows as records."""
        return map(Record._make, zip(*self.columns(), strict=True))


def _of_rows(rows: Sequence[int], valid: Buffer | None, value: Callable[[int], Any]) -> list[Any]:
    """Return the values of the given rows; None for a row whose bit in `valid` is not set."""
    if valid is None:
        return [value(row) for row in rows]
    bits = memoryview(valid)
    return [value(row) if bits[row >> 3] >> (row & 7) & 1 else None for row in rows]


def _masked(values: list[Any], valid: Buffer | None, begin: int) -> list[Any]:
    """Return the values with None for each row whose bit in `valid` is not set. `begin` is the row of the first value."""
    if valid is None:
        return values
    bits = memoryview(valid).cast("B")
    return [v if bits[i >> 3] >> (i & 7) & 1 else None for i, v in enumerate(values, begin)]
