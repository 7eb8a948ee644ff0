"""The virtual clock: order, waiting, killing."""

from __future__ import annotations

import pytest

from tests.simulation.world import MS, SECOND, World


@pytest.fixture
def world():
    world = World(0)
    yield world
    world.close()


def test_time_passes_while_all_wait_and_processes_take_turns(world):
    said = []

    def say(name, pause):
        for _ in range(3):
            world.sleep(pause)
            said.append((name, world.age // MS))

    world.spawn(lambda: say("a", 10 * MS))
    world.spawn(lambda: say("b", 17 * MS))
    world.run(SECOND)
    assert said == [("a", 10), ("b", 17), ("a", 20), ("a", 30), ("b", 34), ("b", 51)]
    assert world.age // MS == 1000


def test_a_wait_ends_when_its_condition_comes_true(world):
    ready, waited = [], []

    def wait():
        world.wait(SECOND, lambda: bool(ready))
        waited.append(world.age // MS)
        world.wait(SECOND, lambda: len(ready) > 1)
        waited.append(world.age // MS)

    world.spawn(wait)
    world.after(100 * MS, lambda: ready.append(1))
    world.run(5 * SECOND)
    assert waited == [100, 1100]


def test_a_killed_group_takes_no_more_steps(world):
    steps = []

    def run():
        world.spawn(lambda: (world.sleep(2 * MS), steps.append("thread")))
        steps.append("run")
        world.sleep(5 * MS)
        steps.append("never")

    world.spawn(run, "group")
    world.after(MS, lambda: world.kill("group"))
    world.run(SECOND)
    assert steps == ["run"]


def test_what_a_process_raises_is_raised_by_the_world(world):
    def fail():
        world.sleep(MS)
        raise ZeroDivisionError

    world.spawn(fail)
    with pytest.raises(ZeroDivisionError):
        world.run(SECOND)
