"""Two runs compared: grown, shrunk, new, gone, and what loss leaves undecided."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from tailrace.analysis.bounds import Interval
from tailrace.analysis.comparison import ChangeVerdict, GrowthInterval, changes, summary
from tailrace.analysis.statistics import FIGURES, SpanStatistics


def whole(group, unit):
    return False


def lossy(group, unit):
    return True


WHOLE = (whole, whole)
LOSSY = (lossy, lossy)


intervals = st.tuples(st.integers(0, 1000), st.none() | st.integers(0, 1000)).map(
    lambda ends: ends if ends[1] is None else (min(ends), max(ends))
)


def of(name, value=None, unit="ns", bounds=None):
    """A group in which every figure is the same, and lies between the same bounds."""
    interval = Interval(*bounds) if bounds else None if value is None else Interval(value, value)
    return SpanStatistics(
        (name,), unit, value or 0, 0, *[value] * 8, dict.fromkeys(FIGURES, interval)
    )


@pytest.mark.parametrize("figure", FIGURES)
def test_each_figure_is_compared(figure):
    (change,) = changes([of("n", 100)], [of("n", 150)], figure, WHOLE)
    assert (change.from_, change.to, change.growth, change.word) == (100, 150, 0.5, "+50.0%")


def test_grown_groups_come_first_then_new_then_gone():
    before = [of("gone", 1), of("shrunk", 10), of("same", 5), of("grown", 10), of("lost", None)]
    after = [of("new", 1), of("shrunk", 5), of("same", 5), of("grown", 30), of("lost", 3)]
    found = changes(before, after, "p95", WHOLE)
    assert [(each.group[0], each.word) for each in found] == [
        ("grown", "+200.0%"),
        ("same", "+0.0%"),
        ("shrunk", "-50.0%"),
        ("lost", "unknown"),
        ("new", "new"),
        ("gone", "gone"),
    ]


def test_units_are_never_compared_with_each_other():
    """The group is in both runs, so it is neither new nor gone."""
    found = changes([of("n", 100)], [of("n", 100, "ticks")], "p50", WHOLE)
    assert [(each.word, each.verdict(0)) for each in found] == [("unknown", "unknown")] * 2


def test_growth_from_nothing_is_without_bound_and_none_at_all_is_none():
    assert changes([of("n", 0)], [of("n", 1)], "max", WHOLE)[0].growth == math.inf
    assert changes([of("n", 0)], [of("n", 0)], "max", WHOLE)[0].growth == 0


def test_a_threshold_is_exceeded_by_more_and_never_by_what_is_unknown():
    before = [of("exact", 100), of("over", 100), of("gone", 1), of("lost", None), of("less", 100)]
    after = [of("exact", 110), of("over", 111), of("new", 10**9), of("lost", 10**9), of("less", 89)]
    found = changes(before, after, "p95", WHOLE)
    assert {each.group[0]: each.verdict(0.1) for each in found} == {
        "exact": "same", "over": "grew", "gone": "gone", "new": "new", "lost": "unknown", "less": "shrank",
    }  # fmt: skip
    assert summary(found, 0.1) == "1 grew, 1 new, 1 gone, 1 unknown, 1 shrank"


@pytest.mark.parametrize(
    ("a", "b", "word", "verdict"),
    [
        ((100, 100), (120, 130), "+20.0% to +30.0%", ChangeVerdict.GREW),
        ((10**6, 10**6), (1_200_001, 1_200_002), "+20.0%", ChangeVerdict.GREW),
        ((10**6, 10**6), (999_999, 1_000_001), "+0.0%", ChangeVerdict.SAME),
        ((100, 110), (120, 130), "+9.1% to +30.0%", ChangeVerdict.UNDECIDED),
        ((100, 105), (98, 104), "-6.7% to +4.0%", ChangeVerdict.SAME),
        ((100, 120), (80, 89), "-33.3% to -11.0%", ChangeVerdict.SHRANK),
        ((100, 100), (120, None), "at least +20.0%", ChangeVerdict.GREW),
        ((100, None), (50, 60), "at most -40.0%", ChangeVerdict.SHRANK),
        ((100, None), (100, 100), "at most +0.0%", ChangeVerdict.UNDECIDED),
        ((0, 100), (120, 120), "at least +20.0%", ChangeVerdict.GREW),
        ((0, 100), (50, 50), "at least -50.0%", ChangeVerdict.UNDECIDED),
        ((100, None), (100, None), "cannot be told", ChangeVerdict.UNDECIDED),
        ((None, None), (100, 100), "cannot be told", ChangeVerdict.UNDECIDED),
        ((None, 5), (100, 100), "cannot be told", ChangeVerdict.UNDECIDED),
        ((1, 100), (-50, -50), "cannot be told", ChangeVerdict.UNDECIDED),
    ],
)
def test_a_verdict_holds_for_all_that_bounds_allow(a, b, word, verdict):
    """Growth by more than 10 % is asked for."""
    (found,) = changes([of("n", 1, bounds=a)], [of("n", 1, bounds=b)], "p95", LOSSY)
    assert (found.word, found.verdict(0.1)) == (word, verdict)


def test_a_group_is_new_or_gone_only_beside_a_complete_run():
    for lacks, new, gone in (
        ((whole, whole), "new", "gone"), ((lossy, whole), "undecided", "gone"), ((whole, lossy), "new", "undecided"),
    ):  # fmt: skip
        found = changes([of("gone", 1)], [of("new", 1)], "p95", lacks)
        assert {each.group[0]: each.verdict(0) for each in found} == {"new": new, "gone": gone}
        words = [each.word for each in found]
        assert words == ["cannot be told" if each == "undecided" else each for each in (new, gone)]


@given(a=intervals, b=intervals, threshold=st.sampled_from([0.0, 0.1, 1.0]), data=st.data())
def test_every_pair_of_values_within_the_bounds_has_the_verdict(a, b, threshold, data):
    (found,) = changes([of("n", 1, bounds=a)], [of("n", 1, bounds=b)], "p95", LOSSY)
    before, after = (
        data.draw(st.integers(low, low + 10**6 if high is None else high)) for low, high in (a, b)
    )
    (truth,) = changes([of("n", before)], [of("n", after)], "p95", WHOLE)
    low, high = found.growths or GrowthInterval(None, None)
    assert low is None or low <= truth.growth
    assert high is None or truth.growth <= high
    assert found.verdict(threshold) in (ChangeVerdict.UNDECIDED, truth.verdict(threshold))
