"""Define the output of decoders: one `Record` for each unit of a format, and for each unreadable piece.

A record is a named tuple instead of a struct, so that one `zip` turns a chunk's records into columns. Its fields are
the table's columns (see `rows.schema`) as far as they are known without the session: `start` and `end` are the
producer's own ticks, `counter` is the wire number.

Unsigned 64-bit values are bit-cast to signed values (`as_int64`), because the table has no unsigned type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec

from tailrace.model.gap import Reason

NAME_OF_ROW, NAMES_OF_MEMBERS = "$name", "$late"
"""Attributes by which an event requests names that are unknown when the event is read. `$name` holds the key of the
event's own name, or several keys, one per line: the first known key counts. `$late` is an object that maps further
members of the attributes to the keys of their names."""

FLAW_OF_ROW = "$flaw"
"""Attribute of a row that names the row's flaw. It precedes the attributes of the flawed record."""

BEGIN_WORDS = "$begin"
"""Attribute of a span with the attributes of the begin whose values differ from the end's values."""

KEY, SCOPE = "$key", "$scope"
"""Attributes of a `name` row: the key of the name, and the scope in which the name is valid."""


class Kind(StrEnum):
    """Values of the table's `kind` column, and `malformed`, which only decoders use."""

    SPAN = "span"
    BEGIN = "begin"
    END = "end"
    INSTANT = "instant"
    COUNTER = "counter"
    ANNOTATION = "annotation"
    NAME = "name"
    SESSION = "session"
    GAP = "gap"
    HEAL = "heal"
    MALFORMED = "malformed"


class Announcement(msgspec.Struct, frozen=True):
    """Announcement of a session by a client: `id` is the same on all connections of the session, and differs from the
    ids of all other sessions.

    `turn` increases with each announcement that requests a full acknowledgement. `acknowledge` states whether the
    client wants acknowledgements at all. `now` is the time of the announcement, in ticks since the epoch."""

    id: str
    turn: int = 0
    acknowledge: bool = False
    now: int | None = None


class Goodbye(msgspec.Struct, frozen=True):
    """End of a session, stated by its client: for each stream, the wire number that the next event would have had. With
    `more`, another goodbye follows for further streams. `part` is the number of a part, from 0 on, in a goodbye of
    several parts."""

    streams: dict[str, int]
    more: bool = False
    part: int | None = None

    @property
    def at_least(self) -> bool:
        """Return whether the goodbye contains only lower bounds, because its streams may have continued."""
        return self.more and self.part is None


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts that a session record (Heph `epoch`, JETS header and footer) passes to the later stages.

    `clock` is unix_ns, monotonic_ns, clk or logical. `epoch` is tick 0 in Unix nanoseconds. `starts`: the record begins
    a new incarnation of the producer if earlier records exist. `totals`: number of records of each kind (begin, end,
    annotation, instant) that the producer wrote in this session. `ends`: the producer has written its last record.

    `announces` is the client's session, and `goodbye` its end. `discarded` lists the ranges that the client no longer
    has (stream, first wire number, length). The client discarded these events or, with `elsewhere`, another collector
    has acknowledged them. `never_sent` is the number of events that the client has discarded without sending in the
    session so far. `process` is the number of the process that wrote all following records, in an input of several
    processes. Each process has an incarnation of its own."""

    clock: str | None = None
    ticks_per_second: float | None = None
    epoch: int | None = None
    starts: bool = False
    totals: dict[str, int] | None = None
    ends: bool = False
    announces: Announcement | None = None
    discarded: tuple[tuple[str, int, int], ...] = ()
    elsewhere: bool = False
    never_sent: int = 0
    goodbye: Goodbye | None = None
    process: int | None = None


class RunPiece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Part of a producer's run in one input, for runs whose events have the ids 1, 2, 3, …: other inputs may contain
    the other parts.

    `pid` and `host` identify the producer, "" for an unknown host. `ranges` contains the received ids in order, and is
    empty if ids prove nothing. `last` is the id of the run's last event, 0 if the run's end did not arrive. `counts`:
    whether the input shows that its ids count events. `unnumbered` is the number of malformed records that may have any
    id. `settled`: the decoder has reported the missing ids between first and last event. `waits`: the decoder has both
    events, but later input may still show that ids prove nothing."""

    pid: str
    host: str
    ranges: tuple[tuple[int, int], ...]
    last: int = 0
    counts: bool = False
    unnumbered: int = 0
    settled: bool = False
    waits: bool = False


class Missing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts of a gap record beyond its columns: the number of missing events (0: unknown), the kind of the missing
    records, and the evidence as a term of the format. `piece` is the run's part before the record, if other inputs may
    contain the missing events. `last` is the upper bound of the missing numbers."""

    count: int
    of: str | None = None
    detail: str | None = None
    piece: RunPiece | None = None
    last: int | None = None


class Record(NamedTuple):
    """One decoded unit.

    `offset` and `size` are bytes of the decoder's input; the records of an input cover the input without overlap.
    `attributes` is a JSON object as text, or None for an empty object. `flaw` is the name of the rule that a readable
    record breaks (one of the format's `flaws`), or the reason why a malformed record is unreadable (one of the format's
    `malformed`), or None. `detail` holds data without a column: the facts of a session record, the bytes of a malformed
    record, or the `Missing` of a gap."""

    offset: int
    size: int
    kind: str
    stream: str
    substream: int | None
    counter: int | None
    name: str | None
    category: str | None
    id: int | None
    parent: int | None
    start: int | None
    end: int | None
    attributes: str | None
    flaw: str | None
    detail: SessionFacts | Missing | bytes | None


def malformed(offset: int, data: bytes, reason: str, stream: str = "") -> Record:
    """Return a record with unreadable bytes, kept whole, and the reason."""
    return Record(
        offset, len(data), Kind.MALFORMED, stream,
        None, None, None, None, None, None, None, None, None, reason, data,
    )  # fmt: skip


def missing(
    offset: int,
    reason: Reason,
    count: int,
    *,
    stream: str = "",
    first: int | None = None,
    of: str | None = None,
    detail: str | None = None,
    piece: RunPiece | None = None,
    last: int | None = None,
) -> Record:
    """Return a gap record: the bytes before `offset` prove that events from number `first` on are missing."""
    about = Missing(count=count, of=of, detail=detail, piece=piece, last=last)
    return Record(
        offset, 0, Kind.GAP, stream,
        None, first, reason, None, None, None, None, None, None, None, about,
    )  # fmt: skip


def named(
    offset: int,
    size: int,
    key: str,
    name: str,
    *,
    scope: Literal["session", "group", "source"] = "session",
    stream: str = "",
    also: Mapping[str, object] | None = None,
) -> Record:
    """Return a name record for all events that request `key` (see `NAME_OF_ROW`) within a scope.

    The scope is the session, its group of files, or the whole source (for a key derived from the name's content)."""
    attributes = json.dumps({KEY: key, SCOPE: scope, **(also or {})}, separators=(",", ":"))
    return Record(
        offset, size, Kind.NAME, stream,
        None, None, name, None, None, None, None, None, attributes, None, None,
    )  # fmt: skip


def as_int64(value: int) -> int:
    """Return the signed 64-bit value with the same bits as an unsigned one."""
    return value if value < 0x8000_0000_0000_0000 else value - 0x1_0000_0000_0000_0000
