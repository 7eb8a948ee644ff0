"""The state of commits on their way: the flags in every state."""

from __future__ import annotations

from itertools import product

import pytest

from tailrace.daemon.loops.commit import CommitPhase, Demand, Move, Pipeline, Stage


def pipeline(preparing=Stage.IDLE, landing=Stage.IDLE, demand=Demand.NOTHING):
    made = Pipeline()
    made.stages = {CommitPhase.PREPARING: preparing, CommitPhase.LANDING: landing}
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


AFTER = {
    (Stage.IDLE, Move.BEGIN): Stage.BUSY,
    (Stage.BUSY, Move.REFUSE): Stage.REFUSED,
    (Stage.REFUSED, Move.REFUSE): Stage.REFUSED,
    (Stage.BUSY, Move.ACCEPT): Stage.BUSY,
    (Stage.REFUSED, Move.ACCEPT): Stage.BUSY,
    (Stage.BUSY, Move.END): Stage.IDLE,
}


@pytest.mark.parametrize(("phase", "before", "move"), [*product(CommitPhase, Stage, Move)], ids=str)
def test_a_phase_makes_no_move_that_would_mix_two_commits(phase, before, move):
    made = pipeline(**{phase.name.lower(): before})
    if after := AFTER.get((before, move)):
        made.move({phase: move})
        assert made.stages[phase] is after
        return
    with pytest.raises(AssertionError, match=f"{phase.name}: {move.name} while {before.name}"):
        made.move({phase: move})
    assert made.stages[phase] is before


@pytest.mark.parametrize(("preparing", "landing"), [*product(Stage, Stage)], ids=str)
def test_only_a_prepared_commit_is_handed_over_and_only_if_none_lands(preparing, landing):
    made = pipeline(preparing, landing)
    if preparing is Stage.BUSY and landing is Stage.IDLE:
        made.hand_over()
        return
    with pytest.raises(AssertionError, match="while"):
        made.hand_over()
    assert made.stages == {CommitPhase.PREPARING: preparing, CommitPhase.LANDING: landing}


def test_a_prepared_commit_is_handed_over_at_one_moment():
    made = pipeline(preparing=Stage.BUSY)
    waited = []
    made.idle.add(lambda: waited.append("idle"))
    made.hand_over()
    assert made.stages == {CommitPhase.PREPARING: Stage.IDLE, CommitPhase.LANDING: Stage.BUSY}
    assert waited == []  # at no moment nothing was on its way
