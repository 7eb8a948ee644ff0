"""Hold rows of the table, and sums of some rows each (partial sums), as columns (`Pieces`), and number their texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
from numpy.typing import NDArray

Longs = NDArray[np.int64]
Ints = NDArray[np.int32]
Floats = NDArray[np.float64]
Truths = NDArray[np.bool_]

NONE = -1
"""Stands for a missing depth, a missing text, and a lane that is not drawn."""


class Pieces(NamedTuple):
    """Rows of the table, and sums of some rows each (partial sums), that are drawn. The fields are columns.

    - `number`: the index of the lane in the drawing.
    - `events`: the number of rows in a sum.
    - `label`, `member` and `kind`: numbers of texts in `FrameTexts`.
    - `spot`: the stored time or the tick of the begin.

    A sum of events has the values `spot`, `start`, `offset` and `kind` of its longest event. A sum of counter values
    has those of its latest value."""

    number: Ints
    what: NDArray[np.int8]
    timed: Truths
    depth: Ints
    edge: Longs
    spot: Longs
    start: Longs
    events: Longs
    busy: Longs
    longest: Longs
    label: Longs
    member: Longs
    offset: Longs
    kind: Longs
    least: Floats
    most: Floats
    latest: Floats
    open: Truths

    @classmethod
    def of(cls, rows: int, **columns: NDArray[Any]) -> Pieces:
        """Return `rows` rows with the given columns. A column that is not given has its default value in all rows
        (`_COLUMNS`)."""
        return cls._make(
            columns[name].astype(type_, copy=False)
            if name in columns
            else np.full(rows, value, type_)
            for name, (type_, value) in _COLUMNS.items()
        )

    @property
    def rows(self) -> int:
        return len(self.number)

    def take(self, chosen: NDArray[Any]) -> Pieces:
        """Return the rows that `chosen` (a mask, or an array of indices) selects."""
        return Pieces(*(column[chosen] for column in self))


def joined(parts: Sequence[Pieces]) -> Pieces:
    """Concatenate the rows of several sets of columns."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Pieces.of(0)
    return Pieces(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


_COLUMNS: dict[str, tuple[type[np.generic], int]] = {
    "number": (np.int32, 0), "what": (np.int8, 0), "timed": (np.bool_, 0), "depth": (np.int32, NONE),
    "edge": (np.int64, 0), "spot": (np.int64, 0), "start": (np.int64, 0), "events": (np.int64, 1),
    "busy": (np.int64, 0), "longest": (np.int64, 0), "label": (np.int64, NONE), "member": (np.int64, NONE),
    "offset": (np.int64, 0), "kind": (np.int64, NONE), "least": (np.float64, 0), "most": (np.float64, 0),
    "latest": (np.float64, 0), "open": (np.bool_, 0),
}  # fmt: skip
"""The type of each column of `Pieces`, and the value that stands for a missing value. A missing value in `what` means a
span."""


class FrameTexts:
    """The texts of one drawing, each with a number. A text that is in two Arrow dictionaries has two numbers."""

    def __init__(self) -> None:
        self._known: list[pa.Array] = []

    def numbered(self, codes: Ints | Longs, dictionary: pa.Array) -> Longs:
        """Add the texts of an Arrow dictionary. Return the number of the text for each code, and `NONE` for a code
        below 0."""
        self._known.append(dictionary)
        base = (len(self._known) - 1) << 32
        return np.where(codes < 0, NONE, codes.astype(np.int64) + base)

    def numbers_of(self, texts: list[str | None]) -> Longs:
        """Add a list of texts. Return the number of each text, and `NONE` for None."""
        return self.numbered(*coded(pa.chunked_array([pa.array(texts, pa.string())])))

    def texts(self, numbers: Longs) -> list[str | None]:
        """Return the text of each number, and None for `NONE`."""
        return [
            None if number < 0 else self._known[number >> 32][number & 0xFFFFFFFF].as_py()
            for number in numbers.tolist()
        ]

    def unified(self, numbers: Longs) -> tuple[list[str | None], Longs]:
        """Return the texts of the given numbers, each text once, and for each number the index of its text."""
        different, inverse = np.unique(numbers, return_inverse=True)
        places: dict[str | None, int] = {}
        codes = [places.setdefault(text, len(places)) for text in self.texts(different)]
        return list(places), np.array(codes, np.int64)[inverse.reshape(-1)]


def coded(texts: pa.ChunkedArray) -> tuple[Ints, pa.Array]:
    """Convert a text column to one Arrow dictionary. Return the code of each row (`NONE` for a null), and the
    dictionary."""
    column = texts.unify_dictionaries() if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()  # fmt: skip
    if not column.num_chunks:
        return np.zeros(0, np.int32), pa.array([], pa.string())
    array = column.combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    return array.indices.fill_null(NONE).to_numpy(zero_copy_only=False).astype(np.int32), array.dictionary  # fmt: skip


def numbers(column: pa.ChunkedArray, null: float = 0) -> NDArray[Any]:
    """Return a column of numbers or truth values as an array, with the value `null` in place of missing values."""
    filled = column.fill_null(null) if column.null_count else column
    found: NDArray[Any] = filled.to_numpy()
    return found
