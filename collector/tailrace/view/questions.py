"""Define the parameters of each endpoint of the HTTP API, as classes with constraints.

A parameter that the class does not have is refused, because a misspelled filter without effect would mislead.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tailrace.model.gap import DAMAGED_SESSION
from tailrace.query.completeness import Scope, Window
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
    """The parameters that all endpoints have: none."""

    @property
    def stores(self) -> tuple[int, ...]:
        """Return the numbers of the stores that the question reads."""
        return (0,)


class OfPlaces(ApiQuestion, frozen=True, kw_only=True):
    """Places in a job: everything, or what ran as one of these ranks, on one of these nodes, in one of these jobs. An
    id without a step takes all steps."""

    rank: list[Rank] = []
    node: list[Word] = []
    job: list[Word] = []

    @property
    def places(self) -> JobFilter:
        return JobFilter(
            tuple(self.rank) or None, tuple(self.node) or None, tuple(self.job) or None
        )

    def placed(self, engine: Engine) -> Container[tuple[str, str]] | None:
        """Return the source and id of each session that ran at the selected places, or None without a filter
        by place. Raise QueryError or StoreError."""
        where = all_of(list(self.places.conditions))
        if not where.values:
            return None
        sql = f"SELECT source, session FROM part.places WHERE {where.sql}"  # noqa: S608 - our own words
        return {(source, session) for source, session in engine.rows(sql, where.values)}


class OfSelection(OfPlaces, frozen=True, kw_only=True):
    """A selection: everything, or what belongs to these sources, sessions (beginnings of ids) and streams, and
    begins from `from` on, and before `to`."""

    source: list[Word] = []
    session: list[Word] = []
    stream: list[Word] = []
    from_: Nanoseconds | None = msgspec.field(name="from", default=None)
    to: Nanoseconds | None = None

    @property
    def filters(self) -> Filters:
        return Filters(
            self.source or None,
            self.session or None,
            self.stream or None,
            self.from_,
            self.to,
            job=self.places,
        )

    @property
    def window(self) -> Window:
        return Window(self.filters.selection, self.from_, self.to)

    def concerns(
        self, source: str, session: str, stream: str, placed: Container[tuple[str, str]] | None
    ) -> bool:
        """Return whether a gap of the given stream (empty if unknown) may concern the selection. `placed` is
        the result of the method `placed`."""
        return (
            (placed is None or session == DAMAGED_SESSION or (source, session) in placed)
            and (not self.source or source in self.source)
            and (not self.session or session == DAMAGED_SESSION or _begins(session, self.session))
            and (not self.stream or stream in {"", *self.stream})
        )


class OfNothing(ApiQuestion, frozen=True, kw_only=True):
    """No parameters."""


class OfStreams(OfPlaces, frozen=True, kw_only=True):
    """Which streams: those of which source, format, session, name or state contains a text."""

    search: Word = ""
    source: list[Word] = []
    session: list[Word] = []
    sort: Literal[
        "source", "format", "session", "stream", "events", "missing", "completeness", "first_time",
        "last_time", "open_spans", "state", "silent_since",
    ] = "missing"  # fmt: skip
    descending: bool = True
    offset: Offset = 0
    limit: RowLimit = 100


class OfSessions(OfPlaces, frozen=True, kw_only=True):
    source: list[Word] = []
    session: list[Word] = []


class OfLanes(OfPlaces, frozen=True, kw_only=True):
    source: list[Word] = []
    session: list[Word] = []
    stream: list[Word] = []

    @property
    def scope(self) -> Scope:
        sources, sessions, streams = map(tuple, (self.source, self.session, self.stream))
        return Scope.of(
            Selection(sources or None, sessions or None, streams or None, job=self.places)
        )

    def has(
        self, source: str, session: str, stream: str, placed: Container[tuple[str, str]] | None
    ) -> bool:
        """Return whether a lane of the given stream is selected. `placed` is the result of the method
        `placed`."""
        return (
            (placed is None or (source, session) in placed)
            and (not self.source or source in self.source)
            and (not self.session or _begins(session, self.session))
            and (not self.stream or stream in self.stream)
        )


class OfFrame(ApiQuestion, frozen=True, kw_only=True):
    """A window that is so many pixels wide, on the axis of its lanes, and its lanes: each a list of JSON
    (`["source", "session", "stream", substream or null]`). Without lanes, the first ones of all."""

    from_: Nanoseconds = msgspec.field(name="from")
    to: Nanoseconds
    pixels: Annotated[int, Meta(ge=1, le=20_000)]
    lanes: list[Word] = []


class OfGaps(OfSelection, frozen=True, kw_only=True):
    limit: RowLimit = 1000


class OfStatistics(OfSelection, frozen=True, kw_only=True):
    """Group by columns of `spans` or by `attributes.NAME`. Self time reads all spans in order."""

    by: list[Word] = msgspec.field(default_factory=lambda: ["name"])
    self_: bool = msgspec.field(name="self", default=True)
    limit: RowLimit = 1000
    format: Literal["json", "csv"] = "json"


class OfStatement(ApiQuestion, frozen=True, kw_only=True):
    """A statement of SQL over the views; see `store` for its limits."""

    sql: Annotated[str, Meta(min_length=1, max_length=100_000)]
    format: Literal["json", "csv"] = "json"
    limit: RowLimit = 10_000


class OfComparison(ApiQuestion, frozen=True, kw_only=True):
    """Two runs, `a` and `b`: each a store (its number in `store`), and what to take of it.

    With `align`, each run begins at its first event of that name, and ends `length` nanoseconds later."""

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
    limit: RowLimit = 1000
    format: Literal["json", "csv"] = "json"

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
    """At most `limit` nodes: those with the most time."""

    unit: Literal["ns", "ticks"] = "ns"
    limit: RowLimit = 2000


class OfDurations(OfSelection, frozen=True, kw_only=True):
    """Spans of one name, or of all names, in at most so many columns."""

    name: Word | None = None
    columns: Annotated[int, Meta(ge=1, le=1000)] = 200


class OfRow(ApiQuestion, frozen=True, kw_only=True):
    """A place: see `Place`."""

    source: Word
    session: Word
    offset: int


class OfSearch(OfSelection, frozen=True, kw_only=True):
    """Names that contain `name`, whatever its case, of events that begin after a time or, `backwards`, before it.

    With `axis`, as a lane names it, the events are those of its lanes, and all times are on it."""

    name: Annotated[str, Meta(min_length=1, max_length=1000)]
    after: Nanoseconds | None = None
    backwards: bool = False
    axis: Word = ""
    limit: RowLimit = 1


class OfNextGap(OfSelection, frozen=True, kw_only=True):
    """The gap that begins next after a time, or, `backwards`, last before it; with `axis`, of lanes on that axis."""

    after: Nanoseconds
    backwards: bool = False
    axis: Word = ""


class NewNote(ApiQuestion, frozen=True, kw_only=True):
    """A text about a range of time; without words for them, about all sources, sessions and streams."""

    from_: Nanoseconds = msgspec.field(name="from")
    to: Nanoseconds
    text: Annotated[str, Meta(min_length=1, max_length=10_000)]
    source: Word = ""
    session: Word = ""
    stream: Word = ""


class OldNote(ApiQuestion, frozen=True, kw_only=True):
    id: Annotated[str, Meta(max_length=100)]


class OfExport(OfSelection, frozen=True, kw_only=True):
    """One of the formats of `store`."""

    format: Word


def _begins(session: str, beginnings: list[str]) -> bool:
    return session.startswith(tuple(beginnings))
