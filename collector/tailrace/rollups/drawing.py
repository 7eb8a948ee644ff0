"""Draw the pieces of a frame: rows and sums of rows become the columns that a frame shows of its lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tailrace.export.clocks import LATEST
from tailrace.rollups.events import COUNTER, INSTANT, SPAN
from tailrace.rollups.pieces import NONE, FrameTexts, Pieces, joined
from tailrace.rollups.places import Ints, Longs, Truths
from tailrace.rollups.scales import Scales
from tailrace.rollups.stacking import stacked
from tailrace.rollups.summing import added, latest

OPEN_MAX = 64
"""Open spans of a lane that are drawn one by one; more are drawn by buckets of their begins."""


class Drawn(NamedTuple):
    """Pieces with their places on the axis. `short` are sums; the end of what is open is `LATEST`."""

    pieces: Pieces
    begin: Longs
    end: Longs
    busy: Longs
    short: Truths

    def take(self, chosen: Longs | Truths) -> Drawn:
        return Drawn(
            self.pieces.take(chosen),
            self.begin[chosen],
            self.end[chosen],
            self.busy[chosen],
            self.short[chosen],
        )


class Summed(NamedTuple):
    """Pieces by what they are, with what is short added up."""

    shorts: Pieces
    longs: Pieces
    instants: Pieces
    values: Pieces

    @property
    def rows(self) -> int:
        return max(self.shorts.rows + self.longs.rows, self.instants.rows, self.values.rows)


def summed(pieces: Pieces, scales: Scales) -> Summed:
    """Return pieces with what is short added up."""
    of_spans = pieces.what == SPAN
    short = of_spans & _is_short(pieces, scales)
    bucket, inside = scales.inside(pieces)
    inside &= scales.place(pieces, pieces.spot) >= 0

    def by_buckets(chosen: Truths, add: Callable[..., tuple[Pieces, Longs]], *more: str) -> Pieces:
        """Add up the chosen pieces in the window by bucket; the `edge` of a sum is where its bucket begins."""
        rows = np.flatnonzero(chosen & inside)
        some = pieces.take(rows)
        keys = (getattr(some, name) for name in more)
        sums, places = add(some, some.number, some.timed, bucket[rows], *keys)
        width = np.where(sums.timed, scales.log, scales.short[sums.number])
        return sums._replace(edge=bucket[rows][places] << width)

    return Summed(
        by_buckets(short, added, "depth"),
        pieces.take(np.flatnonzero(of_spans & ~short)),
        by_buckets(pieces.what == INSTANT, added),
        by_buckets(pieces.what == COUNTER, latest, "label", "member"),
    )


def spans(pieces: Summed, scales: Scales) -> Drawn:
    """Return the spans in sight: short ones added up, others one by one, in the order in which they are stacked."""
    shorts = _sums(pieces.shorts, scales)
    longs = _singles(_open_bounded(pieces.longs, scales), scales)
    found = Drawn(
        joined([shorts.pieces, longs.pieces]),
        np.concatenate((shorts.begin, longs.begin)),
        np.concatenate((shorts.end, longs.end)),
        np.concatenate((shorts.busy, longs.busy)),
        np.concatenate((shorts.short, longs.short)),
    )
    later = np.where(found.pieces.open, -LATEST - 1, -found.end)
    several = found.pieces.events > 1
    order = np.lexsort((np.where(several, LATEST, found.pieces.offset), later, found.begin, found.pieces.number))  # fmt: skip
    return found.take(order)


def rows_of(found: Drawn, deepest: Sequence[int]) -> Ints:
    """Return the depths of drawn spans: those that are stored and, behind these, those of other spans."""
    rows = found.pieces.depth.copy()
    loose = np.flatnonzero(rows == NONE)
    numbers = found.pieces.number[loose]
    for number in np.unique(numbers).tolist():
        low, high = np.searchsorted(numbers, (number, number + 1))
        of_lane = loose[low:high]
        rows[of_lane] = deepest[number] + stacked(found.begin[of_lane], found.end[of_lane], found.short[of_lane])  # fmt: skip
    return rows


def instants(pieces: Summed, scales: Scales) -> Drawn:
    """Return the instants in sight, added up, in order."""
    found = _sums(pieces.instants, scales)
    return found.take(np.lexsort((found.begin, found.pieces.number)))


def counters(pieces: Summed, scales: Scales) -> Drawn:
    """Return the values of counters in sight, added up, in order."""
    found = _sums(pieces.values, scales)
    return found.take(np.lexsort((found.begin, found.pieces.member, found.pieces.label, found.pieces.number)))  # fmt: skip


def with_equal_texts(pieces: Pieces, texts: FrameTexts) -> Pieces:
    """Return the same such that equal names of counters have equal numbers."""
    if not (pieces.what == COUNTER).any():
        return pieces
    chosen = np.flatnonzero(pieces.what == COUNTER)
    label, member = pieces.label.copy(), pieces.member.copy()
    for column in (label, member):
        different, places = texts.unified(column[chosen])
        numbers = texts.numbers_of_list(different)
        column[chosen] = numbers[places]
    return pieces._replace(label=label, member=member)


def _is_short(pieces: Pieces, scales: Scales) -> Truths:
    short: Truths = ~pieces.open & (pieces.longest < np.left_shift(1, scales.short)[pieces.number])
    return short


def _sums(sums: Pieces, scales: Scales) -> Drawn:
    """Return sums with their places: that of a single row is where it is, others fill their bucket."""
    single = sums.events == 1
    bucket = sums.edge >> np.where(sums.timed, scales.log, scales.short[sums.number])
    low, high = scales.edges(sums, bucket)
    begin = np.where(single, scales.place(sums, sums.spot), low)
    end = np.where(single, scales.finish(sums, begin), high)
    return Drawn(sums, begin, end, scales.busy(sums), np.ones(sums.rows, np.bool_))


def _singles(longs: Pieces, scales: Scales) -> Drawn:
    """Return the spans among those that are not added up which reach into the window."""
    begin = scales.place(longs, longs.spot)
    end = np.where(longs.open, LATEST, scales.finish(longs, np.maximum(begin, 0)))
    of = longs.number
    seen = (begin >= 0) & (begin < scales.end[of])
    seen &= longs.open | (begin >= scales.begin[of]) | (end > scales.begin[of])
    busy = np.where(longs.open, 0, end - begin)
    return Drawn(longs, begin, end, busy, np.zeros(longs.rows, np.bool_)).take(seen)


def _open_bounded(longs: Pieces, scales: Scales) -> Pieces:
    """Return the same; where a lane has very many open spans, those that begin in one bucket are one, and so are those
    that begin before the window."""
    placed = longs.open & (scales.place(longs, longs.spot) >= 0)
    open_of = np.bincount(longs.number[placed], minlength=len(scales.short))
    many = placed & (open_of[longs.number] > OPEN_MAX)
    if not many.any():
        return longs
    crowd = longs.take(many)
    begin = scales.place(crowd, crowd.spot)
    bucket = np.maximum(begin, scales.begin[crowd.number] - 1) >> scales.log
    # The label is that of the one that has been open for longest.
    merged, _ = added(crowd._replace(longest=-begin), crowd.number, crowd.depth, bucket)
    return joined([longs.take(~many), merged._replace(longest=np.zeros(merged.rows, np.int64))])
