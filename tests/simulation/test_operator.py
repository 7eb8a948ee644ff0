"""A start that is refused says what to do, and who does it has a collector again."""

from __future__ import annotations

import pytest

from tailrace.spool.checkpoint import Checkpoints
from tests.simulation import facts
from tests.simulation.facts import Scenario
from tests.simulation.play import Play
from tests.simulation.verdict import judge
from tests.simulation.world import SECOND


def scenario(*rotten_at: int) -> Scenario:
    """Return two programs, and between them a kill after the newest checkpoint has rotten at these seconds."""
    made: list[facts.Fact] = []
    for number, begin in enumerate((0, 50)):
        address = f"a-{number}:1"
        made.append(
            facts.Begin(
                at=begin * SECOND, program=number, transport="raw", address=address, buffer=0
            )
        )
        made += [
            facts.Emit(at=second * SECOND + 1, program=number, stream=1, count=100)
            for second in range(begin, begin + 40)
        ]
    made += [facts.Rot(at=at * SECOND, file="checkpoint", share=at / 60) for at in rotten_at]
    made.append(facts.KillCollector(at=48 * SECOND))
    made.append(facts.StartCollector(at=49 * SECOND))
    made.sort(key=lambda fact: fact.at)
    return Scenario(seed=60092, facts=made, fates={})


def test_an_operator_moves_a_spool_away_that_cannot_be_read_and_later_programs_lack_nothing():
    unreadable = scenario(*range(48))
    play = Play(unreadable)
    play.run()
    assert len(play.collector.moved_away) == 1
    assert judge(unreadable).kind is None
    rows = play.collector.rows
    assert sum(row["name"].startswith("1/") for row in rows if row["kind"] == "span") == 4000


@pytest.mark.parametrize("rotten_at", [(), (39,)])
def test_a_start_that_is_refused_though_a_checkpoint_is_sound_is_told(monkeypatch, rotten_at):
    assert judge(scenario(*rotten_at)).kind is None
    monkeypatch.setattr(Checkpoints, "newest", lambda *_: None)
    assert judge(scenario(*rotten_at)).kind == "a start that is refused too early"
