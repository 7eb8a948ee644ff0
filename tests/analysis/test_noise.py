"""Noise: how wide an interval is, how often equal runs alarm, and how small a change is found."""

from __future__ import annotations

import math
import random

import pytest

from tailrace.analysis.blocks import BLOCKS, Histogram
from tailrace.analysis.bounds import Interval
from tailrace.analysis.comparison import ChangeVerdict, Doubt, GrowthInterval, NoisyGrowth, summary
from tailrace.analysis.noise import (
    Evidence,
    RepeatedRuns,
    judged,
    judged_by_runs,
    noisy_growth,
    repeated_changes,
    student,
)
from tailrace.analysis.statistics import FIGURES, PERCENTILES, SpanStatistics

ALARMS = (ChangeVerdict.GREW, ChangeVerdict.SHRANK)


def group(name, value, bounds=None):
    """A group in which every figure is the same."""
    interval = Interval(*(bounds or (value, value)))
    return SpanStatistics((name,), "ns", value, 0, *[value] * 8, dict.fromkeys(FIGURES, interval))


def side(*runs, lacks=False):
    return RepeatedRuns(runs, [lambda *_: lacks] * len(runs))


def of(*values, bounds=()):
    """Repeated runs with one group."""
    return side(*([group("n", value, dict(bounds).get(at))] for at, value in enumerate(values)))


def compare(a, b, figure="p50"):
    return judged_by_runs(repeated_changes(a, b, figure), a, b, figure)


@pytest.mark.parametrize(
    ("freedom", "error", "t"),
    [(1, 0.01, 63.657), (2, 1e-6, 1000), (4, 0.001, 8.610), (8, 0.01, 3.355), (30, 0.001, 3.646)],
)
def test_the_quantiles_are_those_of_student(freedom, error, t):
    assert student(freedom, error) == pytest.approx(t, rel=2e-3)


def test_the_interval_is_that_of_welch():
    a, b = [math.exp(x) for x in (5.0, 5.1, 5.2)], [math.exp(x) for x in (5.4, 5.8, 5.6, 5.8)]
    one, other = (Evidence.of_runs(side, [Interval(x, x) for x in side]) for side in (a, b))
    found = noisy_growth(one, other, 0.05)
    # By hand: variances .01 and .0367, standard error .1118, 4.65 degrees of freedom, t 2.63.
    assert [math.log1p(end) for end in found.whole] == pytest.approx([0.256, 0.844], abs=2e-3)
    assert found.stored == found.whole


def noisy(rng, names, sd, slower=1.0):
    """A run of a machine that is slower at times: a part of the noise is common to all names."""
    common = rng.gauss(0, sd)
    return [
        group(f"n{at}", round(1e6 * slower * math.exp(common + rng.gauss(0, sd)))) for at in range(names)
    ]  # fmt: skip


def test_equal_runs_alarm_in_one_comparison_of_a_hundred_at_most():
    """One percent of 200 is 2; more than 6 would happen once in 220 times."""
    rng = random.Random(1)
    alarms = 0
    for _ in range(300):
        a, b = (
            side(*(noisy(rng, 6, rng.choice([0.001, 0.01, 0.1])) for _ in range(5))) for _ in "ab"
        )
        alarms += any(each.verdict(0) in ALARMS for each in compare(a, b))
    assert alarms <= 6


@pytest.mark.parametrize(("sd", "least", "most"), [(0.0025, 98, 100), (0.02, 0, 20)])
def test_three_percent_is_found_where_noise_is_small_and_undecided_where_it_is_not(sd, least, most):
    rng = random.Random(2)
    found = 0
    for _ in range(100):
        a, b = (side(*(noisy(rng, 6, sd, slower) for _ in range(5))) for slower in (1, 1.03))
        verdicts = [each.verdict(0) for each in compare(a, b)]
        assert ChangeVerdict.SHRANK not in verdicts
        found += ChangeVerdict.GREW in verdicts
    assert least <= found <= most


def test_same_is_proved():
    a, b = of(1000, 1002, 998, 1001), of(1001, 999, 1003, 1000)
    (found,) = compare(a, b)
    assert (found.verdict(0.05), found.doubt(0.05)) == ("same", None)
    assert (found.verdict(0.001), found.doubt(0.001)) == ("undecided", Doubt.NOISE)
    assert summary([found], 0.001) == "1 undecided because of noise"


def test_equal_values_are_the_same_and_rounded_ones_prove_little():
    """A clock with a step of 1000 ns: the runs lie between 5 and 6 steps."""
    (found,) = compare(of(5000, 5000, 5000), of(5000, 5000, 5000))
    assert found.verdict(0) == "same"
    (found,) = compare(of(5000, 5000, 5000), of(6000, 6000, 6000))
    assert found.doubt(0) is Doubt.NOISE
    (found,) = compare(of(5000, 5000, 5000), of(6000, 6000, 6000), "count")
    assert found.growths == pytest.approx((0.2, 0.2))


def test_a_value_without_a_logarithm_is_undecided():
    (found,) = compare(of(0, 0), of(0, 1))
    assert found.doubt(1) is Doubt.NOISE


def test_missing_events_widen_the_interval_to_the_worst_case():
    """Whatever the missing spans were, the interval of the true runs lies within the whole interval."""
    rng = random.Random(3)
    for _ in range(40):
        seen = [[rng.randrange(900, 1100) for _ in range(4)] for _ in "ab"]
        true = [[value + rng.choice([0, -100, 100]) for value in values] for values in seen]
        bounds = [{1: (v[1] - 100, v[1] + 100), 2: (v[2] - 100, v[2] + 100)} for v in seen]
        true = [
            [value if at in (1, 2) else seen[s][at] for at, value in enumerate(values)]
            for s, values in enumerate(true)
        ]  # fmt: skip
        (whole,) = compare(*(of(*v, bounds=b) for v, b in zip(seen, bounds, strict=True)))
        (truth,) = compare(*(of(*values) for values in true))
        assert whole.growths.low <= truth.growths.low
        assert truth.growths.high <= whole.growths.high


@pytest.mark.parametrize(
    ("stored", "whole", "doubt"),
    [
        ((0.02, 0.04), (-0.01, 0.07), Doubt.LOSS),
        ((-0.02, 0.04), (-0.03, 0.05), Doubt.NOISE),
        ((-0.02, 0.04), (-0.5, 0.5), Doubt.LOSS),
        ((-0.02, 0.04), (-1.0, None), Doubt.LOSS),
    ],
)
def test_the_reason_is_the_one_without_which_the_answer_would_be_nearest(stored, whole, doubt):
    growth = NoisyGrowth(GrowthInterval(*stored), GrowthInterval(*whole))
    assert growth.undecided_by(0) is doubt


def test_a_group_that_every_run_of_one_side_has_is_new_and_one_of_some_runs_is_not():
    steady = [group("n", 100)]
    a = side(steady, steady)
    new, rare = [*steady, group("new", 5)], [*steady, group("new", 5), group("rare", 5)]
    found = {each.group[0]: each for each in compare(a, side(new, rare))}
    assert (found["new"].verdict(0), found["rare"].doubt(0)) == ("new", Doubt.SOME)
    found = {each.group[0]: each for each in compare(a, side(new, rare, lacks=True))}
    assert (found["new"].verdict(0), found["rare"].doubt(0)) == ("new", Doubt.LOSS)


@pytest.mark.parametrize("doubt", [Doubt.NOISE, Doubt.FEW])
def test_a_new_group_is_new_however_little_is_known_of_its_noise(doubt):
    found = repeated_changes(side([]), side([group("new", 5)]), "max")
    (found,) = judged(found, {}, {(("new",), "ns"): doubt})
    assert found.verdict(0) == "new"


@pytest.mark.parametrize("share", [PERCENTILES["p50"], PERCENTILES["p95"], None])
def test_blocks_that_differ_show_more_noise_than_blocks_alike(share):
    """All blocks have 10 spans in each of four classes, or each block has all of its spans in one class."""
    import numpy as np

    logs = np.array([1.0, 1.1, 1.2, 1.3])
    alike, different = np.full((BLOCKS, 4), 10.0), np.tile(np.eye(4) * 40, (BLOCKS // 4, 1))
    variance, freedom = Histogram(alike, logs).scatter(share)
    assert (variance, freedom) == (pytest.approx(0, abs=1e-20), BLOCKS - 1)
    assert Histogram(different, logs).scatter(share)[0] > 1e-3
    assert Histogram(different, logs).scatter(share) == Histogram(different, logs).scatter(share)
    assert Histogram(different[:5], logs).scatter(share) is Doubt.FEW
    logs[0] = -math.inf  # Half of the blocks have only durations of 0
    halves = np.tile(np.array([[40.0, 0, 0, 0], [0, 40, 0, 0]]), (BLOCKS // 2, 1))
    assert Histogram(halves[[0] * BLOCKS], logs).scatter(share) is Doubt.NOISE
    found = Histogram(halves, logs).scatter(share)
    assert found is Doubt.NOISE if share == PERCENTILES["p50"] else math.isfinite(found[0])
