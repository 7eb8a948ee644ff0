"""Joins the small parts of a batch, so that what Arrow spends on each array is spent once for many.

A source of many connections yields a block of some rows for each, with lists of session rows between them. An array
costs some 10 µs, however short it is, and a part has as many as the table has columns; to copy a row costs 15 ns
(docs/decisions/speed.md, D107).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.kernels import active
from tailrace.rows.batch import BlockRows, Rows
from tailrace.rows.block import Integers, Texts, Values, Words
from tailrace.rows.schema import COLUMNS, ROW

if TYPE_CHECKING or active():
    from tailrace.store import _joined

LONG = 1024
"""Rows of a list that is worth arrays of its own: Arrow reads its values as fast as they are copied here."""

LARGE = 4096
"""Rows of a block that is worth arrays of its own: a copy would cost about as much, and its memory besides."""

ENOUGH = 65536
"""Rows at which no more parts are joined."""

_LONG = frozenset(column.name for column in COLUMNS if column.type == "long")
_MUST = frozenset(column.name for column in COLUMNS if not column.nullable)


class Joined(NamedTuple):
    """Rows of several parts."""

    rows: int
    columns: dict[str, Values]

    def column(self, name: str) -> Values:
        """Return one of `ROW`'s columns."""
        return self.columns[name]


def join(parts: list[Rows], coded: frozenset[str]) -> list[Rows | Joined]:
    """Return the parts in order, small ones joined. The columns `coded` become words."""
    if not active():
        return [*parts]  # without kernels there are no blocks, and one list has all rows of a day
    groups = _groups(parts)
    return [group[0] if len(group) == 1 else _joined_rows(group, coded) for group in groups]


def _groups(parts: list[Rows]) -> Iterator[list[Rows]]:
    group: list[Rows] = []
    rows = 0
    for part in parts:
        count = _count(part)
        alone = count >= (LARGE if isinstance(part, BlockRows) else LONG)
        if group and (alone or rows >= ENOUGH):
            yield group
            group, rows = [], 0
        if alone:
            yield [part]
        else:
            group.append(part)
            rows += count
    if group:
        yield group


def _joined_rows(parts: list[Rows], coded: frozenset[str]) -> Joined:
    counts = [_count(part) for part in parts]
    all_columns = [part.columns() if isinstance(part, BlockRows) else part for part in parts]
    columns = zip(ROW, zip(*all_columns, strict=True), strict=True)
    return Joined(
        sum(counts), {name: _column(name, [*each], counts, coded) for name, each in columns}
    )


def _column(name: str, values: list[Any], counts: list[int], coded: frozenset[str]) -> Values:
    """Return a column of the values that parts have for it."""
    found: Values
    if name not in _MUST and all(map(_has_none, values)):
        return None
    try:
        if name in _LONG:
            found = Integers(*_joined.integers(values, counts))
        elif name in coded:
            codes, texts, valid = _joined.words(values, counts)
            found = Words(codes, texts, len(texts), valid)
        else:
            found = Texts(*_joined.texts(values, counts))
        if name in _MUST and found.valid is not None:
            raise TypeError("a row has no value")  # noqa: TRY301 - the note below is for all errors
    except (TypeError, OverflowError, UnicodeError) as error:
        error.add_note(f"in column {name!r}")
        raise
    return found


def _has_none(values: Any) -> bool:  # noqa: ANN401 - a column of a block, or a list
    """Return whether no row of a part has a value."""
    return values is None or (isinstance(values, list) and values.count(None) == len(values))


def _count(part: Rows) -> int:
    return part.rows if isinstance(part, BlockRows) else len(part[0])
