"""Find the long stretches of empty time of a timeline: no event happens in them, and no span with a known end runs.

First, the whole time of the timeline is drawn in buckets, which shows in which bucket each stretch begins and ends.
Then the buckets at both edges of the longest stretches are drawn again in narrower buckets, until a bucket is at most 2
** `EXACT` ns or one tick wide. A sum of short spans counts as busy time for one bucket beyond its own, because a span
that begins in a bucket may end in the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tailrace.rollups.frame import Drawing, Painter
from tailrace.rollups.pieces import Longs
from tailrace.rollups.scale import WIDEST, Range
from tailrace.rollups.snapshot import LaneKey, TimelineSnapshot
from tailrace.timeline import LATEST

MOST = 12
"""Maximum number of stretches in a result."""

LEAST_SHARE = 0.25
"""A stretch is long if it lasts at least this fraction of the time that no stretch of the result covers."""

WORTH = 0.8
"""The result is empty if its stretches would cover less than this fraction of all time."""

EXACT = 10
_STEP = 9
"""Base-2 logarithm of the factor between the bucket widths of two successive drawings."""

_ROUNDS = 4
"""Maximum number of passes. Each pass searches the time between the stretches found so far for further stretches."""


class _Stretch(NamedTuple):
    """A stretch. The bucket of 2 ** `log` ns in which it begins or ends is known, but not the exact time."""

    begin: int
    end: int
    log: int


def stretches(snapshot: TimelineSnapshot, lanes: Sequence[LaneKey]) -> list[Range]:
    """Return the long stretches of empty time between the first and the last event of the lanes, in order of time. The
    lanes must share a time axis. Where only a sample of the events can be drawn, find only stretches that the first and
    the last event of each lane show. The begins of open spans do not count as events here, so if a lane has open spans,
    find no such stretch.

    Raise the errors of `frame`."""
    chosen = set(lanes)
    known = [each for each in snapshot.lanes if each.key in chosen]
    timed = [
        (each.first, each.last)
        for each in known
        if each.first is not None and each.last is not None
    ]
    if not timed:
        return []
    begins, ends = np.array(timed, np.int64).T
    everything = Range(int(begins.min()), int(ends.max()))
    certain = not any(each.open for each in known)
    found = _long(_between(begins, ends, EXACT), everything) if certain else []
    painter = Painter(snapshot, lanes)
    for _ in range(_ROUNDS):
        edges = [everything.begin, *(edge for each in found for edge in each[:2]), everything.end]
        between = [Range(*pair) for pair in zip(edges[::2], edges[1::2], strict=True)]
        more = [each for piece in between for each in _inside(painter, piece)]
        better = [_sharpened(painter, each) for each in _long([*found, *more], everything)]
        if len(better) == len(found):
            break
        found = better
    snapshot.same()
    return [Range(each.begin, each.end) for each in _long(found, everything)]


def _long(found: Sequence[_Stretch], everything: Range) -> list[_Stretch]:
    """Return at most `MOST` of the stretches, the longest ones, in order of time. Leave out a stretch that is short
    compared with the remaining time (`LEAST_SHARE`). Return an empty list if the stretches are too short in total
    (`WORTH`)."""
    longest = sorted(found, key=lambda each: each.begin - each.end)[:MOST]
    rest = everything.end - everything.begin - sum(each.end - each.begin for each in longest)
    while longest and longest[-1].end - longest[-1].begin < LEAST_SHARE * rest:
        last = longest.pop()
        rest += last.end - last.begin
    if rest > (1 - WORTH) * (everything.end - everything.begin):
        return []
    return sorted(longest)


def _inside(painter: Painter, piece: Range) -> list[_Stretch]:
    """Return the stretches of empty time inside a range that begins and ends with an event. Return an empty list if
    only a sample of the events can be drawn."""
    log = min(max((piece.end - piece.begin).bit_length() - _STEP, 0), WIDEST)
    window = _aligned(piece.begin, piece.end + 1, log)
    if painter.is_sampled(window, log):
        return []  # Do not read the sample of the rows: this would delay the first drawing of the page.
    found = painter.draw(window, log)
    begins, ends = _busy(found)
    inside = (begins <= piece.end) & (ends >= piece.begin)
    return [] if found.one_in > 1 else _between(begins[inside], ends[inside], found.log)


def _aligned(begin: int, end: int, log: int) -> Range:
    """Return the whole buckets of 2 ** `log` ns that contain a range."""
    return Range(max(begin >> log << log, 0), min(-(-end >> log) << log, LATEST))


def _busy(found: Drawing) -> tuple[Longs, Longs]:
    """Return begins and ends of everything in a drawing. An open span counts as its begin."""
    begins, ends = [], []
    for each in (found.spans, found.instants, found.counters):
        placed = each.take(each.begin >= 0)
        summed, is_open = placed.pieces.events > 1, placed.pieces.open
        end = np.where(is_open, placed.begin, placed.end)
        room = np.where(summed & ~is_open, placed.end - placed.begin, 0)
        begins.append(placed.begin)
        ends.append(end + np.minimum(room, LATEST - end))
    return np.concatenate(begins), np.concatenate(ends)


def _between(begins: Longs, ends: Longs, log: int) -> list[_Stretch]:
    """Return the longest stretches of empty time between the given ranges, which begin at `begins` and end at
    `ends`."""
    if not len(begins):
        return []
    order = np.argsort(begins, kind="stable")
    begins, reached = begins[order], np.maximum.accumulate(ends[order])
    lengths = begins[1:] - reached[:-1]
    longest = np.argsort(-lengths, kind="stable")[:MOST]
    return [
        _Stretch(int(reached[n]), int(begins[n + 1]), log)
        for n in longest.tolist()
        if lengths[n] > 0
    ]


def _sharpened(painter: Painter, stretch: _Stretch) -> _Stretch:
    """Return a stretch with more exact edges. Their error is at most a few of the narrowest buckets. It is larger only
    where narrower buckets would require a sample, because there are too many events to draw all of them."""
    begin, end = stretch[:2]
    before = after = stretch.log
    while before > EXACT:
        beside = _aligned(begin - (2 << before), begin + 1, before)
        found = painter.draw(beside, max(before - _STEP, 0))
        if found.one_in > 1 or found.log >= before:
            break
        begins, ends = _busy(found)
        # A span that is shorter than a bucket, and begins before the window, is not drawn.
        least = beside.begin + (1 << found.log)
        begin = min(begin, int(ends[begins < end].max(initial=least)))
        before = found.log
    while after > EXACT:
        found = painter.draw(_aligned(end, end + (1 << after), after), max(after - _STEP, 0))
        begins, _ = _busy(found)
        later = begins[begins >= end]
        if found.one_in > 1 or found.log >= after or not len(later):
            break
        end = int(later.min())
        after = found.log
    return _Stretch(begin, end, EXACT)
