"""Divide a drawn window of time into buckets, and convert clock ticks to times.

A bucket is a slice of time. Its width is the largest power of two (ns) that is at most the width of a pixel. Rows
without a stored time have buckets whose width is a power of two in ticks. Ticks are rounded to nanoseconds as in the
module `timeline`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tailrace.rollups.pieces import Floats, Longs, Pieces, Truths
from tailrace.timeline import LATEST, SessionClock, Ticks

NOWHERE = -1
"""Stands for a time that cannot be drawn, because it is below 0 or beyond `LATEST`."""

_SAFE = 2.0**62
"""Limit for a sum in floating point, below which the exact sum fits into 64 bits."""

_SECOND = 10**9


def durations(ticks: Longs, rate: float) -> Longs:
    """Convert durations in ticks, at least 0, to nanoseconds. `rate` is the tick rate (Hz).

    Results are rounded down, and at most `LATEST`."""
    safe = ticks * (1e9 / rate) < _SAFE
    found = _vector(np.where(safe, ticks, 0), rate)
    for index in np.flatnonzero(~safe).tolist():
        found[index] = min(Ticks(rate).ns(int(ticks[index])), LATEST)
    return found


def places(ticks: Longs, offsets: Longs, zeros: Longs, rate: float) -> Longs:
    """Return the times (ns) of ticks: `zeros` plus (tick + offset) / `rate` seconds. A time below 0 or beyond
    `LATEST` becomes `NOWHERE`."""
    about = np.abs(ticks.astype(np.float64)) + np.abs(offsets.astype(np.float64))
    safe = (about < _SAFE) & (about * (1e9 / rate) + np.abs(zeros.astype(np.float64)) < _SAFE)
    found = _vector(np.where(safe, ticks, 0) + np.where(safe, offsets, 0), rate)
    found += np.where(safe, zeros, 0).astype(np.int64, copy=False)
    for index in np.flatnonzero(~safe).tolist():
        ns = Ticks(rate).ns(int(ticks[index]) + int(offsets[index])) + int(zeros[index])
        found[index] = max(ns, NOWHERE) if ns <= LATEST else NOWHERE
    placed: Longs = np.maximum(found, NOWHERE)
    return placed


def ends(begins: Longs, starts: Longs, ticks: Longs, rate: float) -> Longs:
    """Return the ends (ns) of spans, at most `LATEST`. `begins` are their begins (ns), `starts` their start ticks,
    and `ticks` their durations in ticks."""
    about = np.abs(starts.astype(np.float64)) + ticks
    safe = (about < _SAFE) & (about * (1e9 / rate) + begins < _SAFE)
    first = np.where(safe, starts, 0)
    length = _vector(first + np.where(safe, ticks, 0), rate) - _vector(first, rate)
    found: Longs = np.where(safe, begins, 0) + np.maximum(length, 0)
    for index in np.flatnonzero(~safe).tolist():
        start, begin = int(starts[index]), int(begins[index])
        ns = Ticks(rate).ns
        length_of_one = ns(start + int(ticks[index])) - ns(start)
        found[index] = min(begin + max(length_of_one, 0), LATEST)
    return found


def _vector(ticks: Longs, rate: float) -> Longs:
    """Convert ticks to nanoseconds. The ticks must be small enough for 64-bit arithmetic (`_SAFE`)."""
    if rate == _SECOND:
        return ticks.copy()
    if not rate.is_integer():
        rounded: Longs = np.rint(ticks * (1e9 / rate)).astype(np.int64)
        return rounded
    if rate >= _SAFE / _SECOND:
        return np.array([Ticks(rate).ns(tick) for tick in ticks.tolist()], np.int64)
    whole, rest = np.divmod(ticks, int(rate))
    found: Longs = whole * _SECOND + rest * _SECOND // int(rate)
    return found


WIDEST = 52
"""Base-2 logarithm of the width (ns) of the widest bucket, 52 days."""


class Range(NamedTuple):
    """A range of time from `begin` (inclusive) to `end` (exclusive), in nanoseconds."""

    begin: int
    end: int


class Buckets(NamedTuple):
    """The slices of 2 ** `log` each into which a window from `begin` (inclusive) to `end` (exclusive) is divided.
    The unit is nanoseconds or ticks."""

    begin: int
    end: int
    log: int

    @property
    def first(self) -> int:
        return self.begin >> self.log

    @property
    def behind(self) -> int:
        """Number of the first bucket that begins at or after the window's end."""
        return -(-self.end >> self.log)


class Scale(NamedTuple):
    """A drawn window on the clock of one session: its buckets in ns for rows with a stored time (`timed`), and in ticks
    for other rows (`ticks`).

    Spans of 2 ** `short` ticks or more are drawn one by one. The time of a tick is `zero` plus (tick + `offset`) /
    `rate` seconds. `zero` is None if ticks have no time."""

    timed: Buckets
    ticks: Buckets
    short: int
    offset: int
    zero: int | None
    rate: float


def scale(session: SessionClock, window: Range, log: int) -> Scale:
    """Return a window on the clock of a session, divided into buckets of at most 2 ** `log` ns."""
    begin, end = max(window.begin, 0), min(window.end, LATEST)
    rate = session.ticks.rate or 1e9
    short = min(max(log + _log_of(Fraction(rate) / 10**9), 0), 62)
    offset = zero = None
    if session.epoch is not None:
        offset, zero = 0, session.epoch
    elif not session.tied:
        offset, zero = session.clock_offset, session.shift
    timed = Buckets(begin, end, log)
    if zero is None or offset is None:
        return Scale(timed, Buckets(0, 0, short), short, 0, None, rate)
    first, behind = (first_tick(session.ticks, time - zero) - offset for time in (begin, end))
    return Scale(timed, Buckets(first, behind, short), short, offset, zero, rate)


def log_at_most(width: Fraction) -> int:
    """Return the base-2 logarithm of the largest power of two that is at most `width` (ns), limited to 0 to
    `WIDEST`."""
    return min(max(_log_of(width), 0), WIDEST)


def _log_of(number: Fraction) -> int:
    log = number.numerator.bit_length() - number.denominator.bit_length()
    return log if number >= Fraction(2) ** log else log - 1


def first_tick(ticks: Ticks, ns: int) -> int:
    """Return the first tick at which `ns` nanoseconds or more have passed since tick 0."""
    rate = ticks.rate or 1e9
    if rate.is_integer():
        return -(-ns * int(rate) // 10**9)
    low, high = -(2**63), 2**63
    while low < high:
        middle = (low + high) // 2
        if ticks.ns(middle) >= ns:
            high = middle
        else:
            low = middle + 1
    return low


SPARE = 3
"""Base-2 logarithm of the factor by which buckets can be widened without reading files again."""


class Scales:
    """The `Scale` of each drawn lane, as arrays with one entry for each lane."""

    def __init__(self, scales: Sequence[Scale], log: int) -> None:
        self.log = log
        self.short = np.array([each.short for each in scales], np.int64)
        self.placed = np.array([each.zero is not None for each in scales], np.bool_)
        self._offset = np.array([each.offset for each in scales], np.int64)
        zeros = [each.zero or 0 for each in scales]
        # The tick 0 of a slow clock may lie so early that its time does not fit into 64 bits.
        fits = all(-LATEST <= zero <= LATEST for zero in zeros)
        self._zero = np.array(zeros, np.int64 if fits else object)
        self.rate: Floats = np.array([each.rate for each in scales], np.float64)
        self._rates = sorted({each.rate for each in scales})
        self.begin = np.array([each.timed.begin for each in scales], np.int64)
        self.end = np.array([each.timed.end for each in scales], np.int64)
        self._buckets = {
            True: [each.timed for each in scales],
            False: [each.ticks for each in scales],
        }

    @cached_property
    def ranges(self) -> dict[bool, tuple[Longs, Longs]]:
        """The ranges of rows to read, as arrays of begins and ends with one entry for each lane: stored times under the
        key True, ticks under False.

        A range is the drawn window, extended to whole buckets that are `SPARE` times as wide as the drawn ones, so that
        the rows can also be summed by these wider buckets."""
        return {timed: _pairs(map(_range, buckets)) for timed, buckets in self._buckets.items()}

    @cached_property
    def _bounds(self) -> dict[bool, tuple[Longs, Longs]]:
        """The numbers of the first and the last bucket for each lane, under the same keys as `ranges`."""
        return {
            timed: _pairs((each.first, each.behind - 1) for each in buckets)
            for timed, buckets in self._buckets.items()
        }

    def inside(self, pieces: Pieces) -> tuple[Longs, Truths]:
        """Return for each row or partial sum the number of its bucket, and whether this bucket is in the window."""
        width = np.where(pieces.timed, self.log, self.short[pieces.number])
        bucket = pieces.edge >> width
        low, high = (
            np.where(pieces.timed, of_times[pieces.number], of_ticks[pieces.number])
            for of_times, of_ticks in zip(self._bounds[True], self._bounds[False], strict=True)
        )  # fmt: skip
        return bucket, (bucket >= low) & (bucket <= high)

    def place(self, pieces: Pieces, at: Longs) -> Longs:
        """Convert stored times and ticks (`at`) of rows or partial sums to times (ns). Return `NOWHERE` for a time
        that is unknown, below 0 or beyond `LATEST`."""
        found = np.where(pieces.timed, np.maximum(at, NOWHERE), NOWHERE)
        for rate, rows in self._by_rate(pieces, ~pieces.timed & self.placed[pieces.number]):
            of = pieces.number[rows]
            found[rows] = places(at[rows], self._offset[of], self._zero[of], rate)
        return found

    def edges(self, pieces: Pieces, bucket: Longs) -> tuple[Longs, Longs]:
        """Return the begin and the end (ns) of the bucket of each row or partial sum, limited to 0 to `LATEST`."""
        width = np.where(pieces.timed, self.log, self.short[pieces.number])
        low = bucket << width
        high = np.where(bucket >= LATEST >> width, LATEST, (bucket + 1) << width)
        closes = self.place(pieces, high)
        return np.maximum(self.place(pieces, low), 0), np.where(closes < 0, LATEST, closes)

    def finish(self, pieces: Pieces, begin: Longs) -> Longs:
        """Return the end (ns) of the span in each row of `pieces`, from its `begin` (ns) and its duration."""
        found = begin.copy()
        for rate, rows in self._by_rate(pieces, np.ones(pieces.rows, np.bool_)):
            found[rows] = ends(begin[rows], pieces.start[rows], pieces.longest[rows], rate)
        return found

    def busy(self, pieces: Pieces) -> Longs:
        """Return the sum of the durations (ns) of the spans in each row or partial sum."""
        found = pieces.busy.copy()
        for rate, rows in self._by_rate(pieces, np.ones(pieces.rows, np.bool_)):
            found[rows] = durations(pieces.busy[rows], rate)
        return found

    def _by_rate(self, pieces: Pieces, chosen: Truths) -> list[tuple[float, Longs]]:
        """Return the indices of the chosen rows and partial sums, grouped by the tick rate of their session."""
        if len(self._rates) == 1:
            rows = np.flatnonzero(chosen)
            return [(self._rates[0], rows)] if len(rows) else []
        rates = self.rate[pieces.number]
        found = [(rate, np.flatnonzero(chosen & (rates == rate))) for rate in self._rates]
        return [(rate, rows) for rate, rows in found if len(rows)]


def _range(buckets: Buckets) -> tuple[int, int]:
    first = buckets.first >> SPARE << SPARE
    behind = (((buckets.behind - 1) >> SPARE) + 1) << SPARE
    return first << buckets.log, behind << buckets.log


def _pairs(pairs: Iterable[tuple[int, int]]) -> tuple[Longs, Longs]:
    clipped = [[min(max(each, -LATEST), LATEST) for each in pair] for pair in pairs]
    columns = np.array(clipped, np.int64).reshape(-1, 2)
    return columns[:, 0].copy(), columns[:, 1].copy()
