"""Collect everything that the ingest produces between two commits: rows, and unreadable bytes for the quarantine.

Rows are lists of Python values, or blocks (`rows.block`), in which a compiled kernel has packed the values. Values that
consecutive rows share (`day`, `source`, `format`, `session`) are stored once for all these rows. One commit writes one
`Batch`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from tailrace.rows.block import Block, Values
from tailrace.rows.joining import PackedRows, pack
from tailrace.rows.schema import ROW, Row


class RowRun(msgspec.Struct):
    """The values that `rows` consecutive rows of a batch share. `day` counts days since 1970-01-01."""

    day: int
    source: str
    format: str
    session: str
    rows: int


class BlockRows(NamedTuple):
    """The rows of a block, with their wall times and with the columns that the ledger or the matching of spans
    adds."""

    block: Block
    time: Values
    seq: Values = None
    depth: Values = None
    end_offset: Values = None

    @property
    def rows(self) -> int:
        return self.block.rows

    def column(self, name: str) -> Values:
        """Return one column of these rows. `name` is one of the table's columns in `ROW`."""
        if name in BlockRows._fields:
            return getattr(self, name)  # type: ignore[no-any-return] # one of the columns above
        return getattr(self.block, name, None)

    def columns(self) -> tuple[Values, ...]:
        """Return all columns of these rows, in the order of `ROW`."""
        block = self.block
        return (
            block.stream, block.substream, self.seq, block.kind, block.name, block.category, block.id, block.parent,
            self.depth, block.start, block.end, self.time, None, block.attributes, block.offset, self.end_offset,
        )  # fmt: skip


ListRows = list[list[Any]]
"""The columns of several rows, as lists of values, in the order of `ROW`."""

Rows = ListRows | BlockRows

Emitted = Row | Sequence[Sequence[Any]] | BlockRows
"""The forms of rows that a batch accepts: one row, the columns of several rows in the order of `ROW`, or the rows of a block."""


class Part(NamedTuple):
    """Consecutive rows of a batch with the same day: either one list for each column, or one block."""

    day: int
    rows: Rows

    def column(self, name: str) -> list[Any]:
        """Return one column of these rows as a list. `name` is one of the table's columns in `ROW`."""
        if isinstance(self.rows, BlockRows):
            return self.rows.block.column(self.rows.column(name))
        return self.rows[ROW.index(name)]


class QuarantinedBytes(NamedTuple):
    """Unreadable bytes, encoded for a session's quarantine file, and their position in the file."""

    session: str
    at: int
    frame: bytes


class Batch:
    """The rows and the unreadable bytes of one commit, in order.

    `runs` has the values that consecutive rows share, and `parts` has the other columns. `bytes` is the approximate
    size of the rows. `quarantined` has the unreadable bytes."""

    __slots__ = (
        "_day", "_last", "_parts", "_single", "bytes", "day", "quarantined", "runs", "size",
    )  # fmt: skip

    def __init__(self) -> None:
        self.day = 0
        """Day of the rows that are added next (days since 1970-01-01)."""
        self._clear()

    def _clear(self) -> None:
        self.runs: list[RowRun] = []
        self.size = 0
        self.bytes = 0
        self.quarantined: list[QuarantinedBytes] = []
        self._parts: list[Part] = []
        self._single: list[Row] = []
        """The batch's last rows, if they were added one by one. `_join` moves them to `_parts`."""
        self._day = 0
        """Day of the rows in `_single`, the rows that were added one by one."""
        self._last: dict[Callable[[], None], None] = {}

    def __len__(self) -> int:
        return self.size

    @property
    def parts(self) -> list[Part]:
        self._join()
        return self._parts

    def packed(self) -> Iterator[tuple[int, list[RowRun], list[PackedRows]]]:
        """Yield for each day in order: the day, the values that consecutive rows share, and the other columns, packed
        by `joining.pack`.
        """
        runs = groupby(self.runs, key=attrgetter("day"))
        parts = groupby(self.parts, key=attrgetter("day"))
        for (day, of_day), (_, same_day) in zip(runs, parts, strict=True):
            yield day, list(of_day), pack([part.rows for part in same_day])

    @property
    def some(self) -> bool:
        """Return whether the next commit of this batch may have rows to write."""
        return bool(self.size or self._last)

    def at_last(self, write: Callable[[], None]) -> None:
        """Schedule one call of `write` for the next `take`. The call adds rows of the spans that are still open then."""
        self._last[write] = None

    def keep(self, session: str, at: int, frame: bytes) -> None:
        """Add encoded bytes for a session's quarantine file, at the position `at` in the file."""
        self.quarantined.append(QuarantinedBytes(session, at, frame))

    def take(self) -> Batch:
        """Return a batch with all rows and unreadable bytes that were added since the last call, and empty this batch."""
        for write in self._last:
            write()
        self._last = {}
        taken = copy(self)
        self._clear()
        return taken

    def extend(self, source: str, format_: str, session: str, rows: Emitted, size: int) -> None:
        """Append one row, several rows as columns in the order of `ROW`, or the rows of a block. They get the day
        `day`.

        `size` is the approximate size of the rows in bytes."""
        day = self.day
        if isinstance(rows, Row):
            count = 1
        else:
            count = rows.rows if isinstance(rows, BlockRows) else len(rows[0])
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
        """Convert the rows that were added one by one to columns, and append them to `_parts`."""
        if self._single:
            rows, self._single = self._single, []
            self._append(self._day, list(zip(*rows, strict=True)))

    def _append(self, day: int, columns: Sequence[Sequence[Any]]) -> None:
        """Append rows, given as columns, to `_parts`. Extend the last part if it has the same day and consists of
        lists. Otherwise add a part."""
        last = self._parts[-1] if self._parts else None
        if last and last.day == day and isinstance(last.rows, list):
            for mine, more in zip(last.rows, columns, strict=True):
                mine.extend(more)
        else:
            self._parts.append(Part(day, [list(column) for column in columns]))

    def column(self, name: str) -> list[Any]:
        """Return one column of the table for all rows. A value that consecutive rows share is repeated for each row.

        The column `wall` is computed from `time`: microseconds since 1970, rounded towards zero."""
        if name == "wall":
            return [
                time if time is None else time // 1000 if time >= 0 else -(-time // 1000)
                for time in self.column("time")
            ]
        if name not in ROW:
            return list(
                chain.from_iterable(repeat(getattr(run, name), run.rows) for run in self.runs)
            )
        return list(chain.from_iterable(part.column(name) for part in self.parts))
