"""Compare the spans of two runs, group by group, and state what is certain although events are missing.

If a run lacks spans, each of its figures is an interval (see `bounds`), and so is the growth from run A to run B. A
verdict must hold for this whole interval; otherwise it is `undecided`. Runs of one program differ even if nothing
has changed: `noise` measures by how much, and widens the interval (`NoisyGrowth`). Without it, a verdict only states
how these two runs differ."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from tailrace.analysis.bounds import Interval, range_words
from tailrace.analysis.durations import GroupValues
from tailrace.analysis.losses import Losses
from tailrace.analysis.statistics import GroupKey, SpanStatistics

if TYPE_CHECKING:
    from tailrace.query.completeness import Completeness, Window
    from tailrace.query.engine import Engine


Lacks = Callable[[GroupValues, str], bool]


def may_lack(engine: Engine, window: Window, by: Sequence[GroupKey], whole: Completeness) -> Lacks:
    """Return a function that takes a group of spans and a unit (ns or ticks), and returns whether spans of this group
    may be missing from the window. The returned function reads the gaps at its first call. `whole` is the completeness
    of the window."""
    losses: list[Losses] = []

    def lacks(group: GroupValues, unit: str) -> bool:
        if not losses:
            losses.append(Losses(engine, window, [key.word for key in by], whole))
        return not whole.selected or losses[0].of(group, unit) != 0

    return lacks


class ChangeVerdict(StrEnum):
    """How one figure of a group of spans, such as the mean duration, differs between run A and run B."""

    GREW = "grew"
    """The figure grew by more than the threshold."""
    SHRANK = "shrank"
    """The figure shrank by more than the threshold."""
    SAME = "same"
    """The figure changed by at most the threshold."""
    UNDECIDED = "undecided"
    """The data allow more than one verdict; `Doubt` has the reasons."""
    NEW = "new"
    """Only run B has spans of the compared group."""
    GONE = "gone"
    """Only run A has spans of the compared group."""
    UNKNOWN = "unknown"
    """The durations of the compared spans are unknown in one of the runs, or have different units in the two runs."""


class Doubt(StrEnum):
    """Why the verdict about a group of spans is undecided."""

    LOSS = "loss"
    """Missing events leave more than one verdict possible."""
    NOISE = "noise"
    """The runs vary so much that there would be no verdict even if no event were missing."""
    FEW = "few spans"
    """Each side of the comparison has a single run, and one of the runs has too few spans of the compared group to show
    how much the figure varies."""
    SOME = "some runs"
    """One side of the comparison has several runs, and only some of these runs have spans of the compared group."""

    @property
    def words(self) -> str:
        return "only some runs have it" if self is Doubt.SOME else f"because of {self}"


FAILURES = (ChangeVerdict.GREW, ChangeVerdict.NEW, ChangeVerdict.GONE, ChangeVerdict.UNKNOWN)
"""Verdicts that make a comparison with a threshold fail, in the order in which a summary lists them."""


class GrowthInterval(NamedTuple):
    """The least and the greatest relative growth that a figure can have (0.1 is 10 percent more), or None where there
    is no bound."""

    low: float | None
    high: float | None

    @property
    def words(self) -> str:
        """Return the interval as text, such as `+20.0%`, `+3.1% to +8.0%` or `cannot be told`."""
        # The `z` turns -0.0%, a rounded decrease, into +0.0%.
        low = None if self.low is None or self.low <= -1 else f"{self.low:+z.1%}"
        high = None if self.high is None else f"{self.high:+z.1%}"
        return range_words(low, high, f"{low} to {high}")

    @property
    def width(self) -> float:
        """Return the logarithm of (1 + greatest growth) / (1 + least growth), or infinity."""
        if self.low is None or self.low <= -1 or self.high is None or math.isinf(self.high):
            return math.inf
        return math.log1p(self.high) - math.log1p(self.low)

    def verdict(self, threshold: float) -> ChangeVerdict:
        """Return the verdict that holds for every growth in this interval. A growth up to `threshold` is `same`."""
        low, high = self
        if low is not None and low > threshold:
            return ChangeVerdict.GREW
        if high is not None and high < -threshold:
            return ChangeVerdict.SHRANK
        within = low is not None and low >= -threshold and high is not None and high <= threshold
        return ChangeVerdict.SAME if within else ChangeVerdict.UNDECIDED


ANY_GROWTH = GrowthInterval(None, None)


class NoisyGrowth(NamedTuple):
    """The growth of a figure between two runs, as two intervals that allow for noise: from the stored spans alone,
    and with an allowance for missing events. If noise could not be measured, `doubt` is the reason."""

    stored: GrowthInterval = ANY_GROWTH
    whole: GrowthInterval = ANY_GROWTH
    doubt: Doubt | None = None

    def undecided_by(self, threshold: float) -> Doubt:
        """Return why this growth allows no verdict: the attribute `doubt` if it is set; `Doubt.LOSS` if the stored
        spans alone would allow a verdict, or if missing events widen the interval more than noise does; else
        `Doubt.NOISE`."""
        if self.doubt is not None:
            return self.doubt
        if self.stored.verdict(threshold) is not ChangeVerdict.UNDECIDED:
            return Doubt.LOSS
        return Doubt.LOSS if self.whole.width > 2 * self.stored.width else Doubt.NOISE


class FigureChange(NamedTuple):
    """The change of one figure of a group of spans between two runs. Figures of repeated runs are geometric means."""

    group: GroupValues
    unit: str
    before: SpanStatistics | None
    after: SpanStatistics | None
    figure: str
    """Name of the compared figure, a key of `FIGURES`."""
    absent: bool
    """Whether one run has no span of the compared group, and cannot have lost a span of this group either."""
    elsewhere: bool
    """Whether one run has durations of the compared group, but only in the other unit (`ns` or `ticks`), not in
    `unit`."""
    noise: NoisyGrowth | None = None
    """The growth with an allowance for noise, or None if noise is ignored."""

    @property
    def from_(self) -> int | None:
        return self.before and self.before.value(self.figure)

    @property
    def to(self) -> int | None:
        return self.after and self.after.value(self.figure)

    @property
    def bounds(self) -> tuple[Interval | None, Interval | None]:
        """Return the intervals in which the true value of `figure` lies, for the first and the second run, or None."""
        before, after = (side and side.bounds[self.figure] for side in (self.before, self.after))
        return before, after

    @property
    def growth(self) -> float | None:
        """Return the relative growth of `figure` in the stored spans, or None. The growth from 0 is infinite."""
        if self.from_ is None or self.to is None:
            return None
        return _growth(self.from_, self.to)

    @property
    def growths(self) -> GrowthInterval | None:
        """Return the interval in which the true relative growth of `figure` lies, or None if a run lacks the figure."""
        before, after = self.bounds
        if before is None or after is None:
            return None
        if self.noise is not None:
            return self.noise.whole
        if before.is_point and after.is_point:
            return GrowthInterval(self.growth, self.growth)
        if before.low is None or before.low < 0 or after.low is None or after.low < 0:
            return ANY_GROWTH
        # If the figure of the first run may be 0, the relative growth has no upper bound. Here, the lower bounds of
        # both runs are at least 0.
        low = -1.0 if before.high is None else _growth(before.high, after.low)
        high = None if after.high is None or before.low == 0 else _growth(before.low, after.high)
        return GrowthInterval(low, high)

    @property
    def word(self) -> str:
        """Return the change of the figure as text: percentages, `new`, `gone`, `unknown`, or `cannot be told`."""
        growths = self.growths
        if growths is not None:
            return growths.words
        # Without durations in both runs, no verdict depends on the threshold.
        verdict = self.verdict(0)
        return ANY_GROWTH.words if verdict is ChangeVerdict.UNDECIDED else verdict

    def verdict(self, threshold: float) -> ChangeVerdict:
        """Return how the figure differs between the runs. A change up to `threshold` (0.1 is 10 percent) is `same`."""
        if self.elsewhere:
            return ChangeVerdict.UNKNOWN
        if self.before is None or self.after is None:
            verdict = ChangeVerdict.NEW if self.before is None else ChangeVerdict.GONE
            certain = self.absent and self.noise is None
            return verdict if certain else ChangeVerdict.UNDECIDED
        growths = self.growths
        return ChangeVerdict.UNKNOWN if growths is None else growths.verdict(threshold)

    def doubt(self, threshold: float) -> Doubt | None:
        """Return why the verdict is `undecided`, or None for any other verdict."""
        if self.verdict(threshold) is not ChangeVerdict.UNDECIDED:
            return None
        return Doubt.LOSS if self.noise is None else self.noise.undecided_by(threshold)


def changes(
    before: Iterable[SpanStatistics],
    after: Iterable[SpanStatistics],
    figure: str,
    lacks: tuple[Lacks, Lacks],
) -> list[FigureChange]:
    """Return the changes of a figure for all groups of spans in two runs, by descending growth. Groups with spans in
    only one of the runs come last. `lacks` has, for each run, a function that `may_lack` returned."""
    first = {(each.group, each.unit): each for each in before}
    second = {(each.group, each.unit): each for each in after}
    found = []
    for group, unit in {**first, **second}:
        one, other = first.get((group, unit)), second.get((group, unit))
        absent = elsewhere = False
        if one is None or other is None:
            side, has = (first, lacks[0]) if one is None else (second, lacks[1])
            elsewhere = any((group, each) in side for each in ("ns", "ticks"))
            absent = not has(group, unit)
        found.append(FigureChange(group, unit, one, other, figure, absent, elsewhere))

    def rank(change: FigureChange) -> tuple[int, float, str]:
        place = 2 if change.before is None else 3 if change.after is None else 0
        growth = change.growth
        return (place or (growth is None), -(growth or 0.0), str(change.group))

    return sorted(found, key=rank)


def verdict_counts(found: Sequence[FigureChange], threshold: float) -> dict[str, int]:
    """Count the compared groups of spans by verdict."""
    return dict(Counter(each.verdict(threshold).value for each in found))


def summary(found: Sequence[FigureChange], threshold: float) -> str:
    """Return a text that counts the compared groups of spans by verdict, and the undecided ones by reason. Leave out
    the verdict `same`."""
    counts = verdict_counts(found, threshold)
    shown = [
        f"{counts[each]} {each}" for each in (*FAILURES, ChangeVerdict.SHRANK) if each in counts
    ]
    doubts = Counter(each.doubt(threshold) for each in found)
    shown += [f"{doubts[doubt]} undecided {doubt.words}" for doubt in Doubt if doubts[doubt]]
    return ", ".join(shown)


def _growth(before: int, after: int) -> float:
    if before == after:
        return 0.0
    return (after - before) / abs(before) if before else math.inf
