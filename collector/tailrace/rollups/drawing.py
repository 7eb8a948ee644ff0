"""Sum rows of the table by bucket (a slice of time) in memory, and assign each span of a lane to a row of the drawing.

A piece is a row of the table, or a partial sum of rows. `added` and `latest` sum pieces as the SQL of the module
`events` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailrace.rollups.events import COUNTER, INSTANT, SPAN
from tailrace.rollups.pieces import NONE, FrameTexts, Ints, Longs, Pieces, Truths, joined
from tailrace.rollups.scale import Scales
from tailrace.timeline import DEEPEST, LATEST

MOST = 2**63 - 1
_NEARLY = 2.0**62


def added(pieces: Pieces, *keys: NDArray[Any]) -> tuple[Pieces, Longs]:
    """Sum those rows or partial sums (`pieces`) of spans or instants that have equal values in all `keys`.

    Return the sums sorted by the keys, and for each sum the index of its longest piece. A sum takes the label, `spot`
    (time or tick), `start`, `offset` and `kind` from this piece."""
    key = _packed(keys)
    order = np.argsort(key) if len(keys) == 1 or key.ndim == 1 else np.lexsort(key)
    first = _firsts(key[..., order])
    sizes = np.diff(np.append(first, len(order)))
    longest = pieces.longest[order]
    greatest = np.repeat(np.maximum.reduceat(longest, first), sizes) if len(first) else longest
    among = np.flatnonzero(longest == greatest)
    group = np.repeat(np.arange(len(first)), sizes)[among]
    chosen = order[among[_changes(group)]]
    sums = pieces.take(chosen)._replace(
        events=_sum_each(pieces.events[order], first), busy=_sum_each(pieces.busy[order], first)
    )
    return sums, chosen


def latest(pieces: Pieces, *keys: NDArray[Any]) -> tuple[Pieces, Longs]:
    """Sum those rows or partial sums (`pieces`) of counter values that have equal values in all `keys`.

    Return the sums sorted by the keys, and for each sum the index of its latest piece. A sum takes `spot` (time or
    tick), `offset` and `latest` from this piece."""
    key = _packed(keys)
    order = np.lexsort((pieces.offset, pieces.spot, *(key if key.ndim > 1 else (key,))))
    first = _firsts(key[..., order])
    if not len(first):
        return pieces, order
    chosen = order[np.append(first[1:], len(order)) - 1]
    sums = pieces.take(chosen)._replace(
        events=_sum_each(pieces.events[order], first),
        least=np.minimum.reduceat(pieces.least[order], first),
        most=np.maximum.reduceat(pieces.most[order], first),
    )
    return sums, chosen


def _packed(keys: tuple[NDArray[Any], ...]) -> Longs:
    """Return integers that sort like the rows of several key columns: one for each row if 64 bits suffice, otherwise
    a two-dimensional array with the last key column first, as `numpy.lexsort` expects."""
    wide = [key.astype(np.int64) for key in keys]
    if not len(wide[0]):
        return wide[0]
    lows = [int(key.min()) for key in wide]
    sizes = [int(key.max()) - low + 1 for key, low in zip(wide, lows, strict=True)]
    room = 1
    for size in sizes:
        room *= size
    if room >= MOST:
        return np.stack(wide[::-1])
    packed = np.zeros(len(wide[0]), np.int64)
    for key, low, size in zip(wide, lows, sizes, strict=True):
        packed *= size
        packed += key - low
    return packed


def _firsts(ordered: Longs) -> Longs:
    """Return the indices of those sorted keys that differ from the preceding key."""
    if ordered.ndim == 1:
        return np.flatnonzero(_changes(ordered))
    changes = _changes(ordered[0])
    for row in ordered[1:]:
        changes |= _changes(row)
    return np.flatnonzero(changes)


def _changes(ordered: NDArray[Any]) -> Truths:
    """Return for each value whether it differs from the preceding value. The first value counts as different."""
    found = np.ones(len(ordered), np.bool_)
    found[1:] = ordered[1:] != ordered[:-1]
    return found


def _sum_each(values: Longs, first: Longs) -> Longs:
    """Return the sums of groups of consecutive values, each sum limited to `MOST`. `first` has the index of the first
    value of each group."""
    if not len(first):
        return values[:0]
    found: Longs = np.add.reduceat(values, first)
    about = np.add.reduceat(values.astype(np.float64), first)
    for group in np.flatnonzero(about > _NEARLY).tolist():
        end = first[group + 1] if group + 1 < len(first) else len(values)
        found[group] = min(sum(values[first[group] : end].tolist()), MOST)
    return found


FEW = 32
"""If there are at most this many buckets between two long spans, a Python loop computes the drawing's rows for these
buckets. For more buckets, a vectorized search is faster."""


class LaneStack:
    """The rows of the drawing that the open spans of one lane (stream or substream) occupy. Spans must be added in
    the order of their begins; among equal begins, the longest first."""

    __slots__ = ("ends",)

    def __init__(self) -> None:
        self.ends: list[int] = []

    def take(self, begin: int, end: int) -> int:
        """Return the row of the drawing for a span, below all spans that contain it. The row is occupied until the
        span's end."""
        ends = self.ends
        row = len(ends)
        while row and (ends[row - 1] <= begin or ends[row - 1] < end):
            row -= 1
        while row < len(ends) and ends[row] > begin:
            row += 1
        if row == len(ends):
            if (
                row == DEEPEST
            ):  # The drawing has no deeper row, so spans in the deepest row may overlap.
                row -= 1
                ends[row] = max(ends[row], end)
                return row
            ends.append(end)
        ends[row] = end
        return row

    def below(self, begin: int) -> int:
        """Return the first row of the drawing below all spans that have not ended at the time `begin`."""
        row = len(self.ends)
        while row and self.ends[row - 1] <= begin:
            row -= 1
        return row

    def steps(self) -> list[tuple[int, int]]:
        """Return pairs of a time and a row of the drawing, sorted by time. The row is the first one below all spans
        that are open from this time until the time of the next pair."""
        found: list[tuple[int, int]] = []
        latest = -1
        for row in range(len(self.ends), 0, -1):
            if self.ends[row - 1] > latest:
                found.append((latest, row))
                latest = self.ends[row - 1]
        return [*found, (latest, 0)]


def stacked(begin: Longs, end: Longs, short: Truths) -> Ints:
    """Return the row of the drawing for each span of one lane, and for each bucket of short spans (`short`). Spans and
    buckets must be sorted by begin, then by descending end."""
    rows = np.zeros(len(begin), np.int32)
    stack = LaneStack()
    longs = np.flatnonzero(~short)
    taken = zip(longs.tolist(), begin[longs].tolist(), end[longs].tolist(), strict=True)
    behind = np.append(longs[1:], len(begin)).tolist()
    for (at, first, last), until in zip(taken, behind, strict=False):
        rows[at] = stack.take(first, last)
        if until - at <= FEW:
            rows[at + 1 : until] = [stack.below(each) for each in begin[at + 1 : until].tolist()]
        else:
            since, row = zip(*stack.steps(), strict=True)
            found = np.searchsorted(np.array(since), begin[at + 1 : until], side="right") - 1
            rows[at + 1 : until] = np.array(row)[found]
    return rows


OPEN_MAX = 64
"""Maximum number of open spans of a lane that are drawn one by one. If there are more, those that begin in one
bucket are drawn as one."""


class Drawn(NamedTuple):
    """The spans and buckets of short spans (`short`) to draw. `begin` and `end` are times (ns). The end of an open
    span is `LATEST`."""

    pieces: Pieces
    begin: Longs
    end: Longs
    busy: Longs
    short: Truths

    def take(self, chosen: Longs | Truths) -> Drawn:
        pieces, *columns = self
        return Drawn._make((pieces.take(chosen), *(column[chosen] for column in columns)))


class Summed(NamedTuple):
    """The rows and partial sums of a window by what they stand for: sums of short spans, single long spans, sums of
    instants, and sums of counter values."""

    shorts: Pieces
    longs: Pieces
    instants: Pieces
    values: Pieces

    @property
    def rows(self) -> int:
        return max(self.shorts.rows + self.longs.rows, self.instants.rows, self.values.rows)


def summed(pieces: Pieces, scales: Scales) -> Summed:
    """Sum the short spans, the instants and the counter values by bucket. Long spans stay single."""
    of_spans = pieces.what == SPAN
    short = of_spans & ~pieces.open
    short &= pieces.longest < np.left_shift(1, scales.short)[pieces.number]
    bucket, inside = scales.inside(pieces)
    inside &= scales.place(pieces, pieces.spot) >= 0

    def by_buckets(chosen: Truths, add: Callable[..., tuple[Pieces, Longs]], *more: str) -> Pieces:
        """Sum the chosen rows and partial sums by bucket. Leave out those whose bucket is outside of the window."""
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
    """Return the long spans and the sums of short spans, sorted by lane, by begin and by descending end, as
    `stacked` requires."""
    shorts = _sums(pieces.shorts, scales)
    longs = _singles(_open_bounded(pieces.longs, scales), scales)
    columns = map(np.concatenate, zip(shorts[1:], longs[1:], strict=True))
    found = Drawn._make((joined([shorts.pieces, longs.pieces]), *columns))
    later = np.where(found.pieces.open, -LATEST - 1, -found.end)
    several = found.pieces.events > 1
    order = np.lexsort((np.where(several, LATEST, found.pieces.offset), later, found.begin, found.pieces.number))  # fmt: skip
    return found.take(order)


def rows_of(found: Drawn, deepest: Sequence[int]) -> Ints:
    """Return the row of the drawing for each span, counted from the top of its lane. A recorded depth is the row.
    Other spans are stacked below; `deepest` has the number of rows above them for each lane."""
    rows = found.pieces.depth.copy()
    loose = np.flatnonzero(rows == NONE)
    numbers = found.pieces.number[loose]
    for number in np.unique(numbers).tolist():
        low, high = np.searchsorted(numbers, (number, number + 1))
        of_lane = loose[low:high]
        rows[of_lane] = deepest[number] + stacked(found.begin[of_lane], found.end[of_lane], found.short[of_lane])  # fmt: skip
    return rows


def instants(pieces: Summed, scales: Scales) -> Drawn:
    """Return the sums of instants to draw, sorted by lane and time."""
    found = _sums(pieces.instants, scales)
    return found.take(np.lexsort((found.begin, found.pieces.number)))


def counters(pieces: Summed, scales: Scales) -> Drawn:
    """Return the sums of counter values to draw, sorted by lane, name, member and time."""
    found = _sums(pieces.values, scales)
    return found.take(np.lexsort((found.begin, found.pieces.member, found.pieces.label, found.pieces.number)))  # fmt: skip


def with_equal_texts(pieces: Pieces, texts: FrameTexts) -> Pieces:
    """Renumber the names and members of counters, so that equal texts have equal numbers, and values from several data
    files can be summed. `texts` has the text of each number."""
    if not (pieces.what == COUNTER).any():
        return pieces
    chosen = np.flatnonzero(pieces.what == COUNTER)
    label, member = pieces.label.copy(), pieces.member.copy()
    for column in (label, member):
        different, places = texts.unified(column[chosen])
        column[chosen] = texts.numbers_of(different)[places]
    return pieces._replace(label=label, member=member)


def _sums(sums: Pieces, scales: Scales) -> Drawn:
    """Return the begin and end times (ns) at which precomputed sums are drawn. A sum that covers only one row is drawn
    at the row's own times. A sum that covers several rows fills its bucket (slice of time)."""
    single = sums.events == 1
    bucket = sums.edge >> np.where(sums.timed, scales.log, scales.short[sums.number])
    low, high = scales.edges(sums, bucket)
    begin = np.where(single, scales.place(sums, sums.spot), low)
    end = np.where(single, scales.finish(sums, begin), high)
    return Drawn(sums, begin, end, scales.busy(sums), np.ones(sums.rows, np.bool_))


def _singles(longs: Pieces, scales: Scales) -> Drawn:
    """Return those single spans that overlap the drawn window, with their times (ns). A span of a sample counts for
    `events` spans of its duration."""
    begin = scales.place(longs, longs.spot)
    end = np.where(longs.open, LATEST, scales.finish(longs, np.maximum(begin, 0)))
    of = longs.number
    seen = (begin >= 0) & (begin < scales.end[of])
    seen &= longs.open | (begin >= scales.begin[of]) | (end > scales.begin[of])
    length = np.where(longs.open, 0, end - begin)
    busy = np.minimum(length, MOST // longs.events) * longs.events
    return Drawn(longs, begin, end, busy, np.zeros(longs.rows, np.bool_)).take(seen)


def _open_bounded(longs: Pieces, scales: Scales) -> Pieces:
    """Return the long spans. If a lane has more than `OPEN_MAX` open spans, merge those that begin in one bucket, and
    merge all that begin before the window."""
    placed = longs.open & (scales.place(longs, longs.spot) >= 0)
    open_of = np.bincount(longs.number[placed], minlength=len(scales.short))
    many = placed & (open_of[longs.number] > OPEN_MAX)
    if not many.any():
        return longs
    crowd = longs.take(many)
    begin = scales.place(crowd, crowd.spot)
    bucket = np.maximum(begin, scales.begin[crowd.number] - 1) >> scales.log
    # The function `added` gives a sum the label of the span with the greatest `longest`. Use `-begin` in place of
    # `longest`, so that the sum gets the label of the span that began first.
    merged, _ = added(crowd._replace(longest=-begin), crowd.number, crowd.depth, bucket)
    return joined([longs.take(~many), merged._replace(longest=np.zeros(merged.rows, np.int64))])
