"""Define the output of decoders: one `Record` for each unit of a format, and one for each piece of input that cannot be
read.

A record is a named tuple, not a struct, so that one call of `zip` turns the records of a chunk into columns. Its fields
are the columns of the table (see `rows.schema`). Columns that only later stages can fill are left out. `start` and
`end` are ticks of the producer's clock, and `counter` is the number on the wire.

The table has no unsigned types. So an unsigned 64-bit value is stored as the signed value with the same bits
(`as_int64`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec

from tailrace.model.gap import Reason

NAME_OF_ROW, NAMES_OF_MEMBERS = "$name", "$late"
"""Names of the attributes that contain keys of names, if the names are unknown when the event is decoded.

- `$name`: the key of the event's own name. It may have several keys, one a line; the first key with a known name
  counts.
- `$late`: an object with each attribute whose value will be a name, and the key of this name."""

FLAW_OF_ROW = "$flaw"
"""Name of the attribute that contains the rule of the format that a record breaks.

This attribute comes before all other attributes of the row.
"""

BEGIN_WORDS = "$begin"
"""Name of an attribute of a span: an object with values from the span's begin. It has the attributes whose values in
the begin and the end differ."""

KEY, SCOPE = "$key", "$scope"
"""Names of the attributes of a `name` row: the key to which the row assigns a name, and the scope in which the
assignment holds.
"""


class Kind(StrEnum):
    """Kinds of records: the values of the table's column `kind`, and `malformed`, which only decoders use."""

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


ALONE = frozenset({Kind.SESSION, Kind.MALFORMED, Kind.GAP, Kind.HEAL})
"""Kinds of records that the ingest processes one by one.

Such a record concerns the session, or bytes and events that the session lacks."""


class Announcement(msgspec.Struct, frozen=True):
    """A client's announcement of its session.

    - `id`: the same on all connections of the session, and unique among sessions.
    - `acknowledge`: whether the client wants acknowledgements at all.
    - `turn`: a number that grows with each announcement that asks for a complete acknowledgement.
    - `now`: the time of the announcement, in ticks since the epoch."""

    id: str
    turn: int = 0
    acknowledge: bool = False
    now: int | None = None


class Goodbye(msgspec.Struct, frozen=True):
    """A client's statement that its session ends: for each stream, the number (as sent) that the next event would have
    had.

    If a goodbye is sent in several numbered parts, `part` is the number of this part, from 0 on. `more` states that
    another part follows."""

    streams: dict[str, int]
    more: bool = False
    part: int | None = None

    @property
    def at_least(self) -> bool:
        """Return whether the numbers in `streams` are only lower bounds, because the client may have sent more events
        after this packet.
        """
        return self.more and self.part is None


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts from a session record, such as Heph's `epoch` or JETS's header and footer.

    `clock`: unix_ns, monotonic_ns, clk or logical. `epoch`: the time of tick 0 (Unix ns). `starts`: whether the record
    begins a new incarnation (run) of the producer when records came before it. `totals`: the number of records that the
    producer wrote, by kind (begin, end, annotation, instant). `ends`: whether the producer has written its last record.
    `discarded`: ranges of events that the client no longer has: stream, first number as sent, length. `elsewhere`:
    whether another collector has acknowledged the `discarded` events. `never_sent`: the number of events of this
    session that the client has discarded without sending them. `process`: the number of the process that wrote all
    following records, in an input from several processes. Each process has incarnations of its own."""

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
    """The part of a producer's run (program execution) that one input contains. Other inputs may contain other parts.
    The ids of the run's events are 1, 2, 3, ….

    `host`: the producer's host, or empty if unknown.
    `ranges`: the received ids in order, or empty if missing ids do not show missing events.
    `last`: the id of the run's last event, or 0 if this event has not arrived.
    `counts`: whether missing ids certainly show missing events.
    `unnumbered`: the number of malformed records, whose ids are unknown.
    `settled`: whether the decoder has reported all missing ids between the first and the last event.
    `waits`: whether the first and the last event have arrived, and further input may change `counts`."""

    pid: str
    host: str
    ranges: tuple[tuple[int, int], ...]
    last: int = 0
    counts: bool = False
    unnumbered: int = 0
    settled: bool = False
    waits: bool = False


class Missing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts of a gap record that have no column.

    - `count`: the number of missing events, or 0 if unknown.
    - `of`: the kind of the missing events.
    - `detail`: a word for the observation that shows the loss, such as `no_end`. Each format has its own words.
    - `piece`: the part of the producer's run that the input contains, if other inputs may contain the missing events.
    - `last`: the last number of the gap, if some numbers within the gap are not missing."""

    count: int
    of: str | None = None
    detail: str | None = None
    piece: RunPiece | None = None
    last: int | None = None


class Record(NamedTuple):
    """One decoded unit, or one piece of input that cannot be read.

    `offset` and `size` are its position and length in the decoder's input, in bytes. The records of an input cover it
    completely and without overlap. `attributes` is a JSON object as text, or None if it has no members. `flaw` is the
    rule that a readable record breaks (one of the format's `flaws`), the reason why a record cannot be read (one of the
    format's `malformed`), or None. `detail` has the `SessionFacts` of a session record, the bytes of a malformed
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
    """Return a record that contains bytes which cannot be read, and the reason why."""
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
    """Return a gap record.

    It states that events are missing from number `first` on, and that the input before `offset` proves this.
    """
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
    """Return a record that assigns a name to a key. The assignment holds for all events within a scope that refer to
    the key (see `NAME_OF_ROW`).

    The scope is the session, its group of files, or the whole source. Keys that are computed from the name itself hold
    for the whole source."""
    attributes = json.dumps({KEY: key, SCOPE: scope, **(also or {})}, separators=(",", ":"))
    return Record(
        offset, size, Kind.NAME, stream,
        None, None, name, None, None, None, None, None, attributes, None, None,
    )  # fmt: skip


def as_int64(value: int) -> int:
    """Return the signed 64-bit value that has the same bits as the unsigned value."""
    return value if value < 0x8000_0000_0000_0000 else value - 0x1_0000_0000_0000_0000
