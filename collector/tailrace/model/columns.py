"""The columns of the table `events`, defined here and nowhere else.

Rows travel as columns in the order of `ROW`: lists of Python values, or a block with what the ledger adds.
The values that consecutive rows share (`day`, `source`, `format`, `session`) are stored once for each run of
rows. One commit writes one `Batch`. The values of `DERIVED` columns follow from others, so they do not travel.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

import msgspec

from tailrace.model.block import Block, Values


class Column(NamedTuple):
    name: str
    type: str  # date | string | long | timestamp
    nullable: bool
    meaning: str


COLUMNS = (
    Column("day", "date", nullable=False, meaning="UTC day of ingest; the only partition column"),
    Column("source", "string", nullable=False, meaning="name of the source in the configuration; tailrace for the daemon's own heartbeats"),
    Column("format", "string", nullable=False, meaning="heph, jets, ovni, dftracer, et3; tailrace for the daemon's own heartbeats"),
    Column("session", "string", nullable=False, meaning="one incarnation of one producer"),
    Column("stream", "string", nullable=False, meaning="one producer's ordered sequence"),
    Column("substream", "long", nullable=True, meaning="multiplexed execution on the stream"),
    Column("seq", "long", nullable=True, meaning="the producer's counter, unwrapped past 2^32; of a gap, the first missing"),
    Column("kind", "string", nullable=False, meaning="span, begin, end, instant, counter, annotation, name, session, gap, heal"),
    Column("name", "string", nullable=True, meaning="what the event is called; of a gap or heal, its reason"),
    Column("category", "string", nullable=True, meaning="the producer's own grouping of names"),
    Column("id", "long", nullable=True, meaning="record or object id; unsigned 64-bit ids are bit-cast"),
    Column("parent", "long", nullable=True, meaning="id of the enclosing or annotated record"),
    Column("depth", "long", nullable=True, meaning="of a span with an id: how many spans enclose it; null where that is unknown"),
    Column("start", "long", nullable=True, meaning="in the session's own ticks, exactly as given"),
    Column("end", "long", nullable=True, meaning="in the session's own ticks, exactly as given"),
    Column("time", "long", nullable=True, meaning="start as Unix nanoseconds, where known at commit"),
    Column("wall", "timestamp", nullable=True, meaning="`time` as a timestamp in UTC, cut to microseconds"),
    Column("missing", "long", nullable=True, meaning="of a gap, how many events are missing, null if unknown; of a heal, how many came after all"),
    Column("attributes", "string", nullable=True, meaning="JSON object: every field of the source record without a column"),
    Column("offset", "long", nullable=False, meaning="where the record begins in the session's bytes; of a span, its begin"),
    Column("end_offset", "long", nullable=True, meaning="of a span that a record of its own ended, where that record begins"),
)  # fmt: skip

RUN = ("day", "source", "format", "session")
DERIVED = ("wall",)
FEW_KINDS = ("begin", "end", "gap", "heal", "name", "session")
"""The kinds of rows of which a table has few beside its events."""

ROW = tuple(column.name for column in COLUMNS if column.name not in (*RUN, *DERIVED))


class Row(NamedTuple):
    """One row without the columns of its run, in table order."""

    stream: str
    substream: int | None
    seq: int | None
    kind: str
    name: str | None
    category: str | None
    id: int | None
    parent: int | None
    depth: int | None
    start: int | None
    end: int | None
    time: int | None
    missing: int | None
    attributes: str | None
    offset: int
    end_offset: int | None


class RowRun(msgspec.Struct):
    """The values that `rows` consecutive rows share; `day` counts from 1970-01-01."""

    day: int
    source: str
    format: str
    session: str
    rows: int


class BlockRows(NamedTuple):
    """Rows whose values are a block's, with what the ledger or the matching of spans adds, and wall times."""

    block: Block
    time: Values
    seq: Values = None
    depth: Values = None
    end_offset: Values = None

    @property
    def rows(self) -> int:
        return self.block.rows

    def column(self, name: str) -> Values:
        """Return one of `ROW`'s columns."""
        if name in BlockRows._fields:
            return getattr(self, name)  # type: ignore[no-any-return] # one of the columns above
        return getattr(self.block, name, None)

    def columns(self) -> tuple[Values, ...]:
        """Return all of them, in `ROW`'s order."""
        block = self.block
        return (
            block.stream, block.substream, self.seq, block.kind, block.name, block.category, block.id, block.parent,
            self.depth, block.start, block.end, self.time, None, block.attributes, block.offset, self.end_offset,
        )  # fmt: skip


ListRows = list[list[Any]]
"""Rows as lists of values, in `ROW`'s order."""

Rows = ListRows | BlockRows

Emitted = Row | Sequence[Sequence[Any]] | BlockRows
"""One row, or rows as columns in `ROW`'s order or as those of a block."""


class Part(NamedTuple):
    """Rows of one day, one behind the other."""

    day: int
    rows: Rows

    def column(self, name: str) -> list[Any]:
        """Return one of `ROW`'s columns as a list."""
        if isinstance(self.rows, BlockRows):
            return self.rows.block.column(self.rows.column(name))
        return self.rows[ROW.index(name)]


class Batch:
    """The rows of one commit, in order: parts with their columns, and runs of rows that share values."""

    __slots__ = ("_day", "_parts", "_single", "bytes", "runs", "size")

    def __init__(self) -> None:
        self.runs: list[RowRun] = []
        self.size = 0
        self.bytes = 0
        self._parts: list[Part] = []
        self._single: list[Row] = []
        """The last rows, each of which came alone and is in no part yet."""
        self._day = 0
        """Their day."""

    def __len__(self) -> int:
        return self.size

    @property
    def parts(self) -> list[Part]:
        self._join()
        return self._parts

    def extend(
        self,
        day: int,
        source: str,
        format_: str,
        session: str,
        rows: Emitted,
        size: int,
    ) -> None:
        """Append one row, or rows as columns in `ROW`'s order or as those of a block; `size` is about how many bytes
        they are."""
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
        """Put the rows that came alone into a part."""
        if self._single:
            rows, self._single = self._single, []
            self._append(self._day, list(zip(*rows, strict=True)))

    def _append(self, day: int, columns: Sequence[Sequence[Any]]) -> None:
        """Append rows, as columns, to the lists of a day or, if the last part has none, as a part."""
        last = self._parts[-1] if self._parts else None
        if last and last.day == day and isinstance(last.rows, list):
            for mine, more in zip(last.rows, columns, strict=True):
                mine.extend(more)
        else:
            self._parts.append(Part(day, [list(column) for column in columns]))

    def column(self, name: str) -> list[Any]:
        """Return one whole column; the value of a run is repeated for each of its rows.

        For `wall`, return microseconds since 1970."""
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
