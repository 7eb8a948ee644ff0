"""Measure how much a figure of a group of spans, such as the mean duration, varies within one run.

The run is cut into `BLOCKS` equal blocks of time. Blocks are drawn at random with replacement, and the figure is
computed from them, `DRAWS` times (bootstrap). The variance among the draws estimates the variance of the run's
figure. Blocks are drawn instead of spans, because neighbouring spans depend on one another. The database counts
durations in classes, so that the memory does not grow with the number of spans."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tailrace.analysis.comparison import Doubt, Lacks, may_lack
from tailrace.analysis.durations import GroupUnit
from tailrace.analysis.noise import Evidence
from tailrace.analysis.statistics import (
    MEASURED,
    PERCENTILES,
    GroupKey,
    SpanStatistics,
    statistics,
)

if TYPE_CHECKING:
    from tailrace.query.completeness import Completeness, Window
    from tailrace.query.engine import Engine

Reals = NDArray[np.float64]

BLOCKS = 8

FEWEST_BLOCKS = 6
"""The noise of the figures of a group of spans is measured only if at least this many blocks of time have spans of the
group."""

LASTING = 0.5
"""Assumed variance of a figure of a whole run, as a share of the variance in one block of the run. It would be 1/8 if
the 8 blocks were independent. Among 69 comparisons of equal runs on a shared machine, 7 falsely reported a changed
median with 1/8, and 1 with this share."""

DRAWS = 200
"""Number of random draws of blocks, with which the standard error of a figure is exact to about 5 %."""

SEED = 20_261_129
"""Seed of the random numbers, so that comparing the same runs again gives the same answer."""

FEWEST_SPANS = 30
"""The noise of a figure of a group of spans is measured from blocks of time only if each run has at least this many
spans of the group. For a percentile, `FEWEST_BEYOND` spans must also be longer, and as many shorter."""

FEWEST_BEYOND = 5

CLASSES = 128
"""Number of classes (ranges of durations) between any duration and twice this duration. A class is 0.5 % wide."""

NO_LOGARITHM = -1
"""Number of the class for durations of at most 0, which have no logarithm."""


class MeasuredRun(NamedTuple):
    """The spans of one run, in groups by their keys, with the statistics of each group for the comparison of one
    figure."""

    engine: Engine
    window: Window
    by: Sequence[GroupKey]
    figure: str
    whole: Completeness
    statistics: list[SpanStatistics]
    lacks: Lacks

    @classmethod
    def read(
        cls,
        engine: Engine,
        window: Window,
        by: Sequence[GroupKey],
        figure: str,
        whole: Completeness,
    ) -> Self:
        """Measure the spans of a window. `whole` is the completeness of the window."""
        found = statistics(engine, window, whole, by, self_time=figure == "self")
        return cls(engine, window, by, figure, whole, found, may_lack(engine, window, by, whole))

    def evidence(self) -> dict[GroupUnit, Evidence | Doubt]:
        """Return for each group of spans the mean and the noise of the figure, or the reason why they are unknown. The
        number of spans has no noise. Blocks of time do not show the noise of self time, minimum and maximum: for these
        figures, each group gets `Doubt.NOISE`."""
        groups = {(each.group, each.unit): each for each in self.statistics}
        if self.figure not in {"count", "total", *PERCENTILES}:
            return dict.fromkeys(groups, Doubt.NOISE)
        found: dict[GroupUnit, Evidence | Doubt] = dict.fromkeys(groups, Doubt.FEW)
        if self.figure == "count":
            for key, each in groups.items():
                bounds = each.bounds["count"]
                exact = bounds and Evidence.of_one_run(each.ended, bounds, 0.0, BLOCKS - 1)
                found[key] = exact or Doubt.NOISE
            return found
        share = PERCENTILES.get(self.figure)
        for key, spans in _histograms(self.engine, self.window, self.by):
            value, bounds = groups[key].value(self.figure), groups[key].bounds[self.figure]
            if groups[key].ended < fewest(share) or value is None or bounds is None:
                continue
            scatter = spans.scatter(share)
            if isinstance(scatter, Doubt):
                found[key] = scatter
            else:
                found[key] = Evidence.of_one_run(value, bounds, *scatter) or Doubt.NOISE
        return found


def fewest(share: Fraction | None) -> int:
    """Return the minimum number of spans that a group must have so that the noise of a figure of the group is measured.
    `share` is the percentile as a fraction (1/2 is the median), or None for the total."""
    if share is None:
        return FEWEST_SPANS
    return max(FEWEST_SPANS, math.ceil(FEWEST_BEYOND / min(share, 1 - share)))


class Histogram(NamedTuple):
    """Histogram of the durations of one group of spans. `counts` has a row for each block of time and a column for
    each class of durations, in ascending order. `logs` has the logarithm of the middle of each class."""

    counts: Reals
    logs: Reals

    def scatter(self, share: Fraction | None) -> tuple[float, float] | Doubt:
        """Return the variance of the logarithm of a figure among random draws of blocks, and its degrees of freedom.
        The figure is the percentile `share` (a fraction), or the mean if `share` is None. Return `Doubt.FEW` if fewer
        than `FEWEST_BLOCKS` blocks have spans, and `Doubt.NOISE` if the figure of a draw is 0."""
        blocks = self.counts[self.counts.any(axis=1)]
        count = len(blocks)
        if count < FEWEST_BLOCKS:
            return Doubt.FEW
        random = np.random.default_rng(SEED)
        drawn = random.multinomial(count, [1 / count] * count, size=DRAWS) @ blocks
        if share is None:
            with np.errstate(divide="ignore"):
                logs = np.log(drawn @ np.exp(self.logs)) - np.log(drawn.sum(axis=1))
        else:
            logs = self._quantiles(drawn, float(share))
        if not np.isfinite(logs).all():
            return Doubt.NOISE
        of_block = float(logs.var(ddof=1)) * count * count / (count - 1)
        return of_block * LASTING, count - 1.0

    def _quantiles(self, drawn: Reals, share: float) -> Reals:
        """Return the logarithm of a quantile for each random draw of blocks. Assume that durations are evenly
        distributed within each class (range of durations)."""
        sums = drawn.cumsum(axis=1)
        wanted = share * sums[:, -1]
        at = (sums < wanted[:, None]).sum(axis=1)
        draws = np.arange(len(drawn))
        within = 1 - (sums[draws, at] - wanted) / drawn[draws, at]
        logs: Reals = self.logs[at] + (within - 0.5) * math.log(2) / CLASSES
        return logs


def _histograms(
    engine: Engine, window: Window, by: Sequence[GroupKey]
) -> Iterable[tuple[GroupUnit, Histogram]]:
    rows = window.rows
    names = [f"k{at}" for at in range(len(by))]
    keys = ", ".join([*names, "unit"])
    named = "".join(f"{key.sql} AS {name}, " for key, name in zip(by, names, strict=True))
    sql = _COUNTING.format(keys=keys, named=named, spans=MEASURED.format(rows=rows.sql))
    width = len(by) + 1
    for key, counted in groupby(engine.rows(sql, rows.values), lambda row: row[:width]):
        table = np.array([row[width:] for row in counted], dtype=np.int64)
        classes, columns = np.unique(table[:, 1], return_inverse=True)
        counts = np.zeros((BLOCKS, len(classes)))
        counts[table[:, 0], columns] = table[:, 2]
        logs = np.where(classes == NO_LOGARITHM, -math.inf, (classes + 0.5) * math.log(2) / CLASSES)
        yield (key[:-1], key[-1]), Histogram(counts, logs)


_COUNTING = f"""
WITH lengths AS (
  SELECT {{named}}unit, coalesce(time, start)::DOUBLE AS moment,
    CASE WHEN length > 0 THEN floor(log2(length::DOUBLE) * {CLASSES})::INT ELSE {NO_LOGARITHM} END AS class
  FROM ({{spans}}) WHERE length IS NOT NULL AND coalesce(time, start) IS NOT NULL
)
SELECT {{keys}}, least(floor((moment - first) / greatest(last - first, 1) * {BLOCKS}), {BLOCKS - 1})::INT AS block, class,
  count(*)
FROM (
  SELECT *, min(moment) OVER groups AS first, max(moment) OVER groups AS last FROM lengths WINDOW groups AS (PARTITION BY {{keys}})
)
GROUP BY ALL ORDER BY {{keys}}
"""  # noqa: S608 - our own words
"""SQL that counts spans by their keys, by block of time, and by class of durations (a range of durations). A span
without a wall time is assigned to a block by the ticks of its start."""
