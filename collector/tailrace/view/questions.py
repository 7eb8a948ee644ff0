"""The questions of the HTTP API: the parameters of each endpoint, as classes that say what is allowed.

A parameter that a class does not have is refused: a misspelled filter that filtered nothing would mislead.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tailrace.query.window import Window
from tailrace.reading.question import Filters

Nanoseconds = Annotated[
    int, Meta(ge=-(2**63), le=2**63 - 1, description="Unix nanoseconds, as a decimal number")
]
Limit = Annotated[int, Meta(ge=1, le=10_000, description="the largest number of rows to return")]
Offset = Annotated[int, Meta(ge=0, description="the number of rows to leave out at the beginning")]
Word = Annotated[str, Meta(max_length=10_000)]


class Question(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """The parameters that all endpoints have: none."""

    @property
    def stores(self) -> tuple[int, ...]:
        """Return the numbers of the stores that the question is about."""
        return (0,)


class Selected(Question, frozen=True):
    """What to take: everything, or what belongs to these sources, sessions (beginnings of ids) and streams, and
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
        )

    @property
    def window(self) -> Window:
        return Window(self.filters.selection, self.from_, self.to)


class OfNothing(Question, frozen=True):
    """No parameters."""


class OfStreams(Question, frozen=True):
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
    limit: Limit = 100


class OfSessions(Question, frozen=True):
    source: list[Word] = []
    session: list[Word] = []


class OfGaps(Selected, frozen=True):
    limit: Limit = 1000


class OfStatistics(Selected, frozen=True):
    """Group by columns of `spans` or by `attributes.NAME`. Self time reads all spans in order."""

    by: list[Word] = msgspec.field(default_factory=lambda: ["name"])
    self_: bool = msgspec.field(name="self", default=True)
    limit: Limit = 1000
    format: Literal["json", "csv"] = "json"


class Statement(Question, frozen=True):
    """A statement of SQL over the views; see `store` for its limits."""

    sql: Annotated[str, Meta(min_length=1, max_length=100_000)]
    format: Literal["json", "csv"] = "json"
    limit: Limit = 10_000
