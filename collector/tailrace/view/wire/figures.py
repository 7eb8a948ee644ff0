"""Answers with figures over spans, and to SQL."""

from __future__ import annotations

from typing import Any

import msgspec

from tailrace.view.wire.parts import Ns, Ticks, Whole


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
    `word` says the same: a percentage, `new`, `gone` or `unknown`."""

    group: list[str | None]
    unit: str
    count_a: int | None
    count_b: int | None
    a: Ticks | None
    b: Ticks | None
    growth: float | None
    word: str
    exceeds: bool
    """Whether it grew by more than the threshold; false without one."""


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
    total: Ticks
    self_: Ticks = msgspec.field(name="self")


class Flame(msgspec.Struct, kw_only=True):
    """The nodes of a flame graph, each behind its parent. `unit` is `ns`, or `ticks` for clocks without a rate.

    `left_out` counts nodes that were too small to be listed; the nodes above have their time. `open` counts spans
    that have not ended, which have no time here."""

    version: int
    whole: Whole
    unit: str
    nodes: list[ShownFlameNode]
    left_out: int
    open: int


class HeatMapAnswer(msgspec.Struct, kw_only=True):
    """How many spans began when, and how long they took.

    Columns are ranges of time of `width` from `from` on. Rows are ranges of durations: row 0 is 0 ns, and row n
    is 2^(n-1) to 2^n - 1 ns. The lists have one item for each cell that is not empty. `open` counts the spans
    of the range that have not ended."""

    version: int
    whole: Whole
    from_: Ns | None = msgspec.field(name="from")
    width: Ns
    columns: list[int]
    rows: list[int]
    counts: list[int]
    open: int
