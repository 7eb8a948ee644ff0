"""Compute statistics of spans by group: count, total, self time and percentiles.

Only spans that have ended have a duration; open spans are counted separately. A span whose begin or end time is unknown
counts only in the number of spans. Percentiles are durations of actual spans (nearest rank), never interpolated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import chain
from math import ceil, floor, log2
from typing import TYPE_CHECKING, NamedTuple, Self

from tailrace.analysis import bounds
from tailrace.analysis.bounds import UNBOUNDED, FigureBounds, Interval, LostCount, total_loss
from tailrace.analysis.durations import (
    GroupUnit,
    GroupValues,
    LengthFigures,
    LengthRank,
    SpanLengths,
)
from tailrace.analysis.innermost import DivisionRules, NumberedRows, SpanLane, divide, division
from tailrace.analysis.losses import COLUMNS, HAS_RATE, UNNUMBERED_ENDS, Losses
from tailrace.errors import UnknownError
from tailrace.query.completeness import Completeness, Window, has_rows
from tailrace.query.filters import RowCondition, all_of, quote, quoted

if TYPE_CHECKING:
    from tailrace.query.engine import Engine


ROWS = 48
"""Minimum number of rows of a heat map, before rows narrower than 1 ns are merged."""

ROWS_MAX = 96
OCTAVE_ROWS = 8
"""Number of rows for each factor of two between the shortest and the longest duration, if that is between `ROWS` and
`ROWS_MAX` rows. A row is then 9 % wide."""

NARROWEST = 1.1
"""Least ratio of the highest to the lowest edge of a heat map. Durations that differ less fill only a part of it."""


class Cell(NamedTuple):
    """One cell of a heat map: the number of spans that began in one range of time and have one range of durations."""

    column: int
    row: int
    spans: int


class HeatMap(NamedTuple):
    """A heat map without its empty cells. It has `columns` columns; column n begins at `since` + n * `width` (ns). Row n
    has durations (ns) from `edges[n]` to less than `edges[n + 1]`. Open spans are in no cell."""

    since: int | None
    width: int
    columns: int
    edges: list[int]
    cells: list[Cell]
    open: int

    def overlapped(self, begin: int | None, end: int | None) -> range:
        """Return the columns that overlap a time from `begin` to `end` (ns, inclusive): none if a bound is None."""
        if self.since is None or begin is None or end is None:
            return range(0)
        first, last = ((time - self.since) // self.width for time in (begin, end))
        return range(max(first, 0), min(last + 1, self.columns))


def heat_map(engine: Engine, window: Window, name: str | None, columns: int) -> HeatMap:
    """Return a heat map of the spans in a window (only those with the name `name`, unless it is None), in at most
    `columns` ranges of time. The rows divide the range of the durations evenly on a logarithmic scale. If durations of
    at most 0 ns occur, a first row from 0 has them. Spans without a wall time or without a duration in ns are in no
    cell."""
    named = [] if name is None else [RowCondition("name = ?", (name,))]
    chosen = all_of([window.rows, *named])
    ended = "NOT open AND duration IS NOT NULL AND time IS NOT NULL"
    longer = f"FILTER ({ended} AND duration > 0)"
    bounds = (
        f"SELECT min(time), max(time), min(duration) {longer}, max(duration) {longer}, count(*) FILTER (open)"  # noqa: S608 - our own words
        f" FROM spans WHERE {chosen.sql}"
    )
    ((first, last, shortest, longest, still_open),) = engine.rows(bounds, chosen.values)
    since = first if window.since is None else window.since
    if since is None or last is None:
        return HeatMap(since, 1, 0, [], [], still_open)
    until = last + 1 if window.until is None else window.until
    width = max(-(-(until - since) // columns), 1)
    edges = _edges(shortest or 1, longest or 1)
    steps = (len(edges) - 1) / log2(edges[-1] / edges[0])
    time = "time" if until - since < 2**63 else "time::HUGEINT"
    # Near an edge, the logarithm may be rounded to the wrong side, so the SQL compares the duration with the edge.
    sql = (
        "SELECT cell, CASE WHEN duration <= 0 THEN -1 WHEN abs(row - round(row)) > 1e-6 THEN floor(row)::INT"  # noqa: S608 - our own words
        " ELSE round(row)::INT - (edges[round(row)::INT + 1] > duration)::INT END, count(*)"
        f" FROM (SELECT (({time} - ?) // ?)::INT AS cell, duration, {edges}::HUGEINT[] AS edges,"
        f" log2(greatest(duration, 1) / {edges[0]}::DOUBLE) * {steps!r}::DOUBLE AS row FROM spans"
        f" WHERE {ended} AND {chosen.sql}) GROUP BY 1, 2 ORDER BY 1, 2"
    )
    found = list(engine.rows(sql, (since, width, *chosen.values)))
    # If several rows begin at the same nanosecond, only the last one can have spans.
    kept = sorted({0, *edges} if any(row < 0 for _, row, _ in found) else set(edges))
    cells = [
        Cell(cell, kept.index(0 if row < 0 else edges[row]), spans) for cell, row, spans in found
    ]
    return HeatMap(since, width, -(-(until - since) // width), kept, cells, still_open)


def _edges(shortest: int, longest: int) -> list[int]:
    """Return increasing durations (ns), which begin the rows of a heat map, and the end of the last row. Neighbours may
    be equal."""
    low, high = shortest, longest + 1
    if high < low * NARROWEST:
        middle = (low + high) / 2
        low = max(min(low, floor(middle / NARROWEST**0.5)), 1)
        high = max(high, ceil(middle * NARROWEST**0.5))
    octaves = log2(high / low)
    rows = min(max(ROWS, round(OCTAVE_ROWS * octaves)), ROWS_MAX)
    return [low, *(ceil(low * 2 ** (octaves * row / rows)) for row in range(1, rows)), high]


ATTRIBUTES = "attributes."
"""Prefix with which users name an attribute of spans as a key for grouping, as in `attributes.size`."""


class GroupKey(NamedTuple):
    """A key by which spans are grouped: the name that users give to it, and the SQL expression for its value, which is
    text or null."""

    word: str
    sql: str

    @classmethod
    def parse(cls, word: str) -> Self:
        """Return the key that a word names. Raise UnknownError, which lists the possible words, for any other word."""
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
    """Return the keys that these words name, without duplicates. Raise UnknownError for a word that names no key."""
    return tuple(GroupKey.parse(word) for word in dict.fromkeys(words))


BY_NAME = parse(["name"])


_LAST = 2**63 - 2
"""The greatest time (Unix ns) to which 1 can be added within 64 bits."""

PERCENTILES = {name: Fraction(int(name[1:]), 100) for name in ("p50", "p90", "p95", "p99")}


class SpanStatistics(NamedTuple):
    """The figures of one group of spans. Figures of durations are in `unit`, or None without a known duration.
    `self_time` is the time during which a span of the group is the innermost open span (see `flame`), if requested."""

    group: GroupValues
    unit: str
    """Unit of the durations of this group of spans: `ns`, or `ticks` if the clock has no known tick rate."""
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
    bounds: FigureBounds
    """By name in `FIGURES`, the interval in which the figure lies, whatever the missing spans are."""

    @property
    def seen(self) -> tuple[int | None, ...]:
        """The figures of the stored spans: the fields from `ended` to `most`."""
        return self[2:12]

    def value(self, figure: str) -> int | None:
        """Return the figure with this name in `FIGURES`, over the stored spans."""
        value: int | None = getattr(self, FIGURES[figure])
        return value


_UNNUMBERED = RowCondition(f"format IN {quoted(UNNUMBERED_ENDS)}")

MEASURED = f"""
SELECT s.*, c.ticks_per_second,
  CASE WHEN duration IS NOT NULL OR ((open OR "end" IS NULL OR start IS NULL) AND {HAS_RATE}) THEN 'ns' ELSE 'ticks' END AS unit,
  CASE WHEN NOT open THEN coalesce(duration::HUGEINT, "end"::HUGEINT - start) END AS length
FROM (FROM spans WHERE {{rows}}) AS s LEFT JOIN part.clocks AS c USING (source, session)
"""  # noqa: S608 - our own words
"""SQL for the spans that meet the condition `rows`, with their duration (`length`) and its unit. The WHERE clause
directly follows `FROM spans`, so that DuckDB can skip files (`query.statement`)."""


def statistics(
    engine: Engine,
    window: Window,
    whole: Completeness,
    by: Sequence[GroupKey] = BY_NAME,
    *,
    self_time: bool = True,
) -> list[SpanStatistics]:
    """Group the spans that begin within a window by the keys `by`. Return the figures of each group, by descending
    total. `whole` is the completeness of the window. With `self_time`, read all spans in order, about a microsecond
    each."""
    rows = window.rows
    losses = Losses(engine, window, [key.word for key in by], whole)
    spans = losses.doubted(RowCondition(MEASURED.format(rows=rows.sql), rows.values))
    durations = SpanLengths(engine, [key.sql for key in by], spans)
    percentiles, intervals = _durations(durations, losses)
    unended = any(each.unnumbered for each in durations.groups.values())
    selves: dict[GroupUnit, SelfTime] = {}
    if self_time:
        unended = unended or _unended(engine, window)
        selves = _selves(
            engine,
            window,
            by,
            [*durations.groups],
            lambda lane: losses.touches(*lane[:3]) or (unended and lane[4] in UNNUMBERED_ENDS),
        )
    figures = []
    for (group, unit), spans_of in durations.groups.items():
        _, _, total, least, most = spans_of.seen
        own = selves.get((group, unit), SelfTime()) if self_time and total is not None else None
        figures_of = (total, own and int(own.seen), least, *percentiles[group, unit], most)
        seen = SpanStatistics._make((group, unit, spans_of.ended, spans_of.open, *figures_of, {}))
        its = intervals.get((group, unit))
        if its is None:
            values = {name: seen.value(name) for name in FIGURES}
            its = {name: None if v is None else Interval(v, v) for name, v in values.items()}
        if not self_time:
            its = its | {"self": None}
        elif own is not None and (own.doubtful or (group, unit) in intervals):
            its = its | {"self": Interval(int(own.certain), None)}
        figures.append(seen._replace(bounds=its))
    return sorted(figures, key=lambda each: (each.unit, -(each.total or 0), str(each.group)))


def _unended(engine: Engine, window: Window) -> bool:
    """Return whether a span that begins after the window has no end, in a format in which a lost end may leave no
    gap."""
    if window.until is None:
        return False
    behind = window._replace(since=window.until, until=None).rows
    return has_rows(engine, "spans", all_of([RowCondition("open"), behind, _UNNUMBERED]))


def _durations(
    durations: SpanLengths, losses: Losses
) -> tuple[dict[GroupUnit, list[int | None]], dict[GroupUnit, FigureBounds]]:
    """Return the percentiles of each group in the order of `PERCENTILES` (None without a known duration), and the
    intervals in which all figures lie. Leave out the intervals of groups without lost spans."""
    groups = durations.groups
    seen = {
        group: [LengthRank(group, bounds.ranks(share, known, 0)[1], certain=False) for share in PERCENTILES.values()]
        for group, counts in groups.items()
        if (known := counts.seen.lengths)
    }  # fmt: skip
    lost = {group: total_loss(losses.of(*group), each.doubtful) for group, each in groups.items()}
    lossy = {group: groups[group].certain for group, count in lost.items() if count != 0}
    pairs = {
        (group, name): bounds.ranks(share, certain.lengths, count)
        for group, certain in lossy.items()
        for name, share in PERCENTILES.items()
        if (count := lost[group]) is not None
    }
    inside = (
        LengthRank(group, rank, certain=True)
        for (group, _), pair in pairs.items()
        for rank in pair
        if 1 <= rank <= lossy[group].lengths
    )
    found = durations.at([*chain.from_iterable(seen.values()), *inside])
    none: list[int | None] = [None] * len(PERCENTILES)
    percentiles: dict[GroupUnit, list[int | None]] = {
        group: [found[each] for each in seen[group]] if group in seen else none for group in groups
    }
    intervals: dict[GroupUnit, FigureBounds] = {}
    for group, certain in lossy.items():
        floor = bounds.floor(certain.least)
        named = dict.fromkeys(PERCENTILES, Interval(floor, None))
        for name in PERCENTILES:
            if pair := pairs.get((group, name)):
                low, high = (found.get(LengthRank(group, rank, certain=True)) for rank in pair)
                named[name] = Interval(floor if low is None else low, high)
        intervals[group] = _bounds(certain, lost[group], named)
    return percentiles, intervals


def _bounds(
    certain: LengthFigures, lost: LostCount, percentiles: Mapping[str, Interval]
) -> FigureBounds:
    """Return the intervals of all figures of a group. `certain` has the figures of the spans whose duration is not in doubt,
    and `lost` is the maximum number of further spans: never 0, and None if it is unknown. Lost spans only increase the sum and
    the maximum, unless a lost span can have a negative duration."""
    floor = bounds.floor(certain.least)
    known = floor is not None and certain.lengths > 0
    return {
        "count": Interval(certain.spans, None if lost is None else certain.spans + lost),
        "total": Interval(certain.total if known else floor, None),
        "self": UNBOUNDED,
        "min": Interval(floor, certain.least),
        **percentiles,
        "max": Interval(certain.most if known else floor, None),
    }


class SelfTime(NamedTuple):
    """The self time of a group. A missing span takes self time from the spans around it, whatever its own group:
    `certain` is the part in lanes that no loss touches, and `doubtful` states whether there are other lanes."""

    seen: Fraction = Fraction(0)
    certain: Fraction = Fraction(0)
    doubtful: bool = False

    def add(self, time: Fraction, *, doubtful: bool) -> SelfTime:
        certain = self.certain if doubtful else self.certain + time
        return SelfTime(self.seen + time, certain, self.doubtful or doubtful)


def _selves(
    engine: Engine,
    window: Window,
    by: Sequence[GroupKey],
    groups: Sequence[GroupUnit],
    doubtful: Callable[[SpanLane], bool],
) -> dict[GroupUnit, SelfTime]:
    """Return the self time of each of `groups`, the groups of spans that begin in the window. Also read the spans inside
    of these spans, up to `_horizon`. `doubtful` states whether a missing span may take self time from a lane."""
    inside, reached = window.rows, window._replace(until=_horizon(engine, window)).rows
    keys = "".join(f", {key.sql} AS k{at}" for at, key in enumerate(by))
    spans = RowCondition(
        f'SELECT *, start AS begins, "end" AS ends, {inside.sql} AS inside{keys} FROM ({MEASURED.format(rows=reached.sql)}) WHERE length IS NOT NULL',  # noqa: S608 - our own words
        inside.values + reached.values,
    )
    columns = [*((f"k{at}", "VARCHAR") for at in range(len(by))), ("unit", "VARCHAR")]
    codes = NumberedRows(columns, [(*group, unit) for group, unit in groups])
    among = division(DivisionRules(), long=False)
    shared: dict[GroupUnit, SelfTime] = defaultdict(SelfTime)
    for lane, times in divide(engine, spans, codes, among):
        for code, ticks in times.items():
            group = groups[code]
            per_tick = Fraction(10**9) / Fraction(lane[-1]) if group[1] == "ns" else Fraction(1)
            shared[group] = shared[group].add(ticks * per_tick, doubtful=doubtful(lane))
    return shared


def _horizon(engine: Engine, window: Window) -> int | None:
    """Return a time (Unix ns) before which each span begins that lies inside of a span of the window. Return None if
    the window has no end."""
    if window.until is None:
        return None
    rows = window.rows
    sql = f"SELECT max(greatest(time, time::HUGEINT + duration)) FROM spans WHERE {rows.sql} AND NOT open"  # noqa: S608 - our own words
    ((last,),) = engine.rows(sql, rows.values)
    return window.until if last is None else min(int(last), _LAST) + 1


FIGURES = {
    "count": "ended", "total": "total", "self": "self_time", "min": "least",
    **{name: name for name in PERCENTILES}, "max": "most",
}  # fmt: skip
"""For each name of a figure that users give, the field of `SpanStatistics` with this figure."""
