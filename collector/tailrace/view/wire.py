"""The answers of the HTTP API. The OpenAPI description is made from these classes.

Times and durations are decimal texts (`Ns`), because numbers of JavaScript are exact only up to 2^53. In the
columns of the timeline, times are integers: nanoseconds from the frame's `from`. Integers beyond 2^53 are so
far outside the window that no pixel shows them. The `version` of an answer is the version of the table from
which all figures of the answer are computed. Null means unknown, never zero.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tailrace.rollups.frame import CounterColumns, InstantColumns, SpanColumns

Ns = Annotated[str, Meta(pattern=r"^-?[0-9]+$", description="nanoseconds, as a decimal text")]
"""Unix time or duration in nanoseconds, as decimal text."""

DecimalText = Annotated[
    str, Meta(pattern=r"^-?[0-9]+$", description="an integer as a decimal text")
]
"""64-bit integer as decimal text, since it may exceed 2^53."""

Key = Annotated[str, "never cut"]
"""Text that identifies an object in a question, and is never cut. All other texts of a trace are cut
(`answers.cut`)."""


class ApiProblem(msgspec.Struct, kw_only=True):
    """`what` is wrong, `where` in the request it is, and what to do (`todo`)."""

    what: str
    where: str
    todo: str


class ApiRefusal(msgspec.Struct, kw_only=True):
    """The answer to a request that has no other answer."""

    error: ApiProblem


class Whole(msgspec.Struct, kw_only=True):
    """The events that an answer lacks, by reason.

    `unknown` counts gaps of unknown size, `awaited` events that the running collector still waits for. `unasked`
    is why that collector could not be asked. `selected` is whether any event matches the question; an answer
    without events is never `complete`."""

    complete: bool
    text: str
    missing: dict[str, int]
    unknown: int
    awaited: int
    unasked: str
    selected: bool


class WholeAnswer(msgspec.Struct, kw_only=True):
    """The table's version from which an answer is, and what the answer lacks."""

    version: int
    whole: Whole


class Stream(msgspec.Struct, kw_only=True):
    """A row of the view `streams`."""

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


class Streams(WholeAnswer, kw_only=True):
    """A page of the streams; `total` counts all that match."""

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


class Sessions(WholeAnswer, kw_only=True):
    sessions: list[ShownSession]


class ShownGap(msgspec.Struct, kw_only=True):
    """A row of the view `gaps`, and the times of the events around it.

    `placed` is how exact these times are, in words; they are null where the session has no events at all."""

    source: str
    format: str
    session: str
    stream: str
    reason: str
    detail: str | None
    first: DecimalText | None
    last: DecimalText | None
    remaining: int | None
    """Number of missing events; null if unknown."""
    of: str | None
    id: DecimalText | None
    begins: Ns | None
    ends: Ns | None
    placed: str


class Gaps(WholeAnswer, kw_only=True):
    """The gaps by their begins; `total` counts those that match, of which `gaps` may be the first ones."""

    total: int
    gaps: list[ShownGap]


class RowPlace(msgspec.Struct, kw_only=True):
    """Where a record stands: its session, and the offset in the session's bytes. It stays when files are merged."""

    source: Key
    session: Key
    offset: int


class ShownEvent(msgspec.Struct, kw_only=True):
    """An event that `search` finds. `duration` is null for what has none, and for an open span. `time` is wall time or,
    of a question about another axis, a time on this axis."""

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
    """Events by their times. `more`: there are more behind them."""

    events: list[ShownEvent]
    more: bool


class ShownRow(msgspec.Struct, kw_only=True):
    """A row of the view `spans` or `events`: every column. 64-bit integers are decimal texts."""

    view: str
    place: RowPlace
    columns: dict[str, Any]
    attributes: dict[str, Any]


class Raw(msgspec.Struct, kw_only=True):
    """The bytes of a record as they arrived, in base64; `why` is the reason why there are none."""

    bytes: str | None
    why: str


class RowsAnswer(WholeAnswer, kw_only=True):
    """The rows at a place, the span that encloses the first of them, and the spans directly inside it.

    `related` is how these are known: by `id`, from the record's own words, or by `containment` in its lane."""

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


class ColumnFacts(msgspec.Struct, kw_only=True):
    name: str
    type: str
    meaning: str


class ViewFacts(msgspec.Struct, kw_only=True):
    """A view that SQL may ask."""

    name: str
    meaning: str
    columns: list[ColumnFacts]


class FormatFacts(msgspec.Struct, kw_only=True):
    """A format of `export`."""

    name: str
    meaning: str


class StoreAnswer(msgspec.Struct, kw_only=True):
    """The store, and what there is to ask for. `stores` has a number for each store on the command line."""

    version: int
    tailrace: str
    root: str
    stores: list[str]
    certified: list[list[str]]
    """Sessions of each store that `compare` uses if the question names no session: the sessions of a
    certificate, or empty for all sessions."""
    watched: bool
    """Whether a running collector has the store."""
    files: int
    file_bytes: int
    rows: int
    views: list[ViewFacts]
    keys: list[str]
    """Columns by which `statistics` can group. A key may also be `attributes.NAME`."""
    figures: list[str]
    """Names of the figures that `compare` can compare."""
    exports: list[FormatFacts]
    ranks: list[int]
    """Ranks of the sessions. The fields `ranks`, `nodes` and `jobs` each have a limited number of values."""
    nodes: list[str]
    jobs: list[str]
    notes: str | None
    """Reason why notes cannot be stored; null if they can be stored."""
    sql_seconds: float
    sql_memory: int
    sql_rows: int


class CollectorHealth(msgspec.Struct, kw_only=True):
    """The state of a running collector, in its own words."""

    name: str
    pid: int
    state: str
    conditions: dict[str, str]
    uptime_seconds: float
    behind_seconds: float | None
    """Age (seconds) of the newest heartbeat in the table; null without heartbeats."""
    undecoded_bytes: int
    uncommitted_bytes: int


class Rate(msgspec.Struct, kw_only=True):
    """Events a second of a source: one figure for each of `seconds`, the oldest first."""

    source: str
    seconds: list[float]
    events: list[float]


class News(msgspec.Struct, kw_only=True):
    """One message of `live`.

    `number` counts them. `collectors` are those that run and answer; `unasked` names the others, which give no answer,
    and why."""

    number: int
    version: int
    rows: int
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
    """Latest start of an event; null if no clock is tied to wall time."""


class MissingFacts(msgspec.Struct, kw_only=True):
    """The events that a source lacks for one reason. `missing` counts events, `unknown` gaps of unknown size."""

    source: str
    reason: str
    missing: int
    unknown: int
    streams: int


class OverviewAnswer(WholeAnswer, kw_only=True):
    """The sources and what they lack. `worst` lists the streams from which most events are missing."""

    missing: list[MissingFacts]
    worst: list[Stream]
    sources: list[SourceFacts]


class LaneName(msgspec.Struct, kw_only=True):
    """The name of a lane: a stream of a session, or one of its substreams. An empty stream is no known one."""

    source: Key
    session: Key
    stream: Key
    substream: DecimalText | None


class ShownLane(LaneName, kw_only=True):
    """A lane and what is in it.

    `first` and `last` are on the lane's `axis`: `wall`, or an axis of its own for a clock that is not tied to wall
    time; `clock` describes it in words. `depths` is how many rows of spans have a recorded depth. `missing` and `unknown`
    are the stream's, and stand at its lane without a substream."""

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


class Lanes(WholeAnswer, kw_only=True):
    lanes: list[ShownLane]


class FrameGap(msgspec.Struct, kw_only=True):
    """A gap in sight, or `count` gaps of one stream that begin in one bucket and end in one bucket.

    `begin` and `end` are numbers as in columns, or null where that is unknown. `remaining` is the sum of what is missing, as
    far as it is known; `unknown` gaps lack an unknown number of events. `reason` is null of several reasons; `placed` is
    how exact the place is. It, `detail`, `first`, `last` and `of` are null of several gaps."""

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
    """The content of a window: every long span, buckets of short ones, and the gaps.

    `bucket` is the width of a bucket in ns; `coarse`: it is wider than a pixel, for want of room."""

    version: int
    from_: Ns = msgspec.field(name="from")
    to: Ns
    bucket: int
    coarse: bool
    lanes: list[LaneName]
    names: list[str]
    spans: SpanColumns
    instants: InstantColumns
    counters: CounterColumns
    gaps: list[FrameGap]


class FigureInterval(msgspec.Struct, kw_only=True):
    """The least and the greatest value that a figure may have; null where nothing bounds it."""

    low: DecimalText | None
    high: DecimalText | None


class Group(msgspec.Struct, kw_only=True):
    """The spans that have the same values of the keys. Durations are in `unit`: `ns` or `ticks`.

    Only spans that have ended have a duration; without any, durations are null. So is `self` if it was not
    asked for. The figures are those of the spans in the table. `bounds` has, by figure, the interval in which the figure
    lies if spans are missing; null if there is no figure."""

    group: list[str | None]
    unit: str
    count: int
    open: int
    total: DecimalText | None
    self_: DecimalText | None = msgspec.field(name="self")
    min: DecimalText | None
    p50: DecimalText | None
    p90: DecimalText | None
    p95: DecimalText | None
    p99: DecimalText | None
    max: DecimalText | None
    bounds: dict[str, FigureInterval | None]


class Statistics(WholeAnswer, kw_only=True):
    """The groups with the longest total first; `total` counts the groups, of which `groups` may be the first ones."""

    by: list[str]
    total: int
    groups: list[Group]


class SqlColumn(msgspec.Struct, kw_only=True):
    name: str
    type: str


class SqlAnswer(WholeAnswer, kw_only=True):
    """The rows of a statement, as arrays in the order of `columns`.

    Integers beyond 2^53 and decimals are texts; times and other types are DuckDB's text for them. `more`:
    there are more rows than those. `cut` is how many texts were cut."""

    columns: list[SqlColumn]
    rows: list[list[Any]]
    more: bool
    cut: int
    seconds: float


class Side(msgspec.Struct, kw_only=True):
    """One of two compared runs, and what it lacks. `marker` is the time of the event at which it was aligned."""

    store: str
    version: int
    whole: Whole
    from_: Ns | None = msgspec.field(name="from")
    to: Ns | None
    marker: Ns | None


class Difference(msgspec.Struct, kw_only=True):
    """A group of both runs, of which either may lack it. `a` and `b` are the compared figure.

    `growth` is a share: 0.1 is 10 percent more. It is null where a run lacks the figure, and where it grew from nothing.
    `word` is the same as a text: a percentage, `new`, `gone` or `unknown`."""

    group: list[str | None]
    unit: str
    count_a: int | None
    count_b: int | None
    a: DecimalText | None
    b: DecimalText | None
    growth: float | None
    word: str
    exceeds: bool
    """Whether the figure grew by more than the threshold; false without a threshold."""


class Comparison(msgspec.Struct, kw_only=True):
    """The groups that grew most first, then new ones, then those that are gone; `total` counts them."""

    version: int
    a: Side
    b: Side
    by: list[str]
    figure: str
    total: int
    differences: list[Difference]


class ShownFlameNode(msgspec.Struct, kw_only=True):
    """Spans of one name under the same enclosing names. `parent` is a place in the list of nodes; null is none.

    `total` is the time within the range during which one of the node's spans, or a span inside, is the innermost open
    span of its lane; `self` is the part during which the node's own span is."""

    parent: int | None
    name: str | None
    count: int
    total: DecimalText
    self_: DecimalText = msgspec.field(name="self")


class Flame(WholeAnswer, kw_only=True):
    """The nodes of a flame graph, each behind its parent. `unit` is `ns`, or `ticks` for clocks without a rate.

    `left_out` counts nodes that were too small to be listed; the nodes above have their time. `open` counts spans
    that have not ended, which have no time here."""

    unit: str
    nodes: list[ShownFlameNode]
    left_out: int
    open: int


class HeatMapAnswer(WholeAnswer, kw_only=True):
    """How many spans began when, and how long they took.

    Columns are ranges of time of `width` from `from` on. Rows are ranges of durations: row 0 is 0 ns, and row n
    is 2^(n-1) to 2^n - 1 ns. The lists have one item for each cell that is not empty. `open` counts the spans
    of the range that have not ended."""

    from_: Ns | None = msgspec.field(name="from")
    width: Ns
    columns: list[int]
    rows: list[int]
    counts: list[int]
    open: int
