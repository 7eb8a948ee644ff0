"""Shrinking keeps what fails, and a scenario survives its file."""

from __future__ import annotations

from tests.simulation import facts
from tests.simulation.facts import Scenario, decode, encode
from tests.simulation.generate import generate
from tests.simulation.shrink import shrink


def test_a_scenario_is_the_same_after_its_file():
    for seed in range(20):
        assert decode(encode(generate(seed))) == generate(seed)


def test_what_the_failure_does_not_need_is_left_out():
    scenario = generate(1)

    def fails(smaller: Scenario) -> bool:
        kills = [fact for fact in smaller.facts if isinstance(fact, facts.Kill | facts.Close)]
        emits = [f for f in smaller.facts if isinstance(f, facts.Emit) and f.count >= 3]
        return bool(kills and emits) and "up/7" in smaller.fates

    scenario.fates["up/7"] = []
    small = shrink(scenario, fails)
    assert len(small.facts) == 2
    assert small.fates == {"up/7": []}
    assert next(f.count for f in small.facts if isinstance(f, facts.Emit)) < 6
