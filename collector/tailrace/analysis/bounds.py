"""Compute the interval in which a figure of spans lies if some spans are missing.

`seen` spans have a known duration, and at most `lost` further spans exist. All intervals include their ends.

- The number of spans lies between `seen` and `seen + lost`.
- The quantile q lies between the seen durations with the ranks ceil(q * (seen + lost)) - lost and ceil(q * (seen +
  lost)): all lost spans may be shorter, or all longer.
- The sum and the maximum are at least those of the seen spans. The minimum is at most that of the seen spans.
- Self time is at least that of the seen spans in lanes (streams and substreams) that lack nothing: if a child is
  missing, its parent's self time seems too long."""

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
        low = spell(self.low) if self.low or self.is_point else None  # type: ignore[arg-type] # a point has a value
        high = None if self.high is None else spell(self.high)
        value, space, unit = (low or "").partition(" ")
        short = space and high is not None and high.endswith(f" {unit}")
        return range_words(low, high, f"{value if short else low}–{high}")  # noqa: RUF001 - a range


def range_words(low: str | None, high: str | None, both: str) -> str:
    """Return a range between two figures as text. Write one figure if both are equal as written; otherwise, `both` is
    the text of the whole range. None stands for no bound."""
    if high is None:
        return "cannot be told" if low is None else f"at least {low}"
    if low is None:
        return f"at most {high}"
    return high if low == high else both


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
