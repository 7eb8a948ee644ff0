"""The answers of the HTTP API. The OpenAPI description is made from these classes.

Times and durations are decimal texts (`Ns`), because numbers of JavaScript are exact only up to 2^53. An
answer's `version` is the version of the table from which all of its figures are. Null means unknown; it is
never a zero.
"""

from __future__ import annotations

from tailrace.view.wire.figures import (
    Comparison,
    Difference,
    Flame,
    FlameNode,
    Group,
    HeatMap,
    Side,
    SqlAnswer,
    SqlColumn,
    Statistics,
)
from tailrace.view.wire.parts import Ns, Problem, Refusal, Ticks, Whole
from tailrace.view.wire.rows import (
    Event,
    Found,
    Gap,
    Gaps,
    NoteFacts,
    NoteList,
    Place,
    Raw,
    Row,
    Rows,
    Session,
    Sessions,
    Stream,
    Streams,
)
from tailrace.view.wire.store import (
    ColumnFacts,
    FormatFacts,
    Health,
    MissingFacts,
    News,
    Overview,
    Rate,
    SourceFacts,
    Store,
    ViewFacts,
)

__all__ = [
    "ColumnFacts",
    "Comparison",
    "Difference",
    "Event",
    "Flame",
    "FlameNode",
    "FormatFacts",
    "Found",
    "Gap",
    "Gaps",
    "Group",
    "Health",
    "HeatMap",
    "MissingFacts",
    "News",
    "NoteFacts",
    "NoteList",
    "Ns",
    "Overview",
    "Place",
    "Problem",
    "Rate",
    "Raw",
    "Refusal",
    "Row",
    "Rows",
    "Session",
    "Sessions",
    "Side",
    "SourceFacts",
    "SqlAnswer",
    "SqlColumn",
    "Statistics",
    "Store",
    "Stream",
    "Streams",
    "Ticks",
    "ViewFacts",
    "Whole",
]
