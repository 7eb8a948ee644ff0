"""Compute the bounds within which figures of spans lie, although some spans are missing.

A selection has `seen` spans with a known duration, and at most `lost` others: missing events, and seen spans whose
duration is in doubt. Nothing is assumed about the others, except that no duration is negative if no seen duration
is. All bounds include their ends. Without any loss, every bound is the figure itself.

- The number of spans lies between `seen` and `seen + lost`.
- The quantile q of all spans has the rank k = ceil(q * N) among N spans. It is smallest if all lost spans are shorter
  than the seen ones, and largest if all lost spans are longer. Therefore it lies between the seen durations of the
  ranks ceil(q * (seen + lost)) - lost and ceil(q * (seen + lost)) (`ranks`).
- The sum and the maximum are at least those of the seen spans. The minimum is at most that of the seen spans.
- Self time has no bound: a missing child makes it too long, a missing span makes it too short.

This module computes with numbers alone. `losses` counts what is lost, and `statistics` finds the seen durations.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

LostCount = int | None
"""A number of lost events, at most; None if the number is unknown."""


class Interval(NamedTuple):
    """The least and the greatest value that a figure may have. None means that nothing bounds this side."""

    low: int | None
    high: int | None

    @property
    def is_point(self) -> bool:
        return self.low is not None and self.low == self.high

    def words(self, spell: Callable[[int], str]) -> str:
        """Return the interval as text: a value, two values, `at least …`, `at most …` or `cannot be told`.

        `spell` returns a value as text. A unit that both values share appears once."""
        if self.low is not None and self.high is not None:
            return _range(spell(self.low), spell(self.high), self.low)
        if self.low:
            return f"at least {spell(self.low)}"
        return "cannot be told" if self.high is None else f"at most {spell(self.high)}"


UNBOUNDED = Interval(None, None)

FigureBounds = dict[str, Interval | None]
"""The interval of each figure, by the figure's name. None where no span has a known duration and none is lost."""


def _range(low: str, high: str, least: int) -> str:
    if low == high:
        return high
    if least == 0:
        return f"at most {high}"
    value, space, unit = low.partition(" ")
    return f"{value if high.endswith(f' {unit}') and space else low}–{high}"  # noqa: RUF001 - a range


def total_loss(*losses: LostCount) -> LostCount:
    """Return the sum of losses, which is unknown if one of them is."""
    known = [loss for loss in losses if loss is not None]
    return sum(known) if len(known) == len(losses) else None


def floor(least: int | None) -> int | None:
    """Return the least duration that a lost span may have, given the least seen one. A clock that was set back once
    may have been set back more often, and then nothing bounds the lost durations."""
    return None if least is not None and least < 0 else 0


def count(seen: int, lost: LostCount) -> Interval:
    return Interval(seen, None if lost is None else seen + lost)


def ranks(share: Fraction, seen: int, lost: int) -> tuple[int, int]:
    """Return the ranks (from 1) of the seen durations between which the quantile `share` lies. A rank below 1 means
    the least possible duration, a rank above `seen` means no bound."""
    rank = max(-(-share.numerator * (seen + lost) // share.denominator), 1)
    return rank - lost, rank


def least(seen: int | None, lowest: int | None, lost: LostCount) -> Interval:
    """Return the bounds of the minimum. `lowest` is the least possible duration of a lost span."""
    return Interval(seen, seen) if lost == 0 else Interval(lowest, seen)


def at_least(seen: int | None, lowest: int | None, lost: LostCount) -> Interval:
    """Return the bounds of a sum or maximum, which lost spans can only increase, unless durations may be negative."""
    if lost == 0:
        return Interval(seen, seen)
    return Interval(lowest if lowest is None or seen is None else seen, None)
