"""The window of a frame, and how coarse it is: in nanoseconds of the axis, and in ticks of each session.

A frame is divided into buckets, whose width is the largest power of two that is at most a pixel. A bucket
holds the spans that begin in it and are shorter than it is wide. The buckets of rows that are stored without
a time are ticks, since only ticks are known of these rows.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from tailrace.export.clocks import LATEST, SessionClock

WIDEST = 52
"""The logarithm of the widest bucket: 52 days."""


class Range(NamedTuple):
    """From `begin`, inclusive, to `end`, exclusive, in nanoseconds of the axis."""

    begin: int
    end: int


class Buckets(NamedTuple):
    """The window in one unit: from `begin` to before `end`, and the logarithm of the width of its buckets."""

    begin: int
    end: int
    log: int

    @property
    def first(self) -> int:
        return self.begin >> self.log

    @property
    def behind(self) -> int:
        """Return the number of the first bucket behind the window."""
        return -(-self.end >> self.log)


class Scale(NamedTuple):
    """The window on the clock of one session. Spans of 2 ** `short` ticks or more are drawn one by one, and shorter
    spans are counted in buckets.

    A tick is at (tick + `offset`) / `rate` seconds behind `zero`, which is None if it has no place."""

    timed: Buckets
    ticks: Buckets
    short: int
    offset: int
    zero: int | None
    rate: float


def scale(session: SessionClock, window: Range, log: int) -> Scale:
    """Return a session's window, whose buckets are 2 ** `log` ns wide at most."""
    begin, end = max(window.begin, 0), min(window.end, LATEST)
    rate = session.ticks.rate
    rate = rate if rate is not None and rate > 0 else 1e9
    short = min(max(log + _log_of(Fraction(rate) / 10**9), 0), 62)
    offset = zero = None
    if session.epoch is not None:
        offset, zero = 0, session.epoch
    elif not session.tied:
        offset, zero = session.clock_offset, session.shift
    timed = Buckets(begin, end, log)
    if zero is None or offset is None:
        return Scale(timed, Buckets(0, 0, short), short, 0, None, rate)
    first, behind = (_tick_at(session, time, offset, zero, rate) for time in (begin, end))
    return Scale(timed, Buckets(first, behind, short), short, offset, zero, rate)


def log_at_most(width: Fraction) -> int:
    """Return the logarithm of the largest power of two that is at most `width`; 0 if that is below 1."""
    return min(max(_log_of(width), 0), WIDEST)


def _log_of(number: Fraction) -> int:
    """Return the logarithm to base 2, rounded down."""
    log = number.numerator.bit_length() - number.denominator.bit_length()
    return log if number >= Fraction(2) ** log else log - 1


def _tick_at(session: SessionClock, time: int, offset: int, zero: int, rate: float) -> int:
    """Return the first tick that is at `time` or later."""
    if rate.is_integer():
        return -(-(time - zero) * int(rate) // 10**9) - offset
    low, high = -(2**63), 2**63
    while low < high:
        middle = (low + high) // 2
        if session.ticks.ns(middle + offset) + zero >= time:
            high = middle
        else:
            low = middle + 1
    return low
