"""The state of commits on their way: every cell of its tables."""

from __future__ import annotations

from itertools import product

import pytest

from tailrace.daemon.loops.commit import STAGES, CommitPhase, Demand, Move, Pipeline, Stage

FOLLOWING = {
    Stage.IDLE: {Move.BEGIN: Stage.BUSY},
    Stage.BUSY: {Move.REFUSE: Stage.REFUSED, Move.ACCEPT: Stage.BUSY, Move.END: Stage.IDLE},
    Stage.REFUSED: {Move.REFUSE: Stage.REFUSED, Move.ACCEPT: Stage.BUSY},
}


def pipeline(preparing=Stage.IDLE, landing=Stage.IDLE, demand=Demand.NOTHING):
    made = Pipeline()
    for phase, stage in ((CommitPhase.PREPARING, preparing), (CommitPhase.LANDING, landing)):
        for move in [Move.BEGIN] * (stage is not Stage.IDLE) + [Move.REFUSE] * (
            stage is Stage.REFUSED
        ):
            made.move(phase, move)
    made.ask(demand)
    return made


def flags(made):
    """Return the names of the flags that are set."""
    names = ("some", "enough", "due", "idle", "free", "relieved")
    return {name for name in names if getattr(made, name).is_set}


@pytest.mark.parametrize(("phase", "stage", "move"), [*product(CommitPhase, Stage, Move)])
def test_a_move_leads_to_one_stage_or_is_none(phase, stage, move):
    made = pipeline(**{phase.name.lower(): stage})
    assert made.stages[phase] is stage
    other = next(each for each in CommitPhase if each is not phase)
    if (following := FOLLOWING[stage].get(move)) is None:
        assert (stage, move) not in STAGES
        with pytest.raises(KeyError):
            made.move(phase, move)
    else:
        made.move(phase, move)
        assert made.stages == {phase: following, other: Stage.IDLE}


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


@pytest.mark.parametrize(("preparing", "landing"), [*product(Stage, Stage)])
def test_only_a_prepared_commit_is_handed_over_and_only_to_a_free_loop(preparing, landing):
    made = pipeline(preparing, landing)
    waited = []
    made.idle.add(lambda: waited.append("idle"))
    waited.clear()
    if (preparing, landing) == (Stage.BUSY, Stage.IDLE):
        made.hand_over()
        assert made.stages == {CommitPhase.PREPARING: Stage.IDLE, CommitPhase.LANDING: Stage.BUSY}
        assert waited == []  # at no moment nothing was on its way
    else:
        with pytest.raises(KeyError):
            made.hand_over()
