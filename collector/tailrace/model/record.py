"""The output of decoders: one `Record` for each unit of a format, and for what could not be read.

A record is a named tuple and not a struct, so that one `zip` turns a chunk's records into columns. Its
fields are the table's columns (see `rows.schema`) as far as they are known without the session:
`start` and `end` are the producer's own ticks, `counter` is the number as it stood on the wire.

Unsigned 64-bit values are bit-cast to signed ones (`as_int64`), since the table has no unsigned type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec

from tailrace.model.gap import Reason

NAME_OF_ROW, NAMES_OF_MEMBERS = "$name", "$late"
"""Attributes by which an event asks for names that are not known when it is read. The first holds the key
of the event's own name, or several keys, one a line: the first known key counts. The second is an object
that maps further members of the attributes to the keys of their names."""

FLAW_OF_ROW = "$flaw"
"""The attribute of a row that names its flaw, in front of the attributes of the record that has the flaw."""

BEGIN_WORDS = "$begin"
"""The attribute of a span that holds those of its begin's attributes whose values differ from its end's."""

KEY, SCOPE = "$key", "$scope"
"""Attributes of a `name` row: the key that it names, and the scope in which the name holds."""


class Kind(StrEnum):
    """The closed set of values of the table's `kind` column, and `malformed`, which only decoders use."""

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
    """A client names its session: `id` is the same on all of its connections and no other session's.

    `turn` grows with each announcement that asks for a full answer; `acknowledge` says whether the client
    wants answers at all. `now` is when it said so, in ticks since the epoch."""

    id: str
    turn: int = 0
    acknowledge: bool = False
    now: int | None = None


class Goodbye(msgspec.Struct, frozen=True):
    """A client ends its session: for each stream, the wire number that its next event would have had. With
    `more`, another goodbye follows for further streams. `part` is the number of a part, from 0 on, where the
    goodbye is said in several."""

    streams: dict[str, int]
    more: bool = False
    part: int | None = None

    @property
    def at_least(self) -> bool:
        """Return whether the goodbye has only lower bounds, because its streams may have gone on."""
        return self.more and self.part is None


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts that a session record (Heph `epoch`, JETS header and footer) tells the later stages.

    `clock` is unix_ns, monotonic_ns, clk or logical; `epoch` is tick 0 in Unix nanoseconds.
    `starts`: a new incarnation of the producer begins with this record if records came before it.
    `totals`: how many records of each kind (begin, end, annotation, instant) the producer wrote in this
    session. `ends`: the producer has written its last record. `announces` is the client's session, `goodbye` its
    end, `discarded` the ranges that the client has no more (stream, first wire number, how many): it threw them
    away or, with `elsewhere`, another collector has acknowledged them. `never_sent` is the number of events that
    the client threw away without sending them, in the session so far. `process` is the number of the process of which all that
    follows is, in an input of several processes: each has an incarnation of its own.
    """

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
    """The part of a producer's run that one input has, where the run's events have the ids 1, 2, 3, …: other inputs may have the rest.

    `pid` and `host` name the producer, "" for an unknown host. `ranges` are the ids that came, in order; none where ids prove
    nothing. `last` is the id of the run's last event, 0 where the run's end did not come. `counts`: whether the input shows that
    its ids count events. `unnumbered` is the number of malformed records that may have any id.
    `settled`: the decoder has said which ids between first and last event are missing. `waits`: it has both events, and what
    follows may still show that ids prove nothing."""

    pid: str
    host: str
    ranges: tuple[tuple[int, int], ...]
    last: int = 0
    counts: bool = False
    unnumbered: int = 0
    settled: bool = False
    waits: bool = False


class Missing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of a gap record beyond its columns: how many events are missing (0: unknown), the kind of the
    missing records, and the format's own word for how that is known. `piece` is the run's part before the record, where
    other inputs may have what is missing. `last`: the missing numbers are among those up to this one."""

    count: int
    of: str | None = None
    detail: str | None = None
    piece: RunPiece | None = None
    last: int | None = None


class Record(NamedTuple):
    """One decoded unit.

    `offset` and `size` are bytes of the decoder's input; the records of an input tile it.
    `attributes` is a JSON object as text, or None for an empty one.
    `flaw` is None, or the name of the rule that a readable record breaks (one of the format's `flaws`),
    or why a malformed record could not be read (one of its `malformed`).
    `detail` holds what has no column: the facts of a session record, the bytes of a malformed record, the
    `Missing` of a gap.
    """

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
    """Return a record of bytes that could not be read, kept whole, with the reason."""
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
    """Return a gap record: the bytes before `offset` prove that events are missing, from number `first` on."""
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
    """Return a name for all events that ask for `key` (see `NAME_OF_ROW`) within a scope.

    The scope is the session, its group of files, or the whole source (for a key made from the name's content)."""
    attributes = json.dumps({KEY: key, SCOPE: scope, **(also or {})}, separators=(",", ":"))
    return Record(
        offset, size, Kind.NAME, stream,
        None, None, name, None, None, None, None, None, attributes, None, None,
    )  # fmt: skip


def as_int64(value: int) -> int:
    """Return the signed 64-bit value with the same bits as an unsigned one."""
    return value if value < 0x8000_0000_0000_0000 else value - 0x1_0000_0000_0000_0000
