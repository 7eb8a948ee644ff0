"""Answers that show rows of views."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.view.wire.parts import Ns, Ticks, Whole


class Stream(msgspec.Struct, kw_only=True):
    """A row of the view `streams`."""

    source: str
    format: str
    session: str
    stream: str
    first_seq: Ticks | None
    last_seq: Ticks | None
    events: int
    missing: int
    completeness: float | None
    first_time: Ns | None
    last_time: Ns | None
    open_spans: int
    state: str
    silent_since: Ns | None


class Streams(msgspec.Struct, kw_only=True):
    """A page of the streams; `total` counts all that match."""

    version: int
    whole: Whole
    total: int
    offset: int
    streams: list[Stream]


class ShownSession(msgspec.Struct, kw_only=True):
    """A row of the view `sessions`, with the times within which its events lie."""

    source: str
    format: str
    session: str
    opened: Ns | None
    closed: str | None
    closed_at: Ns | None
    continues: str | None
    peer: str | None
    transport: str | None
    run: str | None
    clock: str | None
    ticks_per_second: float | None
    epoch: Ns | None
    clock_offset: Ns | None
    producer: dict[str, Any]
    totals: dict[str, Any]
    rows: int
    events: int
    missing: int
    unknown: bool
    state: str
    begins: Ns | None
    ends: Ns | None


class Sessions(msgspec.Struct, kw_only=True):
    version: int
    whole: Whole
    sessions: list[ShownSession]


class ShownGap(msgspec.Struct, kw_only=True):
    """A row of the view `gaps`, and the times of the events around it.

    `placed` says how exact these times are; they are null where the session has no events at all."""

    source: str
    format: str
    session: str
    stream: str
    reason: str
    detail: str | None
    first: Ticks | None
    last: Ticks | None
    remaining: int | None
    """How many events are missing; null if unknown."""
    of: str | None
    id: Ticks | None
    begins: Ns | None
    ends: Ns | None
    placed: str


class Gaps(msgspec.Struct, kw_only=True):
    """The gaps by their begins; `total` counts those that match, of which `gaps` may be the first ones."""

    version: int
    whole: Whole
    total: int
    gaps: list[ShownGap]


class RowPlace(msgspec.Struct, kw_only=True):
    """Where a record stands: its session, and the offset in the session's bytes. It stays when files are merged."""

    source: str
    session: str
    offset: int


class ShownEvent(msgspec.Struct, kw_only=True):
    """An event that `search` finds. `duration` is null for what has none, and for an open span. `time` is wall time or,
    of a question about another axis, a time on this axis."""

    place: RowPlace
    stream: str
    substream: Ticks | None
    kind: str
    name: str | None
    category: str | None
    time: Ns | None
    duration: Ns | None
    open: bool


class FoundEvents(msgspec.Struct, kw_only=True):
    """Events by their times. `more` says that there are more behind them."""

    version: int
    whole: Whole
    events: list[ShownEvent]
    more: bool


class ShownRow(msgspec.Struct, kw_only=True):
    """A row of the view `spans` or `events`: every column. 64-bit integers are decimal texts."""

    view: str
    place: RowPlace
    columns: dict[str, Any]
    attributes: dict[str, Any]


class Raw(msgspec.Struct, kw_only=True):
    """The bytes of a record as they arrived, in base64; `why` says why there are none."""

    bytes: str | None
    why: str


class RowsAnswer(msgspec.Struct, kw_only=True):
    """The rows at a place, the span that encloses the first of them, and the spans directly inside it.

    `related` says how these are known: by `id`, from the record's own words, or by `containment` in its lane."""

    version: int
    whole: Whole
    rows: list[ShownRow]
    parent: ShownEvent | None
    children: list[ShownEvent]
    more_children: bool
    related: str
    raw: Raw


class NoteFacts(msgspec.Struct, kw_only=True):
    """A note about a range of time; empty words mean all sources, sessions or streams."""

    id: str
    made: Ns
    from_: Ns = msgspec.field(name="from")
    to: Ns
    text: str
    source: str
    session: str
    stream: str


class NoteList(msgspec.Struct, kw_only=True):
    """All notes, the earliest first. `refused` is why no note can be kept; `unreadable` are files that are no notes."""

    version: int
    notes: list[NoteFacts]
    refused: str | None
    unreadable: list[str]
