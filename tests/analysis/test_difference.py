"""Two runs compared: grown, shrunk, new, gone, and what cannot be said."""

from __future__ import annotations

import math

import pytest

from tailrace.analysis.statistics import FIGURES, SpanStatistics, changes, exceeding


def of(name, value=None, unit="ns"):
    """A group in which every figure is the same."""
    return SpanStatistics((name,), unit, value or 0, 0, *[value] * 8, {})


@pytest.mark.parametrize("figure", FIGURES)
def test_each_figure_is_compared(figure):
    (change,) = changes([of("n", 100)], [of("n", 150)], figure)
    assert (change.from_, change.to, change.growth, change.word) == (100, 150, 0.5, "+50.0%")


def test_grown_groups_come_first_then_new_then_gone():
    before = [of("gone", 1), of("shrunk", 10), of("same", 5), of("grown", 10), of("lost", None)]
    after = [of("new", 1), of("shrunk", 5), of("same", 5), of("grown", 30), of("lost", 3)]
    found = changes(before, after, "p95")
    assert [(each.group[0], each.word) for each in found] == [
        ("grown", "+200.0%"),
        ("same", "+0.0%"),
        ("shrunk", "-50.0%"),
        ("lost", "unknown"),
        ("new", "new"),
        ("gone", "gone"),
    ]


def test_units_are_never_compared_with_each_other():
    found = changes([of("n", 100)], [of("n", 100, "ticks")], "p50")
    assert sorted(each.word for each in found) == ["gone", "new"]


def test_growth_from_nothing_is_without_bound_and_none_at_all_is_none():
    assert changes([of("n", 0)], [of("n", 1)], "max")[0].growth == math.inf
    assert changes([of("n", 0)], [of("n", 0)], "max")[0].growth == 0


def test_a_threshold_is_exceeded_by_more_and_never_by_what_is_unknown():
    before = [of("exact", 100), of("over", 100), of("gone", 1), of("lost", None)]
    after = [of("exact", 110), of("over", 111), of("new", 10**9), of("lost", 10**9)]
    found = exceeding(changes(before, after, "p95"), 0.1)
    assert [each.group for each in found] == [("over",)]
