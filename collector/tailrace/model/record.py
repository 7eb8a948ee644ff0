"""Define the output of decoders: a `Record` for each unit of a format, and for each range of unreadable bytes.

A record is a named tuple, so that one call of `zip` turns the records of a chunk into columns.
An unsigned 64-bit value becomes the signed value with the same bits (`as_int64`), because the
table has no unsigned types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, NamedTuple

import msgspec

from tailrace.model.gap import Reason

NAME_OF_ROW, NAMES_OF_MEMBERS = "$name", "$late"
"""Names of attributes that contain keys instead of names. An event has them if the names are unknown when it is
decoded.

- `$name`: the key of the event's own name. If there are several keys, one on each line, the first key with a known name
  counts.
- `$late`: an object. For each attribute whose value is a name that is not known yet, it has the key of this name."""

FLAW_OF_ROW = "$flaw"
"""Name of the attribute that states which rule a record breaks. This attribute precedes all others of the record."""

BEGIN_WORDS = "$begin"
"""Name of a span's attribute: an object with the attributes of the begin record whose values differ in the end
record."""

KEY, SCOPE = "$key", "$scope"
"""Names of the attributes of a `name` row: the key that gets a name, and the scope in which the name holds."""


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
"""Kinds of records that the ingest processes one by one, because they concern the session or a loss."""


class Announcement(msgspec.Struct, frozen=True):
    """The content of a packet in which a client announces its session, which means that the client states the session's
    id."""

    id: str  # The session's id: the same on all its connections, unique among sessions.
    turn: int = 0  # Grows with each announcement that requests a complete acknowledgement.
    acknowledge: bool = False  # Whether the client wants acknowledgements.
    now: int | None = None  # Time at which the client sent the packet, in ticks since the epoch.


class Goodbye(msgspec.Struct, frozen=True):
    """A goodbye, in which a client states that its session ends, or one part of a long goodbye."""

    # For each stream, the number (as sent) that its next event would have had.
    streams: dict[str, int]
    more: bool = False  # Whether another part of this goodbye follows.
    # Number of this part from 0 on, if the parts of the goodbye are numbered.
    part: int | None = None

    @property
    def at_least(self) -> bool:
        """Return whether the numbers in `streams` are only lower bounds, because more events may follow this packet."""
        return self.more and self.part is None


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts from a session record, such as Heph's `epoch` or JETS's header and footer."""

    clock: str | None = None  # unix_ns, monotonic_ns, clk or logical.
    ticks_per_second: float | None = None
    epoch: int | None = None  # Time of tick 0 (Unix ns).
    starts: bool = False  # Whether a new incarnation (producer run) begins here. Ignored if no record came before.
    totals: dict[str, int] | None = None  # Number of records that the producer wrote, by kind.
    ends: bool = False  # Whether the producer has written its last record.
    announces: Announcement | None = None
    # Ranges of events that the client no longer has: stream, first number as sent, length.
    discarded: tuple[tuple[str, int, int], ...] = ()
    elsewhere: bool = False  # Whether another collector has acknowledged the `discarded` events.
    never_sent: int = 0  # Number of events that the client discarded without sending them.
    goodbye: Goodbye | None = None
    # Process that wrote all following records, in an input from several processes.
    process: int | None = None


class RunPiece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of a producer's run (program execution) that one input contains. Event ids of a run are 1, 2, 3, …."""

    pid: str
    host: str  # Host of the process; empty if unknown.
    # The received ids in order: the first and the last id of each range.
    ranges: tuple[tuple[int, int], ...]
    last: int = 0  # Id of the run's last event; 0 if this event has not arrived.
    counts: bool = False  # Whether missing ids certainly show missing events.
    unnumbered: int = 0  # Number of malformed records, whose ids are unknown.
    # Whether gaps of this input report all missing ids between the run's first and last event.
    settled: bool = False
    # True if this input has the run's first and last event, but later input may still change `counts`.
    waits: bool = False


class Missing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts of a gap record that have no column."""

    count: int  # Number of missing events; 0 if unknown.
    of: str | None = None  # Kind of the missing events.
    # A format's word for the observation that shows the loss, such as `no_end`.
    detail: str | None = None
    # The run's part in this input, if other inputs may contain the missing events.
    piece: RunPiece | None = None
    # Last missing number, if events between the first and the last missing one have arrived; otherwise None.
    last: int | None = None


class Record(NamedTuple):
    """One decoded unit of the format, or one range of bytes that cannot be read."""

    offset: int  # Position in the decoder's input (bytes).
    size: int  # Length in the decoder's input (bytes).
    kind: str
    stream: str
    substream: int | None
    counter: int | None  # The producer's number of the event, as on the wire.
    # For a malformed record that is not just one event: what the bytes describe instead, such as a footer.
    name: str | None
    category: str | None
    id: int | None
    parent: int | None
    start: int | None  # Ticks of the producer's clock.
    end: int | None  # Ticks of the producer's clock.
    attributes: str | None  # A JSON object, or None if it has no members.
    # The rule that a readable record breaks, or the reason why a record is malformed.
    flaw: str | None
    # For a session record its facts, for a malformed record its bytes, for a gap or heal a `Missing`.
    detail: SessionFacts | Missing | bytes | None


def malformed(offset: int, data: bytes, reason: str, stream: str = "") -> Record:
    """Return a record of bytes that cannot be read, with the reason."""
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
    """Return a gap record: events are missing from number `first` on, as the input before `offset` shows."""
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
    """Return a record that states the name for a key. All events within `scope` that have this key (`NAME_OF_ROW`) then
    have this name.

    The scope `group` stands for all files of the same program execution (see `Files.group`). The scope `source` is for
    keys that are computed from the name itself."""
    attributes = json.dumps({KEY: key, SCOPE: scope, **(also or {})}, separators=(",", ":"))
    return Record(
        offset, size, Kind.NAME, stream,
        None, None, name, None, None, None, None, None, attributes, None, None,
    )  # fmt: skip


def session_record(
    offset: int,
    size: int,
    name: str,
    attributes: str | None = None,
    *,
    stream: str = "",
    flaw: str | None = None,
    facts: SessionFacts | None = None,
) -> Record:
    """Return a session record. It stands for bytes that are not an event or, with size 0, for a fact about the
    input."""
    return Record(
        offset, size, Kind.SESSION, stream,
        None, None, name, None, None, None, None, None, attributes, flaw, facts,
    )  # fmt: skip


def as_int64(value: int) -> int:
    """Return the signed 64-bit value that has the same bits as the unsigned value."""
    return value if value < 0x8000_0000_0000_0000 else value - 0x1_0000_0000_0000_0000
