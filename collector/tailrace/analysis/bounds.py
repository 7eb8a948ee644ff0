"""Compute the interval in which a figure of spans lies if some spans are missing.

`seen` spans have a known duration. At most `lost` further spans exist: missing events, and spans in the table whose
duration is in doubt. The duration of a lost span is at least 0, unless a seen duration is negative. All intervals
include their ends. Without any loss, every interval is the figure itself.

- The number of spans lies between `seen` and `seen + lost`.
- The quantile q of N spans is the duration with the rank ceil(q * N). The quantile is smallest if all lost spans are
  shorter than the seen ones, and largest if all lost spans are longer. Therefore it lies between the seen durations
  with the ranks ceil(q * (seen + lost)) - lost and ceil(q * (seen + lost)) (`ranks`).
- The sum and the maximum of all spans are at least those of the seen spans. The minimum is at most that of the seen
  spans.
- Self time is unbounded. If a child is missing, the self time of its parent seems too long. If a span is missing, its
  own self time is missing.

This module only calculates. `losses` counts the lost spans, and `statistics` finds the seen durations.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

LostCount = int | None
"""Upper bound on a number of lost events, or None if the number is unknown."""


class Interval(NamedTuple):
    """The least and the greatest value that a figure of spans can have. None means that the figure has no bound on this
    side.
    """

    low: int | None
    high: int | None

    @property
    def is_point(self) -> bool:
        return self.low is not None and self.low == self.high

    def words(self, spell: Callable[[int], str]) -> str:
        """Return the interval as text: a value, two values, `at least …`, `at most …` or `cannot be told`.

        `spell` converts a value to text. Two values with the same unit have the unit only once."""
        if self.low is not None and self.high is not None:
            return _range(spell(self.low), spell(self.high), self.low)
        if self.low:
            return f"at least {spell(self.low)}"
        return "cannot be told" if self.high is None else f"at most {spell(self.high)}"


UNBOUNDED = Interval(None, None)

FigureBounds = dict[str, Interval | None]
"""For each figure of a group of spans, by the figure's name: the interval in which the figure lies. An interval is None
if no span of the group has a known duration and no span is lost."""


def _range(low: str, high: str, least: int) -> str:
    if low == high:
        return high
    if least == 0:
        return f"at most {high}"
    value, space, unit = low.partition(" ")
    return f"{value if high.endswith(f' {unit}') and space else low}–{high}"  # noqa: RUF001 - a range


def total_loss(*losses: LostCount) -> LostCount:
    """Return the sum of several numbers of lost events. Return None if one of them is unknown."""
    known = [loss for loss in losses if loss is not None]
    return sum(known) if len(known) == len(losses) else None


def floor(least: int | None) -> int | None:
    """Return the least duration that a lost span can have: 0, or None if there is no lower bound.

    `least` is the least duration of the seen spans, or None. It is negative if a clock was set back during a span. The
    clock may have been set back further during a lost span, so there is then no lower bound."""
    return None if least is not None and least < 0 else 0


def count(seen: int, lost: LostCount) -> Interval:
    return Interval(seen, None if lost is None else seen + lost)


def ranks(share: Fraction, seen: int, lost: int) -> tuple[int, int]:
    """Return the ranks of two seen durations. The quantile `share` of all spans, including the lost spans, lies between
    these two durations.

    Rank 1 is the shortest seen duration. `seen` and `lost` are numbers of spans. A rank below 1 stands for the least
    duration that a span can have. A rank above `seen` means that the quantile has no upper bound."""
    rank = max(-(-share.numerator * (seen + lost) // share.denominator), 1)
    return rank - lost, rank


def least(seen: int | None, lowest: int | None, lost: LostCount) -> Interval:
    """Return the interval in which the minimum of all spans lies. `seen` is the minimum of the seen spans, and `lowest`
    is the least duration that a lost span can have."""
    return Interval(seen, seen) if lost == 0 else Interval(lowest, seen)


def at_least(seen: int | None, lowest: int | None, lost: LostCount) -> Interval:
    """Return the interval in which the sum (or the maximum) of the durations of all spans lies. Its lower end is
    `seen`, the sum or maximum of the seen spans, because lost spans can only increase the figure.

    There is no lower end if a lost span can have a negative duration (`lowest` is None)."""
    if lost == 0:
        return Interval(seen, seen)
    return Interval(lowest if lowest is None or seen is None else seen, None)
