"""Represent many ordinary records as columns of packed buffers: a `Block`, which a compiled kernel yields.

A block contains only events, in input order, none of them with a `detail`. `Block.records` returns the records that the
Python decoder yields for the same input. All buffers have the Arrow layout in the machine's byte order: 64-bit
integers, 32-bit codes and ends, and validity bitmaps with the first row in the lowest bit."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from tailrace.model.record import FLAW_OF_ROW, Record

Buffer = bytes | bytearray | memoryview

ROWS_MIN = 16
"""Minimum number of records in a block from a kernel. Processing a block takes as long as processing a dozen single
records."""


class Integers(NamedTuple):
    """A column of signed 64-bit integers. `valid` is the bitmap of the rows with a value; None if all rows have one."""

    values: Buffer
    valid: Buffer | None = None

    @classmethod
    def of(cls, values: Sequence[int | None]) -> Integers:
        packed = array("q", (value or 0 for value in values)).tobytes()
        if None not in values:
            return cls(packed)
        bits = sum(1 << i for i, value in enumerate(values) if value is not None)
        return cls(packed, bits.to_bytes(-(-len(values) // 8), "little"))

    @property
    def buffers(self) -> list[Buffer | None]:
        return [self.valid, self.values]

    def list(self, stop: int, begin: int = 0) -> list[Any]:
        """Return the values from row `begin` to row `stop` (exclusive); None for a row without a value."""
        values = memoryview(self.values).cast("B").cast("q")[begin:stop].tolist()
        return _masked(values, self.valid, begin)

    def of_rows(self, rows: Sequence[int]) -> Sequence[Any]:
        values = memoryview(self.values).cast("B").cast("q")
        return _of_rows(rows, self.valid, values.__getitem__)


class Words(NamedTuple):
    """A column of repeated texts: each row has a code, which is a 32-bit index into `texts`.

    Several blocks may share the list `texts`. Texts are only added to it."""

    codes: Buffer  # 0 for a row without a value.
    texts: list[str]
    known: int  # Number of `texts` that this column uses.
    valid: Buffer | None = None  # Bitmap of the rows with a value; None if all rows have one.

    def list(self, stop: int, begin: int = 0) -> list[Any]:
        codes = memoryview(self.codes).cast("B").cast("i")[begin:stop].tolist()
        texts = self.texts
        found = [texts[code] for code in codes] if texts else [None] * len(codes)
        return _masked(found, self.valid, begin)

    def of_rows(self, rows: Sequence[int]) -> Sequence[Any]:
        codes, texts = memoryview(self.codes).cast("B").cast("i"), self.texts
        return _of_rows(rows, self.valid, lambda row: texts[codes[row]])


class Texts(NamedTuple):
    """A column of texts that rarely repeat, as concatenated UTF-8: row `i` is `data[ends[i]:ends[i + 1]]`."""

    ends: Buffer
    data: Buffer
    valid: Buffer | None = None  # Bitmap of the rows with a value; None if all rows have one.

    @classmethod
    def of(cls, values: Sequence[str]) -> Texts:
        data = [value.encode() for value in values]
        ends = array("i", accumulate(map(len, data), initial=0))
        return cls(ends.tobytes(), b"".join(data))

    @property
    def buffers(self) -> list[Buffer | None]:
        return [self.valid, self.ends, self.data]

    def list(self, stop: int, begin: int = 0) -> list[Any]:
        ends = memoryview(self.ends).cast("B").cast("i")[begin : stop + 1].tolist()
        data = memoryview(self.data)
        texts = [str(data[a:b], "utf-8") for a, b in pairwise(ends)]
        return _masked(texts, self.valid, begin)

    def of_rows(self, rows: Sequence[int]) -> Sequence[Any]:
        ends, data = memoryview(self.ends).cast("B").cast("i"), memoryview(self.data)
        return _of_rows(rows, self.valid, lambda row: str(data[ends[row] : ends[row + 1]], "utf-8"))


Values = Integers | Words | Texts | None
"""One column of a block; None if no row has a value."""


class Block(NamedTuple):
    """A sequence of ordinary events as packed columns: those of `Record`, without `detail`.

    The events cover `length` contiguous bytes of the input. In a block with the events of one process, events of other
    processes may lie between them. Begins and ends are separate rows. Attributes are JSON without white space around
    names. An event with a flaw has no id and no parent, and its attributes begin with `$flaw`."""

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
        """Return a column as a list with one element for each row; None for a row without a value."""
        return [None] * self.rows if values is None else values.list(self.rows)

    def columns(self, stop: int | None = None, begin: int = 0) -> list[list[Any]]:
        """Return rows `begin` to `stop` (exclusive) as a new list for each field of `Record`. Attributes lack
        `$flaw`."""
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
        return map(Record._make, zip(*self.columns(), strict=True))


def _of_rows(rows: Sequence[int], valid: Buffer | None, value: Callable[[int], Any]) -> list[Any]:
    if valid is None:
        return [value(row) for row in rows]
    bits = memoryview(valid)
    return [value(row) if bits[row >> 3] >> (row & 7) & 1 else None for row in rows]


def _masked(values: list[Any], valid: Buffer | None, begin: int) -> list[Any]:
    """Replace each value whose bit in the bitmap `valid` is 0 by None. The first value belongs to row `begin`."""
    if valid is None:
        return values
    bits = memoryview(valid).cast("B")
    return [v if bits[i >> 3] >> (i & 7) & 1 else None for i, v in enumerate(values, begin)]
