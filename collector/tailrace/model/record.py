"""What a decoder says: one `Record` for each unit of its format, and what it could not read.

A record is a named tuple and not a struct because a chunk's records are turned into columns with
one `zip`. Its fields are those of the table (see `model.columns`) before the session is known:
`start` and `end` are the producer's own ticks, `count` is the counter as it stood on the wire.

Unsigned 64-bit values are given bit-cast to signed ones (`as_int64`): the table has no unsigned type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec

from tailrace.model.gap import Reason

NAME_OF_ROW, NAMES_OF_MEMBERS = "$name", "$late"
"""Attributes by which an event asks for names that were not known when it was read: the key of its
own name (or several, one a line, of which the first that is known counts), and an object that maps
further members of its attributes to the keys of theirs."""

KEY, SCOPE = "$key", "$scope"
"""Attributes by which a `name` row gives a name: to which key, and within what."""


class Kind(StrEnum):
    """The closed set of the table's `kind` column, and `malformed`, which only a decoder says."""

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
    """A client names its session: `id` is the same on all of its connections and no other's.

    `turn` grows with each announcement that wants a full answer; `acknowledge` says whether answers
    are wanted at all."""

    id: str
    turn: int = 0
    acknowledge: bool = False


class Goodbye(msgspec.Struct, frozen=True):
    """A client ends: by stream, the number on the wire that its next event would have had. With
    `more`, another goodbye follows for further streams."""

    streams: dict[str, int]
    more: bool = False


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a session record (Heph `epoch`, JETS header and footer) tells the later stages.

    `clock` is unix_ns, monotonic_ns, clk or logical; `epoch` the Unix nanoseconds of tick 0.
    `starts` says that this record opens a new incarnation of its producer whenever records came
    before it; `totals` how many records of each kind (begin, end, annotation, instant) the
    producer says it wrote in this session. `announces` is the client's session; `discarded` what the client
    has thrown away (stream, first number on the wire, how many); `goodbye` its end.
    """

    clock: str | None = None
    ticks_per_second: float | None = None
    epoch: int | None = None
    starts: bool = False
    totals: dict[str, int] | None = None
    announces: Announcement | None = None
    discarded: tuple[tuple[str, int, int], ...] = ()
    goodbye: Goodbye | None = None


class Missing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a gap record says beyond its columns: how many events (0: that is not known), the kind of
    the missing records, and the format's own word for how it is known."""

    count: int
    of: str | None = None
    detail: str | None = None


class Record(NamedTuple):
    """One decoded unit.

    `offset` and `size` are bytes of the decoder's input; the records of an input tile it.
    `attributes` is a JSON object as text, or None for an empty one.
    `flaw` is None or the name of the rule the record breaks although it could be read (one of the
    format's `flaws`), or, for a malformed record, why it could not be (one of its `malformed`).
    `detail` is what has no column: the facts of a session record, the bytes of a malformed one,
    what a gap is known of.
    """

    offset: int
    size: int
    kind: str
    stream: str
    substream: int | None
    count: int | None  # type: ignore[assignment] # the counter; nobody counts in a record
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
    """Bytes that could not be read, kept whole, with the reason."""
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
) -> Record:
    """Events that the bytes before `offset` prove to be missing, `first` by the producer's number."""
    about = Missing(count=count, of=of, detail=detail)
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
    """A name for all events that ask for `key` (see `NAME_OF_ROW`) within a scope: the session, the
    group of files it belongs to, or the whole source (a key that is made from the name's content)."""
    attributes = json.dumps({KEY: key, SCOPE: scope, **(also or {})}, separators=(",", ":"))
    return Record(
        offset, size, Kind.NAME, stream,
        None, None, name, None, None, None, None, None, attributes, None, None,
    )  # fmt: skip


def as_int64(value: int) -> int:
    """An unsigned 64-bit value as the signed one with the same bits."""
    return value if value < 0x8000_0000_0000_0000 else value - 0x1_0000_0000_0000_0000
