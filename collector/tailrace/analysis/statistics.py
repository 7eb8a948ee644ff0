"""Count and measure spans by group: count, total, self time and percentiles.

Only spans that have ended have a duration; open spans are counted apart. A span without a begin or an end time
counts, but no other figure includes it. Percentiles are durations that occur (nearest rank), never interpolated.

`changes` compares the statistics of two runs group by group: what grew, what is new, what is gone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tailrace.analysis.flame import LaneSpan, shares
from tailrace.errors import UnknownError
from tailrace.query.completeness import Window
from tailrace.query.filters import RowCondition, all_of, quote

if TYPE_CHECKING:
    from tailrace.query.engine import Engine


class Cell(NamedTuple):
    """How many spans began in a range of time, and took a duration of a class (see `heat_map`)."""

    column: int
    row: int
    spans: int


class HeatMap(NamedTuple):
    """The cells that contain spans. Column n begins at `since` + n * `width` ns. `open` counts the spans that have
    not ended: no cell counts them."""

    since: int | None
    width: int
    cells: list[Cell]
    open: int


def heat_map(engine: Engine, window: Window, name: str | None, columns: int) -> HeatMap:
    """Return how long the spans of a window took, of one name or all, in at most `columns` ranges of time.

    Row 0 has durations of 0 ns (and below, where a span ends before it begins), row n has 2^(n-1) to 2^n - 1 ns.
    Spans without a wall time or without a duration in ns are in no cell. Raise QueryError or StoreError."""
    named = [] if name is None else [RowCondition("name = ?", (name,))]
    chosen = all_of([window.rows, *named])
    bounds = f"SELECT min(time), max(time) FROM spans WHERE {chosen.sql}"  # noqa: S608 - our own words
    ((first, last),) = engine.rows(bounds, chosen.values)
    since = first if window.since is None else window.since
    if since is None or last is None:
        return HeatMap(since, 1, [], 0)
    until = last + 1 if window.until is None else window.until
    width = max(-(-(until - since) // columns), 1)
    # The logarithm of a large number may be rounded up.
    sql = (
        "SELECT cell, CASE WHEN duration > 0 THEN 1 + power - (1::HUGEINT << power > duration)::INT ELSE 0 END, count(*)"  # noqa: S608 - our own words
        " FROM (SELECT ((time::HUGEINT - ?) // ?)::BIGINT AS cell, duration,"
        " floor(log2(greatest(duration, 1)))::INT AS power FROM spans"
        f" WHERE NOT open AND duration IS NOT NULL AND time IS NOT NULL AND {chosen.sql}) GROUP BY 1, 2 ORDER BY 1, 2"
    )
    cells = [Cell(*row) for row in engine.rows(sql, (since, width, *chosen.values))]
    counting = f"SELECT count(*) FROM spans WHERE open AND {chosen.sql}"  # noqa: S608 - our own words
    ((still_open,),) = engine.rows(counting, chosen.values)
    return HeatMap(since, width, cells, still_open)


COLUMNS = (
    "name", "category", "source", "session", "format", "stream", "substream", "day", "depth", "parent",
)  # fmt: skip
"""The columns of `spans` to group by."""

ATTRIBUTES = "attributes."
"""The beginning of a key that names a member of the attributes."""


class GroupKey(NamedTuple):
    """One key to group by, and its SQL over a row of `spans`: a text or null."""

    word: str
    sql: str

    @classmethod
    def parse(cls, word: str) -> Self:
        """Return the key that a word names: a column, or `attributes.` and the name of a member.

        Raise UnknownError, which lists the columns, for any other word."""
        member = word.removeprefix(ATTRIBUTES)
        if word in COLUMNS:
            return cls(word, f'"{word}"::VARCHAR')
        if member == word or not member:
            allowed = ", ".join(COLUMNS)
            raise UnknownError(
                f"spans are not grouped by {word!r}; use {allowed}, or {ATTRIBUTES}KEY"
            )
        pointer = "/" + member.replace("~", "~0").replace("/", "~1")
        return cls(word, f"part.member(attributes, {quote(pointer)})")


def parse(words: Sequence[str]) -> tuple[GroupKey, ...]:
    """Return the keys that words name, each once, in order. Raise UnknownError."""
    return tuple(GroupKey.parse(word) for word in dict.fromkeys(words))


BY_NAME = parse(["name"])


_LAST = 2**63 - 2
"""The last time behind which there is another one."""

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}

GroupValues = tuple[str | None, ...]
"""The values of the keys, in order."""


class SpanStatistics(NamedTuple):
    """The figures of one group. Durations are in `unit`, and None if no span has a known duration.

    `self_time` is None where it was not asked for; see `flame` for its meaning."""

    group: GroupValues
    unit: str
    """`ns` or `ticks`."""
    ended: int
    open: int
    total: int | None
    self_time: int | None
    least: int | None
    p50: int | None
    p90: int | None
    p95: int | None
    p99: int | None
    most: int | None


_HAS_RATE = "part.ticks_ns(0, 0, c.ticks_per_second) IS NOT NULL"

_MEASURED = f"""
SELECT s.*, c.ticks_per_second,
  CASE WHEN duration IS NOT NULL OR ((open OR "end" IS NULL OR start IS NULL) AND {_HAS_RATE}) THEN 'ns' ELSE 'ticks' END AS unit,
  CASE WHEN NOT open THEN coalesce(duration::HUGEINT, "end"::HUGEINT - start) END AS length
FROM (FROM spans WHERE {{rows}}) AS s LEFT JOIN part.clocks AS c USING (source, session)
"""  # noqa: S608 - our own words
"""Spans that meet a condition, which stands beside the view's name, so that it chooses files (`query.statement`)."""


def statistics(
    engine: Engine, window: Window, by: Sequence[GroupKey] = BY_NAME, *, self_time: bool = True
) -> list[SpanStatistics]:
    """Return the figures of the spans that begin within a window, the longest total first.

    `self_time` reads every span of the window in order, which takes about a microsecond a span.
    Raise QueryError or StoreError when the table cannot be read."""
    keys = "".join(f"{key.sql}, " for key in by)
    places = ", ".join(str(place) for place in range(1, len(by) + 2))
    percentiles = ", ".join(f"quantile_disc(length, {share})" for share in PERCENTILES.values())
    rows = window.rows
    sql = (
        f"SELECT {keys}unit, count(*) FILTER (NOT open), count(*) FILTER (open), sum(length)::HUGEINT, min(length),"  # noqa: S608 - our own words
        f" {percentiles}, max(length) FROM ({_MEASURED.format(rows=rows.sql)}) GROUP BY {places}"
    )
    found = list(engine.rows(sql, rows.values))
    selves = _selves(engine, window, by) if self_time else {}
    figures = []
    for row in found:
        group, (unit, ended, still_open, total, *lengths) = row[: len(by)], row[len(by) :]
        own = selves.get((group, unit), 0) if self_time and total is not None else None
        figures.append(SpanStatistics(group, unit, ended, still_open, total, own, *lengths))
    return sorted(figures, key=lambda each: (each.unit, -(each.total or 0), str(each.group)))


def _selves(
    engine: Engine, window: Window, by: Sequence[GroupKey]
) -> dict[tuple[GroupValues, str], int]:
    """Return the self time of each group and unit."""
    shared: dict[tuple[GroupValues, str], Fraction] = defaultdict(Fraction)
    for _, rows in groupby(_in_lanes(engine, window, by), itemgetter(0, 1, 2, 3)):
        for (group, unit, rate), ticks in shares(_lane(rows)).items():
            if group is not None:
                in_unit = ticks * Fraction(10**9) / Fraction(rate) if unit == "ns" else ticks
                shared[group, unit] += in_unit
    return {key: int(time) for key, time in shared.items()}


def _lane(rows: Iterator[Any]) -> Iterator[LaneSpan[tuple[GroupValues | None, str, float]]]:
    """Yield the spans of one lane. A span outside of the window belongs to no group."""
    for row in rows:
        start, end, inside, rate, unit, *group = row[4:]
        yield LaneSpan(start, end, (tuple(group) if inside else None, unit, rate))


def _in_lanes(engine: Engine, window: Window, by: Sequence[GroupKey]) -> Iterator[Any]:
    """Yield the ended spans of the window, and the spans behind the window that its last spans may contain,
    lane by lane in the order of their starts."""
    inside, reached = window.rows, window._replace(until=_horizon(engine, window)).rows
    keys = "".join(f", {key.sql}" for key in by)
    sql = (
        f'SELECT source, session, stream, substream, start, "end", {inside.sql}, ticks_per_second, unit{keys}'  # noqa: S608 - our own words
        f" FROM ({_MEASURED.format(rows=reached.sql)}) WHERE length IS NOT NULL"
        ' ORDER BY source, session, stream, substream, start, "end" DESC, depth, "offset"'
    )
    return engine.rows(sql, inside.values + reached.values)


def _horizon(engine: Engine, window: Window) -> int | None:
    """Return the time behind which no span lies that one of the window may contain; None without a bound."""
    if window.until is None:
        return None
    rows = window.rows
    sql = f"SELECT max(greatest(time, time::HUGEINT + duration)) FROM spans WHERE {rows.sql} AND NOT open"  # noqa: S608 - our own words
    ((last,),) = engine.rows(sql, rows.values)
    return window.until if last is None else min(int(last), _LAST) + 1


FIGURES = {
    "count": "ended",
    "total": "total",
    "self": "self_time",
    "min": "least",
    "p50": "p50",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "max": "most",
}
"""The figures to compare, by the words that users know them by: attributes of `SpanStatistics`."""

UNKNOWN = "unknown"
"""The word for a change of which a run that has the group lacks the figure."""


class FigureChange(NamedTuple):
    """A group in both runs, of which either may lack it. Figures are None where nothing has ended."""

    group: GroupValues
    unit: str
    before: SpanStatistics | None
    after: SpanStatistics | None
    figure: str
    """The word of the compared figure."""

    @property
    def from_(self) -> int | None:
        return _value(self.before, self.figure)

    @property
    def to(self) -> int | None:
        return _value(self.after, self.figure)

    @property
    def growth(self) -> float | None:
        """Return by which share the figure grew: 0.1 is 10 percent more. From nothing it grew without bound.

        Return None where a run lacks the figure."""
        if self.from_ is None or self.to is None:
            return None
        if self.from_ == self.to:
            return 0.0
        return (self.to - self.from_) / abs(self.from_) if self.from_ else math.inf

    @property
    def word(self) -> str:
        """Return the change in words: a percentage, `new`, `gone`, or `UNKNOWN`."""
        if self.before is None:
            return "new"
        if self.after is None:
            return "gone"
        return UNKNOWN if self.growth is None else f"{self.growth:+.1%}"


def changes(
    before: Iterable[SpanStatistics], after: Iterable[SpanStatistics], figure: str
) -> list[FigureChange]:
    """Return every group of either run: those that grew most first, then new groups, then gone ones."""
    return sorted(_pairs(before, after, figure), key=_rank)


def exceeding(found: Iterable[FigureChange], threshold: float) -> list[FigureChange]:
    """Return the changes that grew by more than a share. A new group grew from nothing that is known, so it
    exceeds no threshold."""
    return [each for each in found if each.growth is not None and each.growth > threshold]


def _pairs(
    before: Iterable[SpanStatistics], after: Iterable[SpanStatistics], figure: str
) -> Iterator[FigureChange]:
    first = {(each.group, each.unit): each for each in before}
    second = {(each.group, each.unit): each for each in after}
    for group, unit in {**first, **second}:
        key = group, unit
        yield FigureChange(group, unit, first.get(key), second.get(key), figure)


def _rank(change: FigureChange) -> tuple[int, float, str]:
    place = 2 if change.before is None else 3 if change.after is None else 0
    growth = change.growth
    return (place or (growth is None), -(growth or 0.0), str(change.group))


def _value(statistics: SpanStatistics | None, figure: str) -> int | None:
    return None if statistics is None else getattr(statistics, FIGURES[figure])
