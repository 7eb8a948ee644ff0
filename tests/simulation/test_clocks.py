"""Clocks that are set and drift; and what the collector's rows then say."""

from __future__ import annotations

import pytest

from tests.simulation import facts, oracle_clocks
from tests.simulation.clocks import HostClock, HostTime
from tests.simulation.facts import Scenario
from tests.simulation.play import Play
from tests.simulation.violation import Violation
from tests.simulation.world import BEGIN, MS, SECOND, World


@pytest.fixture
def world():
    world = World(0)
    yield world
    world.close()


def test_a_wall_clock_is_set_and_goes_at_its_own_pace(world):
    clock = HostClock(world)
    clock.step(-5 * SECOND)
    clock.run(1000)
    world.run(10 * SECOND)
    assert abs(clock.ahead - (-5 * SECOND + 10 * MS)) < MS
    clock.run(0)
    world.run(10 * SECOND)
    assert abs(clock.ahead - (-5 * SECOND + 10 * MS)) < MS
    assert abs(clock.monotonic() - 20) < 0.001


@pytest.mark.parametrize("pace", [0, 200, -200])
def test_no_two_readings_of_a_programs_clocks_are_equal(world, pace):
    time = HostTime(world, SECOND, pace)
    readings = [time.monotonic_ns() for _ in range(20_000)]
    assert len(set(readings)) == len(readings)
    assert abs(time.time_ns() - BEGIN - SECOND) < MS


def test_rows_follow_a_clock_that_is_set_also_while_nobody_runs():
    """The oracle knows the collector's wall clock at each beginning of a session."""
    hour = 3600 * SECOND
    made = [
        facts.Begin(at=0, program=0, transport="heph-tcp", address="a:1", buffer=0),
        facts.Emit(at=MS, program=0, stream=1, count=3),
        facts.SetClock(at=3 * SECOND, by=hour),
        facts.Begin(at=6 * SECOND, program=1, transport="heph-tcp", address="b:1", buffer=0),
        facts.Emit(at=7 * SECOND, program=1, stream=1, count=3),
        facts.KillCollector(at=8 * SECOND),
        facts.SetClock(at=9 * SECOND, by=-3 * hour),
        facts.StartCollector(at=10 * SECOND),
        facts.Emit(at=11 * SECOND, program=1, stream=1, count=3),
    ]
    play = Play(Scenario(seed=0, facts=made, fates={}))
    play.run()
    oracle_clocks.check(play)
    opened = [row for row in play.collector.rows if row["name"] == "open"]
    hours = [round((row["time"] - BEGIN) / hour) for row in opened]
    assert hours == [0, 1, -2]
    opened[1]["time"] -= SECOND
    with pytest.raises(Violation, match="another wall time"):
        oracle_clocks.check(play)
