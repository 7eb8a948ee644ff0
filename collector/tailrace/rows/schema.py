"""Define the columns of the table `events`. No other module defines columns.

Stages pass rows as columns in the order of `ROW`. It lacks the columns in `DERIVED`, which are computed
from others."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args


class Column(NamedTuple):
    name: str
    type: str  # the column's type: date, string, long or timestamp
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
CODED = frozenset({"source", "format", "session", "stream", "kind", "name", "category"})
"""Columns with few distinct values, which are stored as codes of a dictionary."""
FEW_KINDS = ("begin", "end", "gap", "heal", "name", "session")
"""Kinds of rows that are rare in the table."""

OwnRow = Literal[
    "open",
    "moved",
    "restart",
    "resume",
    "continue",
    "rest",
    "evicted",
    "gave_way",
    "leave",
    "close",
    "account",
]
OWN_ROWS: tuple[OwnRow, ...] = get_args(OwnRow)
"""Names of the session rows that the collector itself writes. A producer may write session rows with the same names.

Among rows with these names, the collector's own are those that have a `time` and no `start`. Rows of documents, such as
metadata files, may have a `time` and no `start`, too, but have other names."""

IS_OWN = f"""(
  kind = 'session' AND start IS NULL AND time IS NOT NULL AND name IN ({", ".join(f"'{name}'" for name in OWN_ROWS)})
)"""
"""SQL condition for the session rows that the collector itself writes."""


def is_own(kind: str, name: str | None, start: int | None, time: int | None) -> bool:
    """Return whether the collector itself wrote a session row (`IS_OWN`)."""
    return kind == "session" and start is None and time is not None and name in OWN_ROWS


ROW = tuple(column.name for column in COLUMNS if column.name not in (*RUN, *DERIVED))


class Row(NamedTuple):
    """One row of the table, without the columns of `RUN`, whose values consecutive rows share."""

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
