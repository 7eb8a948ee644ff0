"""Define the answers of the HTTP API, except those about figures of spans (`endpoints.statistics`). The OpenAPI
description is generated from these classes.

Times and durations are decimal texts (`Ns`), because JavaScript represents integers exactly only up to 2^53. In the
columns of the timeline, times are integers: nanoseconds since the frame's `from`. The `version` of an answer is the
version of the table from which its figures were computed. Null stands for an unknown value, never for zero."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tailrace.rollups.frame import CounterColumns, InstantColumns, SpanColumns
from tailrace.rollups.sidecar import RollupProgress

Ns = Annotated[str, Meta(pattern=r"^-?[0-9]+$", description="nanoseconds, as a decimal text")]

DecimalText = Annotated[
    str, Meta(pattern=r"^-?[0-9]+$", description="an integer as a decimal text")
]

Key = Annotated[str, "never cut"]
"""Text that identifies an object in later requests. Other texts from a trace are cut if they are long
(`answers.cut`)."""


class ApiProblem(msgspec.Struct, kw_only=True):
    """A problem with a request: what is wrong, in which part of the request, and what the user can do."""

    what: str
    where: str
    todo: str


class ApiRefusal(msgspec.Struct, kw_only=True):
    error: ApiProblem


class Whole(msgspec.Struct, kw_only=True):
    """How complete an answer is: missing events by reason, and the number of gaps of unknown size (`unknown`).

    `awaited` counts events for which running collectors still wait; if a collector did not answer, `unasked` has the
    reason. If no event matches the request, `selected` is false, and the answer is never `complete`."""

    complete: bool
    text: str
    missing: dict[str, int]
    unknown: int
    awaited: int
    unasked: str
    selected: bool


class WholeAnswer(msgspec.Struct, kw_only=True):
    version: int
    whole: Whole


class Stream(msgspec.Struct, kw_only=True):
    """A row of the view `streams`. `title` names the session and `thread` the stream, for people."""

    source: str
    format: str
    session: str
    stream: str
    first_seq: DecimalText | None
    last_seq: DecimalText | None
    events: int
    missing: int
    completeness: float | None
    first_time: Ns | None
    last_time: Ns | None
    open_spans: int
    state: str
    silent_since: Ns | None
    title: str
    thread: str


class Streams(WholeAnswer, kw_only=True):
    """A part of a list of streams, from `offset` on. `total` is the length of the whole list."""

    total: int
    offset: int
    streams: list[Stream]


class ShownSession(msgspec.Struct, kw_only=True):
    """A row of the view `sessions`. Its events lie between `begins` and `ends`. `title` names it for people."""

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
    title: str


class Sessions(WholeAnswer, kw_only=True):
    sessions: list[ShownSession]


class SessionNames(msgspec.Struct, kw_only=True):
    """The names of the program that wrote a session, and of the place where it ran.

    `title` is the title of the session, which no other session of its source has. `file` is the path of a session that
    was read from a file, and `group` the directory or run of this file. `alive` states whether a collector still
    expects events of the session."""

    source: Key
    session: Key
    process: str | None
    pid: str | None
    host: str | None
    node: str | None
    rank: int | None
    job: str | None
    file: str | None
    group: str | None
    opened: Ns | None
    alive: bool
    labels: dict[str, Any]
    title: str


class NameList(msgspec.Struct, kw_only=True):
    version: int
    sessions: list[SessionNames]


class ShownGap(msgspec.Struct, kw_only=True):
    """A row of the view `gaps`, with the times of the last event before the gap (`begins`) and the first event after
    it (`ends`), or null if the session has no events. `placed` states how exact these times are."""

    source: str
    format: str
    session: str
    stream: str
    reason: str
    detail: str | None
    first: DecimalText | None
    last: DecimalText | None
    remaining: int | None
    """Number of missing events of the gap that have not arrived later; null if unknown."""
    of: str | None
    id: DecimalText | None
    begins: Ns | None
    ends: Ns | None
    placed: str


class Gaps(WholeAnswer, kw_only=True):
    """The first gaps in order of their begin. `total` counts all gaps that match the request."""

    total: int
    gaps: list[ShownGap]


class RowPlace(msgspec.Struct, kw_only=True):
    """The place of a record: its session, and its offset in the session's bytes."""

    source: Key
    session: Key
    offset: int


class ShownEvent(msgspec.Struct, kw_only=True):
    """An event that a search found. `time` is on the axis of the search (`OfSearch.axis`). Only a closed span has a duration."""

    place: RowPlace
    stream: str
    substream: DecimalText | None
    kind: str
    name: str | None
    category: str | None
    time: Ns | None
    duration: Ns | None
    open: bool


class FoundEvents(WholeAnswer, kw_only=True):
    """Events in order of time. `more` states whether further events match."""

    events: list[ShownEvent]
    more: bool


class ShownRow(msgspec.Struct, kw_only=True):
    """A row of the view `spans` or `events` with all columns. 64-bit integers are decimal texts."""

    view: str
    place: RowPlace
    columns: dict[str, Any]
    attributes: dict[str, Any]


class Raw(msgspec.Struct, kw_only=True):
    """The bytes of a record in base64, or the reason why there are none."""

    bytes: str | None
    why: str


class RowsAnswer(WholeAnswer, kw_only=True):
    """All rows of a record. `parent` is the span that encloses the first of them; `children` are the spans directly
    inside it. `related` states how these were found: by `id`, or by `containment` of their times."""

    rows: list[ShownRow]
    parent: ShownEvent | None
    children: list[ShownEvent]
    more_children: bool
    related: str
    raw: Raw


class NoteFacts(msgspec.Struct, kw_only=True):
    """A user's note about a range of time. An empty `source`, `session` or `stream` stands for all."""

    id: str
    made: Ns
    from_: Ns = msgspec.field(name="from")
    to: Ns
    text: str
    source: str
    session: str
    stream: str


class NoteList(msgspec.Struct, kw_only=True):
    """All notes in order of time. `refused` is the reason why no note can be stored; `unreadable` lists invalid files."""

    version: int
    notes: list[NoteFacts]
    refused: str | None
    unreadable: list[str]


class ColumnFacts(msgspec.Struct, kw_only=True):
    name: str
    type: str
    meaning: str


class ViewFacts(msgspec.Struct, kw_only=True):
    name: str
    meaning: str
    columns: list[ColumnFacts]


class FormatFacts(msgspec.Struct, kw_only=True):
    name: str
    meaning: str


class StoreAnswer(msgspec.Struct, kw_only=True):
    """The store, and the values that parameters accept. A store's number is its index in `stores`."""

    version: int
    tailrace: str
    root: str
    stores: list[str]
    certified: list[list[str]]
    """For each store, the sessions that `compare` uses if the request names no session. An empty list stands for
    all."""
    watched: bool
    files: int
    file_bytes: int
    rows: int
    views: list[ViewFacts]
    keys: list[str]
    """Columns by which `statistics` can group spans, beside `attributes.NAME`."""
    figures: list[str]
    exports: list[FormatFacts]
    ranks: list[int]
    """The ranks of the store's sessions. If there are very many ranks, nodes or jobs, only the first ones are
    listed."""
    nodes: list[str]
    jobs: list[str]
    notes: str | None
    """Reason why notes cannot be written to the store, or null."""
    sql_seconds: float
    sql_memory: int
    sql_rows: int


class CollectorHealth(msgspec.Struct, kw_only=True):
    name: str
    pid: int
    state: str
    conditions: dict[str, str]
    uptime_seconds: float
    behind_seconds: float | None
    """Age (seconds) of the newest heartbeat in the table; null if there is none."""
    undecoded_bytes: int
    uncommitted_bytes: int


class Rate(msgspec.Struct, kw_only=True):
    """Events per second of a source, at times (`seconds`) relative to now, oldest first."""

    source: str
    seconds: list[float]
    events: list[float]


class News(msgspec.Struct, kw_only=True):
    """A message of the stream `live`. `preparing` states how many rows are summed for the timeline; null if all are
    summed. `collectors` are those that answered. `unasked` states which other collectors did not answer, and why, or
    that the table cannot be read."""

    number: int
    version: int
    rows: int
    files: int
    file_bytes: int
    preparing: RollupProgress | None
    collectors: list[CollectorHealth]
    unasked: str
    rates: list[Rate]


class SourceFacts(msgspec.Struct, kw_only=True):
    source: str
    format: str
    sessions: int
    open_sessions: int
    streams: int
    events: int
    missing: int
    unknown: bool
    last_time: Ns | None
    """Start of the latest event; null without wall time."""


class MissingFacts(msgspec.Struct, kw_only=True):
    """Events of one source that are missing for one reason, which `because` explains to users. `unknown` counts gaps of
    unknown size."""

    source: str
    reason: str
    missing: int
    unknown: int
    streams: int
    because: str


class OverviewAnswer(WholeAnswer, kw_only=True):
    """The answer of the endpoint `overview`. `worst` lists the streams from which most events are missing."""

    missing: list[MissingFacts]
    worst: list[Stream]
    sources: list[SourceFacts]


class LaneName(msgspec.Struct, kw_only=True):
    """The key of a lane: a stream of a session, or one of the stream's substreams. `stream` is empty if it is
    unknown."""

    source: Key
    session: Key
    stream: Key
    substream: DecimalText | None


class ShownLane(LaneName, kw_only=True):
    """A lane of the timeline (a stream or a substream), with the number of its events.

    `first` and `last` are the times of its first and last event, on `axis`: `wall` for wall time, or a separate axis if
    the lane's clock is not related to wall time (`clock` in words). `depths` is the number of rows for nested spans, if
    depths were recorded. `missing` is the number of events that are missing from the stream, and `unknown` states
    whether further events may be missing; only the lane without a substream has them.

    `title`, `process` and `thread` name the session, its process and the stream for people. `process_id` is the same
    for all sessions of one process, and `place` is the node or host. `alive` states whether a collector still expects
    events of the session."""

    format: str
    depths: int
    events: int
    open: int
    first: Ns | None
    last: Ns | None
    missing: int
    unknown: bool
    axis: Key
    clock: str
    title: str
    process: str
    process_id: Key
    thread: str
    place: str | None
    alive: bool


class Lanes(WholeAnswer, kw_only=True):
    lanes: list[ShownLane]


class EmptyTime(msgspec.Struct, kw_only=True):
    """Begins and ends of the long stretches of an axis without events, in which no span with a known end runs."""

    version: int
    begins: list[Ns]
    ends: list[Ns]


class FrameGap(msgspec.Struct, kw_only=True):
    """A gap in a window of the timeline, or several gaps of one stream with the same first and the same last bucket.
    `count` is the number of gaps.

    `begin` and `end` are nanoseconds since `from` of the window, or null if unknown. `remaining` is the known number of
    missing events, and `unknown` the number of gaps of unknown size. `placed` states how exact the times are. For
    several gaps, `placed`, `detail`, `first`, `last` and `of` are null, and so is `reason` if their reasons differ.
    """

    source: Key
    session: Key
    stream: Key
    count: int
    reason: str | None
    detail: str | None
    first: DecimalText | None
    last: DecimalText | None
    remaining: int | None
    unknown: int
    of: str | None
    begin: int | None
    end: int | None
    placed: str | None


class FrameAnswer(msgspec.Struct, kw_only=True):
    """The content of a window of the timeline: long spans one by one, short spans combined in buckets, and the gaps.

    `bucket` is the width of a bucket in ns. `coarse` states that a bucket is wider than a pixel, because the answer
    would otherwise be too large. If `one_in` is greater than 1, only a sample of the events was read, at least one in
    `one_in`; counts are estimates."""

    version: int
    from_: Ns = msgspec.field(name="from")
    to: Ns
    bucket: int
    coarse: bool
    one_in: int
    lanes: list[LaneName]
    names: list[str]
    spans: SpanColumns
    instants: InstantColumns
    counters: CounterColumns
    gaps: list[FrameGap]


class SqlColumn(msgspec.Struct, kw_only=True):
    name: str
    type: str


class SqlAnswer(WholeAnswer, kw_only=True):
    """The rows that an SQL statement returned. Each row is a list in the order of `columns`. Integers beyond 2^53,
    decimal numbers, times and other types are texts. `more` states whether rows were left out, and `cut` counts texts
    that were shortened."""

    columns: list[SqlColumn]
    rows: list[list[Any]]
    more: bool
    cut: int
    seconds: float
