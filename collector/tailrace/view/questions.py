"""Define the parameters of the endpoints of the HTTP API.

A request with an unknown parameter is refused, because a misspelled filter would have no effect.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tailrace.model.gap import DAMAGED_SESSION
from tailrace.query.completeness import Window
from tailrace.query.engine import Engine
from tailrace.query.filters import JobFilter, Selection, all_of
from tailrace.reading.question import Filters

Nanoseconds = Annotated[
    int, Meta(ge=-(2**63), le=2**63 - 1, description="Unix nanoseconds, as a decimal number")
]
RowLimit = Annotated[int, Meta(ge=1, le=10_000, description="the largest number of rows to return")]
Offset = Annotated[int, Meta(ge=0, description="the number of rows to leave out at the beginning")]
Word = Annotated[str, Meta(max_length=10_000)]
Rank = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class ApiQuestion(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """The base class of the parameters of each endpoint."""

    @property
    def stores(self) -> tuple[int, ...]:
        """The numbers of the stores whose data the answer contains."""
        return (0,)


class OfSessions(ApiQuestion, frozen=True, kw_only=True):
    """Selects sessions by source, by the beginning of the session id, and by the rank, node and job of the program that
    was traced.

    An empty list selects all. The id of a job without a step selects all of its steps.
    """

    source: list[Word] = []
    session: list[Word] = []
    rank: list[Rank] = []
    node: list[Word] = []
    job: list[Word] = []

    @property
    def places(self) -> JobFilter:
        return JobFilter(
            tuple(self.rank) or None, tuple(self.node) or None, tuple(self.job) or None
        )

    @property
    def selection(self) -> Selection:
        return Selection(tuple(self.source) or None, tuple(self.session) or None, job=self.places)

    def placed(self, engine: Engine) -> Container[tuple[str, str]] | None:
        """Return source and id of each session of the selected ranks, nodes and jobs, or None for all. Raise QueryError
        or StoreError."""
        where = all_of(list(self.places.conditions))
        if not where.values:
            return None
        sql = f"SELECT source, session FROM part.places WHERE {where.sql}"  # noqa: S608 - our own words
        return {(source, session) for source, session in engine.rows(sql, where.values)}


class OfLanes(OfSessions, frozen=True, kw_only=True):
    stream: list[Word] = []

    @property
    def selection(self) -> Selection:
        return super().selection._replace(streams=tuple(self.stream) or None)

    def has(
        self, source: str, session: str, stream: str, placed: Container[tuple[str, str]] | None
    ) -> bool:
        """Return whether the selection contains a stream. `placed` has source and id of each selected session, or is None
        for all (see the method `placed`)."""
        return (
            (placed is None or (source, session) in placed)
            and (not self.source or source in self.source)
            and (not self.session or session.startswith(tuple(self.session)))
            and (not self.stream or stream in self.stream)
        )


class OfSelection(OfLanes, frozen=True, kw_only=True):
    """Selects rows by source, by the beginning of the session id, by stream, by rank, node and job, and by time.

    The range of time begins at `from` and ends before `to`. An empty list selects all.
    """

    from_: Nanoseconds | None = msgspec.field(name="from", default=None)
    to: Nanoseconds | None = None

    @property
    def filters(self) -> Filters:
        sources, sessions, streams, *_ = self.selection
        return Filters(sources, sessions, streams, self.from_, self.to, job=self.places)

    @property
    def window(self) -> Window:
        return Window(self.selection, self.from_, self.to)

    def concerns(
        self, source: str, session: str, stream: str, placed: Container[tuple[str, str]] | None
    ) -> bool:
        """Return whether missing events of a gap may belong to the selection. The gap's `stream` is empty if unknown.
        `placed` has source and id of each selected session, or is None for all (see the method `placed`)."""
        damaged = session == DAMAGED_SESSION
        return (
            (placed is None or damaged or (source, session) in placed)
            and (not self.source or source in self.source)
            and (not self.session or damaged or session.startswith(tuple(self.session)))
            and (not self.stream or stream in {"", *self.stream})
        )


class OfNothing(ApiQuestion, frozen=True, kw_only=True):
    """The endpoint has no parameters."""


class OfStreams(OfSessions, frozen=True, kw_only=True):
    """A part of the list of streams.

    With `search`, the list contains only streams that have this text in their source, format, session id, stream id or
    state, or in the name of the thread, process, host, file or label.
    """

    search: Word = ""
    sort: Literal[
        "source", "format", "session", "stream", "events", "missing", "completeness", "first_time",
        "last_time", "open_spans", "state", "silent_since",
    ] = "missing"  # fmt: skip
    descending: bool = True
    offset: Offset = 0
    limit: RowLimit = 100


class OfEmptyTime(OfLanes, frozen=True, kw_only=True):
    """Asks for the long stretches of time without events on one time axis, in those lanes (see `ShownLane`) that have
    this axis."""

    axis: Word = "wall"


class OfFrame(ApiQuestion, frozen=True, kw_only=True):
    """A window of the timeline from `from` to `to`, `pixels` wide. Both times are on the `axis` of the lanes
    (see `ShownLane`).

    Each lane is a JSON list: `["source", "session", "stream", substream or null]`. Without lanes, the first lanes of
    the timeline are shown.
    """

    from_: Nanoseconds = msgspec.field(name="from")
    to: Nanoseconds
    pixels: Annotated[int, Meta(ge=1, le=20_000)]
    lanes: list[Word] = []


class OfGaps(OfSelection, frozen=True, kw_only=True):
    limit: RowLimit = 1000


class OfStatistics(OfSelection, frozen=True, kw_only=True):
    """Selects spans and groups them by columns of `spans` or by `attributes.NAME`.

    With `self`, the answer contains self times; these take longer, because all spans must be read in order.
    """

    by: list[Word] = msgspec.field(default_factory=lambda: ["name"])
    self_: bool = msgspec.field(name="self", default=True)
    limit: RowLimit = 1000
    format: Literal["json", "csv"] = "json"


class OfStatement(ApiQuestion, frozen=True, kw_only=True):
    """An SQL statement over the views. The endpoint `store` states its limits."""

    sql: Annotated[str, Meta(min_length=1, max_length=100_000)]
    format: Literal["json", "csv"] = "json"
    limit: RowLimit = 10_000


class OfComparison(ApiQuestion, frozen=True, kw_only=True):
    """Two runs, `a` and `b`. Each is a selection from one store, by the store's number in the answer of the endpoint
    `store`. With `align`, each run begins at its first event with this name. With `length`, it ends at most this
    number of nanoseconds later. Verdicts allow for noise, as those of `tailrace diff A B`; with `exact`, they do not.
    """

    a_store: Offset = 0
    a_source: list[Word] = []
    a_session: list[Word] = []
    a_from: Nanoseconds | None = None
    a_to: Nanoseconds | None = None
    a_rank: list[Rank] = []
    a_node: list[Word] = []
    a_job: list[Word] = []
    b_store: Offset = 0
    b_source: list[Word] = []
    b_session: list[Word] = []
    b_from: Nanoseconds | None = None
    b_to: Nanoseconds | None = None
    b_rank: list[Rank] = []
    b_node: list[Word] = []
    b_job: list[Word] = []
    by: list[Word] = msgspec.field(default_factory=lambda: ["name"])
    figure: Literal["count", "total", "self", "min", "p50", "p90", "p95", "p99", "max"] = "p95"
    threshold: Annotated[float, Meta(ge=0)] | None = None
    align: Word = ""
    length: Annotated[int, Meta(ge=1)] | None = None
    exact: bool = False
    limit: RowLimit = 1000
    format: Literal["json", "csv"] = "json"

    def __post_init__(self) -> None:
        """Raise ValueError if `length` is given without `align`, which sets where each run begins."""
        if self.length is not None and not self.align:
            raise ValueError("`length` needs `align`, which sets where each run begins")

    @property
    def stores(self) -> tuple[int, ...]:
        return self.a_store, self.b_store

    @property
    def sides(self) -> tuple[OfSelection, OfSelection]:
        return (
            OfSelection(
                source=self.a_source, session=self.a_session, from_=self.a_from, to=self.a_to,
                rank=self.a_rank, node=self.a_node, job=self.a_job,
            ),
            OfSelection(
                source=self.b_source, session=self.b_session, from_=self.b_from, to=self.b_to,
                rank=self.b_rank, node=self.b_node, job=self.b_job,
            ),
        )  # fmt: skip


class OfFlame(OfSelection, frozen=True, kw_only=True):
    """Selects the spans for a flame graph of at most `limit` nodes. The nodes with the most time are kept."""

    unit: Literal["ns", "ticks"] = "ns"
    limit: RowLimit = 2000


class OfDurations(OfSelection, frozen=True, kw_only=True):
    """Selects the spans for a heat map of durations: all spans, or those with the name `name`.

    The map has at most `columns` columns.
    """

    name: Word | None = None
    columns: Annotated[int, Meta(ge=1, le=1000)] = 200


class OfRow(ApiQuestion, frozen=True, kw_only=True):
    """A record, by its session and its offset in the session's bytes."""

    source: Word
    session: Word
    offset: int


class OfSearch(OfSelection, frozen=True, kw_only=True):
    """A search for events whose name contains `name`; upper and lower case count as equal.

    It finds events that begin after the time `after`, or with `backwards` before it. With `axis`, it finds only events
    of the lanes (streams or substreams, see `ShownLane`) with this time axis, and all times are on this axis.
    """

    name: Annotated[str, Meta(min_length=1, max_length=1000)]
    after: Nanoseconds | None = None
    backwards: bool = False
    axis: Word = ""
    limit: RowLimit = 1


class OfNextGap(OfSelection, frozen=True, kw_only=True):
    """A search for the first gap that begins after the time `after`, or with `backwards` for the last gap that
    begins before it. With `axis`, it finds only gaps of lanes (streams or substreams) with this time axis."""

    after: Nanoseconds
    backwards: bool = False
    axis: Word = ""


class NewNote(ApiQuestion, frozen=True, kw_only=True):
    """A note about a range of time. An empty `source`, `session` or `stream` stands for all."""

    from_: Nanoseconds = msgspec.field(name="from")
    to: Nanoseconds
    text: Annotated[str, Meta(min_length=1, max_length=10_000)]
    source: Word = ""
    session: Word = ""
    stream: Word = ""


class OldNote(ApiQuestion, frozen=True, kw_only=True):
    id: Annotated[str, Meta(max_length=100)]


class OfExport(OfSelection, frozen=True, kw_only=True):
    """The selection of an export. `format` is one of those that the endpoint `store` lists."""

    format: Word
