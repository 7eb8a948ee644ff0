"""The answers of the HTTP API. The OpenAPI description is made from these classes.

Times and durations are decimal texts (`Ns`), because numbers of JavaScript are exact only up to 2^53. An
answer's `version` is the version of the table from which all of its figures are. Null means unknown; it is never a zero.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

Ns = Annotated[str, Meta(pattern=r"^-?[0-9]+$", description="nanoseconds, as a decimal text")]
"""Unix nanoseconds, or nanoseconds of a duration."""

Ticks = Annotated[str, Meta(pattern=r"^-?[0-9]+$", description="an integer as a decimal text")]
"""A 64-bit integer that may exceed 2^53."""


class Problem(msgspec.Struct, kw_only=True):
    """`what` is wrong, `where` in the request it is, and what to do (`todo`)."""

    what: str
    where: str
    todo: str


class Refusal(msgspec.Struct, kw_only=True):
    """The answer to a request that has no other answer."""

    error: Problem


class Whole(msgspec.Struct, kw_only=True):
    """The events that an answer lacks, by reason.

    `unknown` counts gaps of unknown size, `awaited` events that the running collector still waits for. `unasked`
    is why that collector could not be asked. `selected` says whether any event matches the question; an answer
    without events is never `complete`."""

    complete: bool
    text: str
    missing: dict[str, int]
    unknown: int
    awaited: int
    unasked: str
    selected: bool


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


class Store(msgspec.Struct, kw_only=True):
    """The store, and what there is to ask for. `stores` has a number for each store on the command line."""

    version: int
    tailrace: str
    root: str
    stores: list[str]
    watched: bool
    """Whether a collector has the store now."""
    files: int
    file_bytes: int
    rows: int
    views: list[ViewFacts]
    keys: list[str]
    """The columns by which `statistics` groups; `attributes.NAME` is a key, too."""
    figures: list[str]
    """The figures that `compare` compares."""
    exports: list[FormatFacts]
    notes: str | None
    """Why no note can be kept; null if notes can be kept."""
    sql_seconds: float
    sql_memory: int
    sql_rows: int


class Health(msgspec.Struct, kw_only=True):
    """What the running collector says of itself."""

    pid: int
    state: str
    conditions: dict[str, str]
    uptime_seconds: float
    behind_seconds: float | None
    """Time since the newest heartbeat in the table was made; null without heartbeats."""
    undecoded_bytes: int
    uncommitted_bytes: int


class Rate(msgspec.Struct, kw_only=True):
    """Events a second of a source: one figure for each of `seconds`, the oldest first."""

    source: str
    seconds: list[float]
    events: list[float]


class News(msgspec.Struct, kw_only=True):
    """One message of `live`.

    `number` counts them. `health` is null where no collector runs or none answers; `unasked` says which of
    these, and why."""

    number: int
    version: int
    rows: int
    health: Health | None
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
    """The latest start of an event; null where no clock is tied to wall time."""


class MissingFacts(msgspec.Struct, kw_only=True):
    """What a source lacks for one reason. `missing` counts events, `unknown` gaps of unknown size."""

    source: str
    reason: str
    missing: int
    unknown: int
    streams: int


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


class Overview(msgspec.Struct, kw_only=True):
    """What is there and, before all, what is missing. `worst` are the streams that lack most."""

    version: int
    whole: Whole
    missing: list[MissingFacts]
    worst: list[Stream]
    sources: list[SourceFacts]


class Streams(msgspec.Struct, kw_only=True):
    """A page of the streams; `total` counts all that match."""

    version: int
    whole: Whole
    total: int
    offset: int
    streams: list[Stream]


class Session(msgspec.Struct, kw_only=True):
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
    sessions: list[Session]


class Gap(msgspec.Struct, kw_only=True):
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
    gaps: list[Gap]


class Group(msgspec.Struct, kw_only=True):
    """The spans that have the same values of the keys. Durations are in `unit`: `ns` or `ticks`.

    Only spans that have ended have a duration; without any, durations are null. So is `self` if it was not
    asked for."""

    group: list[str | None]
    unit: str
    count: int
    open: int
    total: Ticks | None
    self_: Ticks | None = msgspec.field(name="self")
    min: Ticks | None
    p50: Ticks | None
    p90: Ticks | None
    p95: Ticks | None
    p99: Ticks | None
    max: Ticks | None


class Statistics(msgspec.Struct, kw_only=True):
    """The groups with the longest total first; `total` counts the groups, of which `groups` may be the first ones."""

    version: int
    whole: Whole
    by: list[str]
    total: int
    groups: list[Group]


class SqlColumn(msgspec.Struct, kw_only=True):
    name: str
    type: str


class SqlAnswer(msgspec.Struct, kw_only=True):
    """The rows of a statement, as arrays in the order of `columns`.

    Integers beyond 2^53 and decimals are texts; times and other types are DuckDB's text for them. `more` says
    that there are more rows than those, `cut` how many texts were cut."""

    version: int
    whole: Whole
    columns: list[SqlColumn]
    rows: list[list[Any]]
    more: bool
    cut: int
    seconds: float
