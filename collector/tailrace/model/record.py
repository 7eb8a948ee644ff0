"""What a decoder says: one `Record` for each unit of its format, and what it could not read.

A record is a named tuple and not a struct because a chunk's records are turned into columns with
one `zip`. Its fields are those of the table (see `model.columns`) before the session is known:
`start` and `end` are the producer's own ticks, `count` is the counter as it stood on the wire.

Unsigned 64-bit values are given bit-cast to signed ones (`as_int64`): the table has no unsigned type.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec


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


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a session record (Heph `epoch`, JETS header and footer) tells the later stages.

    `clock` is unix_ns, monotonic_ns, clk or logical; `epoch` the Unix nanoseconds of tick 0.
    `starts` says that this record opens a new incarnation of its producer whenever records came
    before it; `totals` how many records of each kind (begin, annotation, instant) the producer
    says it wrote in this session.
    """

    clock: str | None = None
    ticks_per_second: float | None = None
    epoch: int | None = None
    starts: bool = False
    totals: dict[str, int] | None = None


class Record(NamedTuple):
    """One decoded unit.

    `offset` and `size` are bytes of the decoder's input; the records of an input tile it.
    `attributes` is a JSON object as text, or None for an empty one.
    `flaw` is None or the name of the rule the record breaks although it could be read (one of the
    format's `flaws`), or, for a malformed record, why it could not be (one of its `malformed`).
    `detail` is what has no column: the facts of a session record, the bytes of a malformed one.
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
    detail: SessionFacts | bytes | None


def malformed(offset: int, data: bytes, reason: str, stream: str = "") -> Record:
    """Bytes that could not be read, kept whole, with the reason."""
    return Record(
        offset, len(data), Kind.MALFORMED, stream,
        None, None, None, None, None, None, None, None, None, reason, data,
    )  # fmt: skip


def as_int64(value: int) -> int:
    """An unsigned 64-bit value as the signed one with the same bits."""
    return value if value < 0x8000_0000_0000_0000 else value - 0x1_0000_0000_0000_0000
