"""Compute the interval in which a figure of spans lies if some spans are missing.

`seen` spans have a known duration, and at most `lost` further spans exist. All intervals include their ends.

- The number of spans lies between `seen` and `seen + lost`.
- The quantile q lies between the seen durations with the ranks ceil(q * (seen + lost)) - lost and ceil(q * (seen +
  lost)): all lost spans may be shorter, or all longer.
- The sum and the maximum are at least those of the seen spans. The minimum is at most that of the seen spans.
- Self time is unbounded: if a child is missing, its parent's self time seems too long."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

LostCount = int | None
"""Upper bound on a number of lost events, or None if the number is unknown."""


class Interval(NamedTuple):
    """The least and the greatest value that a figure of spans can have. None stands for no bound."""

    low: int | None
    high: int | None

    @property
    def is_point(self) -> bool:
        return self.low is not None and self.low == self.high

    def words(self, spell: Callable[[int], str]) -> str:
        """Return the interval as text, for example `at least …` or `cannot be told`. `spell` converts a value to
        text."""
        if self.high is None:
            return f"at least {spell(self.low)}" if self.low else "cannot be told"
        low, high = spell(self.low or 0), spell(self.high)
        if low == high and self.low is not None:
            return high
        if not self.low:
            return f"at most {high}"
        value, space, unit = low.partition(" ")
        return f"{value if high.endswith(f' {unit}') and space else low}–{high}"  # noqa: RUF001 - a range


UNBOUNDED = Interval(None, None)

FigureBounds = dict[str, Interval | None]
"""The interval of each figure of a group of spans, by name. None if the figure has no value, for example because no
span of the group has ended and none is lost."""


def total_loss(*losses: LostCount) -> LostCount:
    """Return the sum of several numbers of lost events, or None if one of them is unknown."""
    known = [loss for loss in losses if loss is not None]
    return sum(known) if len(known) == len(losses) else None


def floor(least: int | None) -> int | None:
    """Return the least duration that a lost span can have: 0, or None if it has no bound. If the shortest seen duration
    (`least`) is negative, a clock was set back, and may have been set back further."""
    return None if least is not None and least < 0 else 0


def ranks(share: Fraction, seen: int, lost: int) -> tuple[int, int]:
    """Return the ranks of two stored durations. The quantile `share` of all spans, including the `lost` ones, lies
    between them. Rank 1 is the shortest duration. A rank below 1 stands for the least possible duration, a rank above
    `seen` for no upper bound."""
    rank = max(-(-share.numerator * (seen + lost) // share.denominator), 1)
    return rank - lost, rank
