"""The columns of the table `events`, defined here and nowhere else.

Rows travel as tuples in the order of `ROW`. The values that consecutive rows share (`day`, `source`,
`format`, `session`) are stored once for each run of rows. One commit writes one `Batch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import NamedTuple

import msgspec


class Column(NamedTuple):
    name: str
    type: str  # date | string | long
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
    Column("start", "long", nullable=True, meaning="in the session's own ticks, exactly as given"),
    Column("end", "long", nullable=True, meaning="in the session's own ticks, exactly as given"),
    Column("time", "long", nullable=True, meaning="start as Unix nanoseconds, where known at commit"),
    Column("attributes", "string", nullable=True, meaning="JSON object: every field of the source record without a column"),
    Column("offset", "long", nullable=False, meaning="where the record begins in the session's bytes"),
)  # fmt: skip

RUN = ("day", "source", "format", "session")
ROW = tuple(column.name for column in COLUMNS if column.name not in RUN)


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
    start: int | None
    end: int | None
    time: int | None
    attributes: str | None
    offset: int


class RowRun(msgspec.Struct):
    """The values that `rows` consecutive rows share; `day` counts from 1970-01-01."""

    day: int
    source: str
    format: str
    session: str
    rows: int


class Batch:
    """The rows of one commit, as columns (in `ROW`'s order), grouped in runs."""

    __slots__ = ("bytes", "columns", "runs")

    def __init__(self) -> None:
        self.runs: list[RowRun] = []
        self.columns: list[list[object]] = [[] for _ in ROW]
        self.bytes = 0

    def __len__(self) -> int:
        return len(self.columns[0])

    def extend(
        self,
        day: int,
        source: str,
        format_: str,
        session: str,
        columns: Sequence[Sequence[object]],
        size: int,
    ) -> None:
        """Append rows given as columns in `ROW`'s order; `size` is their approximate size in bytes."""
        rows = len(columns[0])
        if not rows:
            return
        last = self.runs[-1] if self.runs else None
        if last and last.session == session and last.day == day and last.source == source:
            last.rows += rows
        else:
            self.runs.append(RowRun(day, source, format_, session, rows))
        for mine, more in zip(self.columns, columns, strict=True):
            mine.extend(more)
        self.bytes += size

    def column(self, name: str) -> list[object]:
        """Return one whole column; the value of a run is repeated for each of its rows."""
        if name in ROW:
            return self.columns[ROW.index(name)]
        return list(chain.from_iterable(repeat(getattr(run, name), run.rows) for run in self.runs))
