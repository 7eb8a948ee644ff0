"""The state of commits on their way: the flags in every state."""

from __future__ import annotations

from itertools import product

import pytest

from tailrace.daemon.loops.commit import CommitPhase, Demand, Pipeline, Stage


def pipeline(preparing=Stage.IDLE, landing=Stage.IDLE, demand=Demand.NOTHING):
    made = Pipeline()
    made.put({CommitPhase.PREPARING: preparing, CommitPhase.LANDING: landing})
    made.ask(demand)
    return made


def flags(made):
    """Return the names of the flags that are set."""
    names = ("some", "enough", "due", "idle", "free", "relieved")
    return {name for name in names if getattr(made, name).is_set}


@pytest.mark.parametrize(("before", "asked"), [*product(Demand, Demand)])
def test_the_greatest_demand_counts_until_it_is_taken(before, asked):
    made = pipeline(demand=before)
    made.ask(asked)
    assert made.take() is max(before, asked)
    assert made.demand is Demand.NOTHING


@pytest.mark.parametrize(("preparing", "landing", "demand"), [*product(Stage, Stage, Demand)])
def test_the_flags_follow_the_state(preparing, landing, demand):
    idle = preparing is landing is Stage.IDLE
    expected = {
        "some": demand is not Demand.NOTHING,
        "enough": demand in {Demand.FULL, Demand.RELIEF},
        "due": idle or demand in {Demand.FULL, Demand.RELIEF},
        "idle": idle,
        "free": landing is Stage.IDLE,
        "relieved": demand is not Demand.RELIEF,
    }
    found = flags(pipeline(preparing, landing, demand))
    assert found == {name for name, is_set in expected.items() if is_set}


def test_a_prepared_commit_is_handed_over_at_one_moment():
    made = pipeline(preparing=Stage.BUSY)
    waited = []
    made.idle.add(lambda: waited.append("idle"))
    made.hand_over()
    assert made.stages == {CommitPhase.PREPARING: Stage.IDLE, CommitPhase.LANDING: Stage.BUSY}
    assert waited == []  # at no moment nothing was on its way
