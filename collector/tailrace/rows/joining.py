"""Pack the rows of a batch into columns of Arrow buffers.

A batch consists of parts: a part is one block, or a list for each column. A source with many connections yields many
small parts. `pack` joins them, because each part would need an Arrow array for each column, and an array takes about 10
µs, however short it is. A copy of a row takes only 15 ns (docs/decisions/speed.md, D107).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tailrace.kernels import active
from tailrace.rows.block import Buffer, Integers, Texts, Values, Words
from tailrace.rows.schema import CODED, COLUMNS, ROW

if TYPE_CHECKING:
    from tailrace.rows.batch import Rows
if TYPE_CHECKING or active():
    from tailrace.rows import _joined
    from tailrace.rows._columns import divided, present, recoded
if TYPE_CHECKING or not active():
    import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
    from arro3.core import Array, DataType

LARGE = 4096
"""Minimum number of rows of a large block, which is not joined with other parts of a batch. Its own arrays take
about as much time as a copy of its rows, and need less memory."""

ENOUGH = 65536
"""Number of rows at which a group of parts (blocks or lists) is complete. The next part begins a new group."""

_LONG = frozenset(column.name for column in COLUMNS if column.type == "long")
_MUST = frozenset(column.name for column in COLUMNS if not column.nullable)


class PackedRows(NamedTuple):
    """The rows of one or several joined parts of a batch, as packed columns."""

    rows: int
    columns: dict[str, Values]
    """The table's columns by name. Columns with few distinct texts (`CODED`) are `Words`. An empty column is None."""

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
    """Convert the parts of a batch (blocks or lists of rows) to packed columns, in order. Join small parts.

    Raise TypeError, OverflowError or UnicodeError for a value that its column cannot hold. The exception has
    the column's name as a note."""
    return list(map(_packed, _groups(parts)))


def _groups(parts: Sequence[Rows]) -> Iterator[list[Rows]]:
    """Yield groups of parts (blocks or lists of rows) to join.

    A group has at least `ENOUGH` rows; only the last group, and a group before a large block, may have fewer. A large
    block (`LARGE`) is a group of its own. Without compiled kernels, each part is a group of its own."""
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
    """Join the values of the column `name` from several parts (blocks or lists of rows) into one column. `counts` has
    the number of rows of each part.

    Raise TypeError if a row lacks a value that the table requires. Errors have the column's name as a note."""
    try:
        found = None if all(map(_has_none, values)) else _some(name, values, counts)
        if name in _MUST and (found is None or found.valid is not None):
            raise TypeError("a row has no value")  # noqa: TRY301 - the note below is for all errors
    except (TypeError, OverflowError, UnicodeError) as error:
        error.add_note(f"in column {name!r}")
        raise
    return found


def _some(name: str, values: list[Any], counts: list[int]) -> Values:
    if not active():
        return _of_list(name, values[0])
    if name in _LONG:
        return Integers(*_joined.integers(values, counts))
    if name not in CODED:
        return Texts(*_joined.texts(values, counts))
    codes, texts, valid = _joined.words(values, counts)
    return Words(codes, texts, len(texts), valid)


def _of_list(name: str, values: list[Any]) -> Values:
    """Convert a list of values to the column `name`, with arro3.

    pyarrow would silently truncate fractions. It would also import pandas, if installed, which takes 30 MB and 0.25 s.
    """
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
    """Return whether `values`, a column of a block or a list, has no value in any row."""
    if isinstance(values, list):
        return (not values or values[0] is None) and values.count(None) == len(values)
    return values is None


def _count(part: Rows) -> int:
    return len(part[0]) if isinstance(part, list) else part.rows


class Coding:
    """One dictionary of texts for the `Words` columns of many blocks. Each text in the dictionary occurs in
    some row."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._tables: dict[int, array[int]] = {}
        """For each list of texts that blocks share, by the list's `id`: the codes of these texts in this dictionary, or
        -1 for texts that are not in the dictionary."""

    @property
    def texts(self) -> list[str]:
        return list(self._codes)

    def codes(self, words: Words, rows: int) -> Buffer:
        """Return the code of each text in the first `rows` rows of `words`, in this dictionary. Add texts that the
        dictionary lacks. A row without a text gets the code 0."""
        codes, texts = self._codes, words.texts
        if not active():
            # Each text in the list occurs in some row, because the list was made from the rows.
            known = [codes.setdefault(text, len(codes)) for text in texts]
            if known == list(range(len(texts))):
                return words.codes
            return array(
                "i", map(known.__getitem__, memoryview(words.codes).cast("B").cast("i"))
            ).tobytes()
        table = self._tables.setdefault(id(texts), array("i"))
        table.frombytes(b"\xff" * (4 * max(0, words.known - len(table))))
        for code in present(words.codes, rows, words.known, words.valid):
            if table[code] < 0:
                table[code] = codes.setdefault(texts[code], len(codes))
        return recoded(words.codes, rows, table)
