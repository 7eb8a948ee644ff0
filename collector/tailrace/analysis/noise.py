"""Judge which changes between two runs are larger than noise.

Repeated runs of one side differ by noise alone. One run is cut into blocks of time instead (see `blocks`), which do not
show noise as long as the whole run. Both methods yield the mean and the variance of the logarithm of a figure for each
side (`Evidence`). The growth is the difference of two means, and its interval is computed as in Welch's t-test. The
intervals of all groups together contain the true growths with the probability `CONFIDENCE` (Bonferroni's correction).
Missing events widen an interval to the worst case."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import fmean, geometric_mean, variance
from typing import NamedTuple, Self

import numpy as np

from tailrace.analysis.bounds import FigureBounds, Interval
from tailrace.analysis.comparison import (
    Doubt,
    FigureChange,
    GrowthInterval,
    Lacks,
    NoisyGrowth,
    changes,
)
from tailrace.analysis.durations import GroupUnit, GroupValues
from tailrace.analysis.statistics import FIGURES, SpanStatistics

CONFIDENCE = 0.99
"""Probability with which the intervals of all compared groups of spans contain the true growths. If the program has not
changed, at most one comparison in 100 reports a change."""


class Evidence(NamedTuple):
    """Mean and variance of the logarithm of a figure of one group of spans, over the runs on one side of a comparison.
    Missing events leave the mean between `low` and `high`, which may be infinite."""

    mean: float
    """Mean, over the side's runs, of the logarithm of the figure that a run's stored spans give."""
    low: float
    high: float
    variance: float
    """Variance of `mean`, computed from the stored spans."""
    slack: float
    """Greatest amount that the missing events can add to the standard error of `mean`."""
    freedom: float
    """Number of degrees of freedom of `variance`."""

    @classmethod
    def of_runs(
        cls, values: Sequence[int], bounds: Sequence[Interval], resolution: int = 0
    ) -> Self | None:
        """Return the evidence that repeated runs give, from the figure of each run and the interval of its true value.
        Return None if a figure is 0 or less, because it has no logarithm. `resolution` is the step of the clock, to
        which figures are rounded."""
        if min(values) <= 0:
            return None
        logs = [math.log(value) for value in values]
        lows = [_log(each.low, -math.inf) for each in bounds]
        highs = [_log(each.high, math.inf) for each in bounds]
        count = len(values)
        # Add the variance of the rounding: a value rounded to `resolution` is evenly distributed around the true one.
        rounding = fmean((resolution / value) ** 2 / 12 for value in values)
        spread = [
            max(high - log, log - low) for low, log, high in zip(lows, logs, highs, strict=True)
        ]
        slack = math.sqrt(sum(each * each for each in spread) / (count * (count - 1)))
        return cls(
            fmean(logs), fmean(lows), fmean(highs), (variance(logs) + rounding) / count, slack, count - 1
        )  # fmt: skip

    @classmethod
    def of_one_run(
        cls, value: int, bounds: Interval, variance: float, freedom: float
    ) -> Self | None:
        """Return the evidence of one run. `value` is its figure, and `bounds` the interval of the true value.
        `variance` is the variance of the logarithm, measured between blocks of time within the run. Return None if
        `value` is 0 or less, because it has no logarithm."""
        if value <= 0:
            return None
        low, high = _log(bounds.low, -math.inf), _log(bounds.high, math.inf)
        return cls(math.log(value), low, high, variance, 0.0, freedom)


def _log(value: int | None, unbounded: float) -> float:
    return unbounded if value is None else math.log(value) if value > 0 else -math.inf


def noisy_growth(a: Evidence, b: Evidence, error: float) -> NoisyGrowth:
    """Return two intervals for the growth of a figure from side A to side B: one from the stored spans, and one with an
    allowance for missing events. An interval does not contain the true growth with the probability `error`. For the
    first interval, this is true only if no events are missing."""
    between, fewest = a.variance + b.variance, min(a.freedom, b.freedom)
    by_side = a.variance**2 / a.freedom + b.variance**2 / b.freedom
    freedom = max(between**2 / by_side, fewest) if by_side > 0 else fewest
    # Round the degrees of freedom down to eighths, so that `student` can reuse cached results.
    margin = student(math.floor(freedom * 8) / 8, error) * math.sqrt(between)
    alone = _interval(b.mean - a.mean - margin, b.mean - a.mean + margin)
    if (a.low, a.high, b.low, b.high) == (a.mean, a.mean, b.mean, b.mean):
        return NoisyGrowth(alone, alone)
    # Assume the least possible number of degrees of freedom, because the missing events may change this number, too.
    margin = student(fewest, error) * (math.sqrt(between) + math.hypot(a.slack, b.slack))
    return NoisyGrowth(alone, _interval(b.low - a.high - margin, b.high - a.low + margin))


def _interval(low: float, high: float) -> GrowthInterval:
    """Return the interval of a relative growth, whose ends are given as differences of logarithms."""
    most = math.expm1(high) if high < 700 else None
    return GrowthInterval(max(math.expm1(low), -1.0) if low > -math.inf else -1.0, most)


@lru_cache(maxsize=1024)
def student(freedom: float, error: float) -> float:
    """Return the number t for which a value of Student's distribution lies outside of -t to t with the probability
    `error`. With t = sqrt(freedom) * tan(angle), the density is proportional to cos(angle) ** (freedom - 1)."""
    angles = np.linspace(math.pi / 2, 0, 20_001)
    density = np.cos(angles) ** (freedom - 1)
    outside = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    angle = float(np.interp(error, outside / outside[-1], angles))
    return math.sqrt(freedom) * math.tan(angle)


Evident = Mapping[GroupUnit, Evidence | Doubt]
"""For each group of spans, the evidence from one side of a comparison, or the reason why there is none."""


def judged(found: Sequence[FigureChange], a: Evident, b: Evident) -> list[FigureChange]:
    """Return the changes, each with its growth as intervals that allow for noise. A group of spans can only get the
    verdict `new` or `gone` if all runs of one side have spans of the group."""
    sides = [(a.get((each.group, each.unit)), b.get((each.group, each.unit))) for each in found]
    compared = sum(all(isinstance(side, Evidence) for side in pair) for pair in sides)
    error = (1 - CONFIDENCE) / max(compared, 1)
    return [
        each._replace(noise=_noise(each, of_a, of_b, error))
        for each, (of_a, of_b) in zip(found, sides, strict=True)
    ]


def _noise(
    change: FigureChange, a: Evidence | Doubt | None, b: Evidence | Doubt | None, error: float
) -> NoisyGrowth | None:
    if isinstance(a, Evidence) and isinstance(b, Evidence):
        return noisy_growth(a, b, error)
    doubts = [side for side in (a, b) if isinstance(side, Doubt)]
    # The verdicts `new` and `gone` depend on no figure, so ignore doubts that concern only the
    # noise of figures.
    if change.before is None or change.after is None:
        doubts = [doubt for doubt in doubts if doubt in (Doubt.LOSS, Doubt.SOME)]
    return NoisyGrowth(doubt=doubts[0]) if doubts else None


class RepeatedRuns(NamedTuple):
    """The repeated runs of one side of a comparison: their statistics, and functions that return whether a run may lack
    spans of a group."""

    statistics: Sequence[Sequence[SpanStatistics]]
    lacks: Sequence[Lacks]

    def groups(self) -> dict[GroupUnit, list[SpanStatistics]]:
        found: dict[GroupUnit, list[SpanStatistics]] = {}
        for run in self.statistics:
            for each in run:
                found.setdefault((each.group, each.unit), []).append(each)
        return found

    def lack(self, group: GroupValues, unit: str) -> bool:
        return any(lacks(group, unit) for lacks in self.lacks)


def repeated_changes(a: RepeatedRuns, b: RepeatedRuns, figure: str) -> list[FigureChange]:
    """Return the change of a figure for each group of spans, between the repeated runs of two sides. Do not consider
    noise."""
    before, after = ([_typical(runs) for runs in side.groups().values()] for side in (a, b))
    return changes(before, after, figure, (a.lack, b.lack))


def judged_by_runs(
    found: Sequence[FigureChange], a: RepeatedRuns, b: RepeatedRuns, figure: str
) -> list[FigureChange]:
    """Return the changes, each with its growth as intervals that allow for noise. The noise is measured from the
    differences among repeated runs."""
    groups = a.groups(), b.groups()
    evident: tuple[dict[GroupUnit, Evidence | Doubt], ...] = {}, {}
    for key in {**groups[0], **groups[1]}:
        runs = [side.get(key, []) for side in groups]
        values = {each.value(figure) for side in runs for each in side} - {None}
        # Durations are rounded to the step of the clock. The step is unknown, so use the greatest common divisor of the
        # durations instead.
        exact = figure == "count" or len(values) == 1
        step = 0 if exact else math.gcd(*(value or 0 for value in values))
        for found_of, side, its in zip(evident, (a, b), runs, strict=True):
            if its:
                found_of[key] = _of_runs(its, side, figure, step)
    return judged(found, *evident)


def _of_runs(
    runs: Sequence[SpanStatistics], side: RepeatedRuns, figure: str, step: int
) -> Evidence | Doubt:
    if len(runs) < len(side.statistics):
        return Doubt.LOSS if side.lack(runs[0].group, runs[0].unit) else Doubt.SOME
    known = [value for each in runs if (value := each.value(figure)) is not None]
    intervals = [interval for each in runs if (interval := each.bounds[figure]) is not None]
    if len(known) < len(runs) or len(intervals) < len(runs):
        return Doubt.NOISE  # if only the other side has this figure, the verdict is `unknown` whatever doubt is returned
    return Evidence.of_runs(known, intervals, step) or Doubt.NOISE


def _typical(runs: Sequence[SpanStatistics]) -> SpanStatistics:
    """Return the geometric means, over several runs, of the figures of one group of spans and of the bounds of these
    figures."""
    seen = [_mean(values) for values in zip(*(each.seen for each in runs), strict=True)]
    bounds: FigureBounds = {}
    for figure in FIGURES:
        intervals = [interval for each in runs if (interval := each.bounds[figure]) is not None]
        whole = len(intervals) == len(runs)
        bounds[figure] = Interval(*map(_mean, zip(*intervals, strict=True))) if whole else None
    group, unit = runs[0].group, runs[0].unit
    return SpanStatistics._make((group, unit, *seen, bounds))


def _mean(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    if len(known) == 1:
        return known[0]
    least = min(known)
    return round(geometric_mean(known)) if least > 0 else round(fmean(known)) if least < 0 else 0
