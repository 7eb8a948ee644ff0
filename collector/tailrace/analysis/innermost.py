"""Divide the time of lanes (a stream and substream of a session) among the spans in them.

Each moment of a lane counts for the innermost open span, which is the span that began last. DuckDB sorts the spans and
replaces texts by numbers, because a sort that must write texts to disk takes twice as long. `LaneDivision` then reads
the columns. The kernel `_innermost` does the same 100 times as fast, for times of 64 bits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tailrace.errors import DELETED, BrokenOffError
from tailrace.kernels import active
from tailrace.query.filters import RowCondition

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]  # it has no types

    from tailrace.query.engine import Engine

if TYPE_CHECKING or active():
    from tailrace.analysis._innermost import LaneDivision as KernelDivision

NOBODY = -1
"""Owner of spans whose time is not asked for. These spans still take time from the spans around them."""

LaneTimes = tuple[int, dict[int, int]]
"""The number of a lane, and the time during which the innermost open span has each owner."""


class DivisionRules(NamedTuple):
    """How `LaneDivision` divides. Time before `since` and from `until` on counts for no owner. With `deepest`, the
    owners are nodes of a tree of this depth, which the division makes from names: a node for each sequence of enclosing
    names. A deeper span belongs to its ancestor at this depth. Without `deepest`, the owners are given."""

    since: int | None = None
    until: int | None = None
    deepest: int | None = None


class LaneDivision:
    """Divides the time of lanes. The spans must be sorted by lane and begin. Among spans of a lane with the same begin,
    the outer span must come first. A span that ends before it begins gets no time."""

    def __init__(self, rules: DivisionRules) -> None:
        self._rules = rules
        self._lane: int | None = None
        self._now = 0
        self._open: list[tuple[int, int]] = []
        """The end and the owner of each span that has begun and may be open. The last one is the innermost."""
        self._times: dict[int, int] = defaultdict(int)
        self._places: dict[tuple[int, int], int] = {}
        """Index of each node by its parent (-1: none) and name."""
        self._counts: list[int] = []

    def add(
        self,
        lanes: Sequence[int],
        begins: Sequence[int],
        ends: Sequence[int],
        codes: Sequence[int],
    ) -> list[LaneTimes]:
        """Add spans, which may continue the last lane. `codes` are the spans' names if owners are nodes, and otherwise
        their owners. Return the lanes that end before the last lane."""
        ended = []
        for lane, begin, end, code in zip(lanes, begins, ends, codes, strict=True):
            if lane != self._lane:
                ended += self.finish()
                self._lane = lane
            self._reach(begin)
            owner = code if self._rules.deepest is None else self._node(code, self._rules.deepest)
            if end > begin:
                self._open.append((end, owner))
        return ended

    def finish(self) -> list[LaneTimes]:
        """End the last lane. Return this lane, or nothing if there is none."""
        if self._lane is None:
            return []
        self._reach(max((end for end, _ in self._open), default=self._now))
        ended = self._lane, dict(self._times)
        self._lane = None
        self._times.clear()
        return [ended]

    def nodes(self) -> list[tuple[int, int, int]]:
        """Return the parent (-1: none), the name and the number of spans of each node. Parents come first."""
        return [(*key, self._counts[place]) for key, place in self._places.items()]

    def _reach(self, moment: int) -> None:
        """Divide the time up to `moment`, and remove the spans that end by then."""
        since, until, _ = self._rules
        while self._open:
            end, owner = self._open[-1]
            stop = min(end, moment)
            if stop > self._now:
                begins = self._now if since is None else max(self._now, since)
                ends = stop if until is None else min(stop, until)
                if owner != NOBODY and ends > begins:
                    self._times[owner] += ends - begins
                self._now = stop
            if end > moment:
                break
            self._open.pop()
        self._now = moment

    def _node(self, name: int, deepest: int) -> int:
        """Count a span for its node. Return the node's index."""
        place = self._open[-1][1] if self._open else -1
        if len(self._open) < deepest:
            place = self._places.setdefault((place, name), len(self._counts))
            if place == len(self._counts):
                self._counts.append(0)
        self._counts[place] += 1
        return place


class NumberedRows(NamedTuple):
    """Rows that numbers replace: the index in `rows`. `columns` has the name and the type of each column. A span belongs
    to the row with the same values."""

    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Any]]

    def listed(self) -> RowCondition:
        """Return SQL that lists the rows with their numbers."""
        types = ", ".join(f"unnest(?::{kind}[]) AS {name}" for name, kind in self.columns)
        lists = zip(*self.rows, strict=True) if self.rows else ((),) * len(self.columns)
        return RowCondition(
            f"SELECT unnest(?::INT[]) AS number, {types}",
            ([*range(len(self.rows))], *map(list, lists)),
        )

    def same(self, table: str) -> str:
        """Return the SQL condition that a span (`s`) belongs to a row of `table`."""
        return " AND ".join(
            f"{table}.{name} IS NOT DISTINCT FROM s.{name}" for name, _ in self.columns
        )


LONG = "NOT bool_and(TRY_CAST(ends AS BIGINT) IS NOT NULL) AS long"
"""SQL expression that states whether the end of any span (`ends`) has more than 64 bits."""

SpanLane = Sequence[Any]
LANE = (("source", "VARCHAR"), ("session", "VARCHAR"), ("stream", "VARCHAR"), ("substream", "BIGINT"), ("format", "VARCHAR"), ("ticks_per_second", "DOUBLE"))  # fmt: skip
"""The columns that define a lane, and their types. The last two are equal in all spans of a session."""


def division(rules: DivisionRules, *, long: bool) -> LaneDivision | KernelDivision:
    """Return a division: the kernel, unless it is off, or times may have more than 64 bits (`long`)."""
    return LaneDivision(rules) if long or not active() else KernelDivision(*rules)


def divide(
    engine: Engine,
    spans: RowCondition,
    codes: NumberedRows,
    among: LaneDivision | KernelDivision,
) -> Iterator[tuple[SpanLane, dict[int, int]]]:
    """Divide the time of lanes, and yield each lane with the time of each owner. `codes` has the owners, or the names if
    owners are nodes. `spans` is the SQL of the ended spans, with the columns of `LANE` and of `codes`, `begins`, `ends`,
    `depth`, `offset` and `inside`. The time of a span that is not `inside` belongs to nobody. Raise BrokenOffError if a
    lane or a row of `codes` is new, because upkeep made the engine move to a newer snapshot."""
    named = ", ".join(name for name, _ in LANE)
    lanes = NumberedRows(
        LANE,
        list(engine.rows(f"SELECT {named} FROM ({spans.sql}) GROUP BY ALL", spans.values)),  # noqa: S608 - our own words
    )
    by_lane, by_code = lanes.listed(), codes.listed()
    ends = "ends" if isinstance(among, LaneDivision) else "ends::BIGINT AS ends"
    sql = (
        f"WITH lanes AS MATERIALIZED ({by_lane.sql}), codes AS MATERIALIZED ({by_code.sql})"  # noqa: S608 - our own words
        f" SELECT l.number AS lane, begins, {ends},"
        f" CASE WHEN inside THEN c.number ELSE {NOBODY} END::INT AS code"
        f" FROM ({spans.sql}) AS s LEFT JOIN lanes AS l ON {lanes.same('l')} LEFT JOIN codes AS c ON {codes.same('c')}"
        ' ORDER BY lane, begins, ends DESC, depth, "offset"'
    )
    values = (*by_lane.values, *by_code.values, *spans.values)
    for batch in engine.batches(sql, values):
        if any(column.null_count for column in batch.columns):
            raise BrokenOffError(DELETED)
        if isinstance(among, LaneDivision):
            ended = among.add(
                *([int(value) for value in each.to_pylist()] for each in batch.columns)
            )
        else:
            ended = among.add(*map(_words, batch.columns))
        yield from ((lanes.rows[lane], times) for lane, times in ended)
    yield from ((lanes.rows[lane], times) for lane, times in among.finish())


def _words(column: pyarrow.Array) -> memoryview[int]:
    """Return the numbers of a column of 32 or 64 bits without nulls."""
    held = memoryview(column.buffers()[1] or b"").cast("B")
    words: memoryview[int] = held.cast("q") if column.type.bit_width == 64 else held.cast("i")
    return words[column.offset : column.offset + len(column)]
