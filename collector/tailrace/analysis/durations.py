"""Count the durations of groups of spans, and find durations by their rank.

A rank needs all durations in order, which may not fit into memory. So count the spans first, by group and by range of
durations. A rank then lies in one known range, and only the durations in this range are read again and put in order."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from tailrace.errors import DELETED, BrokenOffError
from tailrace.query.filters import RowCondition

if TYPE_CHECKING:
    from tailrace.query.engine import Engine

FINE, COARSE = 32, 8
"""Number of ranges for each factor of two in duration, with one key for grouping and with several: these give more
groups. A range is then 2 or 9 % wide."""

GroupValues = tuple[str | None, ...]
"""The values (text or None) that define a group of spans, one for each key."""

GroupUnit = tuple[GroupValues, str]
"""A group of spans, and the unit of their durations."""


class LengthFigures(NamedTuple):
    """The figures of some spans: their number, the number of known durations, and the sum, minimum and maximum of the
    known durations."""

    spans: int = 0
    lengths: int = 0
    total: int | None = None
    least: int | None = None
    most: int | None = None

    @classmethod
    def joined(cls, several: Sequence[LengthFigures]) -> LengthFigures:
        """Return the figures of several sets of spans together."""
        spans, lengths = sum(each.spans for each in several), sum(each.lengths for each in several)
        known = [each[2:] for each in several if each.lengths]
        if not known:
            return cls(spans, lengths)
        totals, least, most = zip(*known, strict=True)
        return cls(spans, lengths, sum(totals), min(least), max(most))


class GroupCounts(NamedTuple):
    """The spans of a group. `unnumbered` is the number of open spans whose end may be lost without a gap. `certain` has the
    figures of the spans whose duration is not in doubt, and `doubtful` is the number of those in doubt."""

    ended: int
    open: int
    unnumbered: int
    doubtful: int
    seen: LengthFigures
    certain: LengthFigures


class LengthRank(NamedTuple):
    """A rank in a group of spans. Rank 1 is the shortest duration. With `certain`, only durations not in doubt count."""

    group: GroupUnit
    rank: int
    certain: bool


class SpanLengths:
    """The durations of groups of spans. `groups` has the counts of each group."""

    def __init__(self, engine: Engine, keys: Sequence[str], spans: RowCondition) -> None:
        """Count spans. `keys` are SQL expressions for the keys of groups. `spans` is SQL for spans with the columns `open`,
        `format`, `unit`, `length` (the duration), `unnumbered`, and `doubtful`, which is null for a span that is certainly
        still open."""
        self._engine = engine
        self._keys = "".join(f"{key} AS k{at}, " for at, key in enumerate(keys))
        self._names = [*(f"k{at}" for at in range(len(keys))), "unit", "bucket"]
        steps = FINE if len(keys) == 1 else COARSE
        self._bucket = f"CASE WHEN length > 0 THEN floor(log2(length::DOUBLE) * {steps})::INT WHEN length <= 0 THEN -1 END AS bucket"
        self._spans = spans
        # Rows by group and then by range. Spans without a known duration have the range None.
        self._rows: dict[GroupUnit, list[_Row]] = defaultdict(list)
        sql = (
            f"SELECT {self._keys}unit, {self._bucket}, open, open AND unnumbered, doubtful, count(*), sum(length)::HUGEINT,"  # noqa: S608 - our own words
            f" min(length), max(length) FROM ({spans.sql}) GROUP BY ALL"
        )
        for row in engine.rows(sql, spans.values):
            group, (unit, bucket, *state, count, total, least, most) = row[: len(keys)], row[len(keys) :]  # fmt: skip
            figures = LengthFigures(count, 0 if bucket is None else count, total, least, most)
            self._rows[group, unit].append(_Row._make((bucket, *state, figures)))
        self._version = engine.version
        self.groups = {group: _counts(rows) for group, rows in self._rows.items()}

    def at(self, wanted: Sequence[LengthRank]) -> dict[LengthRank, int]:
        """Return the duration at each rank. Each rank lies between 1 and the number of known durations. Raise
        BrokenOffError if the engine has moved to a newer version since the spans were counted."""
        found: dict[LengthRank, int] = {}
        inside: list[tuple[LengthRank, list[int], int]] = []
        series: dict[tuple[GroupUnit, bool], _Series] = {}
        for each in dict.fromkeys(wanted):
            key = each.group, each.certain
            if key not in series:
                series[key] = _Series(_in_order(self._rows[each.group], certain=each.certain))
            ordered, rank = series[key].place(each.rank)
            figures = ordered.figures
            if rank == 1 or figures.least == figures.most:
                found[each] = int(figures.least or 0)
            elif rank == figures.lengths:
                found[each] = int(figures.most or 0)
            else:
                inside.append((each, ordered.buckets, rank))
        if inside:
            found.update(self._read(inside))
        if self._engine.version != self._version:
            raise BrokenOffError(DELETED)
        return found

    def _read(
        self, inside: Sequence[tuple[LengthRank, list[int], int]]
    ) -> Iterator[tuple[LengthRank, int]]:
        """Read the durations in some ranges, and yield those at the given ranks within these ranges."""
        rows = [
            (number, rank, wanted.certain, *wanted.group[0], wanted.group[1], bucket)
            for number, (wanted, buckets, rank) in enumerate(inside)
            for bucket in buckets
        ]
        columns = ("number", "rank", "certain", *self._names)
        types = ("BIGINT", "BIGINT", "BOOLEAN", *("VARCHAR" for _ in self._names[1:]), "INT")
        lists = ", ".join(
            f"unnest(?::{kind}[]) AS {name}" for name, kind in zip(columns, types, strict=True)
        )
        same = " AND ".join(f"w.{name} IS NOT DISTINCT FROM s.{name}" for name in self._names)
        sql = (
            f"WITH wanted AS MATERIALIZED (SELECT {lists}), spans_at AS (SELECT {self._keys}unit, {self._bucket}, length, doubtful"  # noqa: S608 - our own words
            f" FROM ({self._spans.sql}) WHERE length IS NOT NULL), counted AS (SELECT {', '.join(f's.{name}' for name in self._names)},"
            " length, count(*) AS spans, count(*) FILTER (NOT doubtful) AS certain_spans"
            f" FROM spans_at AS s SEMI JOIN wanted AS w ON {same} GROUP BY ALL)"
            " SELECT number, min(length) FROM (SELECT number, rank, length, sum(CASE WHEN w.certain THEN certain_spans ELSE spans END)"
            f" OVER (PARTITION BY number ORDER BY length) AS upto FROM counted AS s JOIN wanted AS w ON {same})"
            " WHERE upto >= rank GROUP BY 1"
        )
        values = (*map(list, zip(*rows, strict=True)), *self._spans.values)
        for number, length in self._engine.rows(sql, values):
            yield inside[number][0], int(length)


class _Row(NamedTuple):
    """The spans of a group in one range that are alike in their state."""

    bucket: int | None
    open: bool
    unnumbered: bool
    doubtful: bool | None
    figures: LengthFigures


def _counts(rows: Sequence[_Row]) -> GroupCounts:
    still_open, unnumbered, doubtful = (
        sum(each.figures.spans for each in rows if each[at]) for at in (1, 2, 3)
    )
    seen = LengthFigures.joined([each.figures for each in rows])
    certain = LengthFigures.joined([each.figures for each in rows if each.doubtful is False])
    return GroupCounts(seen.spans - still_open, still_open, unnumbered, doubtful, seen, certain)


class _Range(NamedTuple):
    """The durations in one range, or in several neighbouring ones: `buckets` has their numbers."""

    buckets: list[int]
    figures: LengthFigures


class _Series:
    """The ranges of a group in the order of their durations."""

    def __init__(self, ranges: Sequence[_Range]) -> None:
        self._ranges = ranges
        self._ends = list(accumulate(each.figures.lengths for each in ranges))

    def place(self, rank: int) -> tuple[_Range, int]:
        """Return the range that has a rank of the group, and the rank within this range."""
        at = bisect_left(self._ends, rank)
        return self._ranges[at], rank - (self._ends[at - 1] if at else 0)


def _in_order(rows: Sequence[_Row], *, certain: bool) -> list[_Range]:
    """Return the ranges that have durations, the shortest first. Join ranges that overlap: rounding of the logarithm may
    put a duration into the range beside its own."""
    known: dict[int, list[LengthFigures]] = defaultdict(list)
    for each in rows:
        if each.bucket is not None and not (certain and each.doubtful is not False):
            known[each.bucket].append(each.figures)
    ordered: list[_Range] = []
    for bucket, several in sorted(known.items()):
        figures = LengthFigures.joined(several)
        buckets = [bucket]
        if ordered and (figures.least or 0) <= (ordered[-1].figures.most or 0):
            last = ordered.pop()
            buckets = [*last.buckets, bucket]
            figures = LengthFigures.joined([last.figures, figures])
        ordered.append(_Range(buckets, figures))
    return ordered
