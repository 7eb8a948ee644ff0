"""Make scenarios in which clients move between two collectors of one table (`python -m tests.simulation --moves`).

All programs have clients that ask for answers, each at an address of its own. Disks keep everything that was synced, so
everything that was acknowledged to a client is in the log of a collector.
"""

from __future__ import annotations

from random import Random

from tests.simulation import facts, generate
from tests.simulation.facts import Scenario
from tests.simulation.moves import SECOND_NAME
from tests.simulation.network import KEEPALIVE
from tests.simulation.world import MS, SECOND

LIMITS = ({}, {}, {"resume_time": 15.0}, {"gap_rows_max": 2})
"""Limits that scenarios may change. With `resume_time`, a collector forgets a client while it is at the other one."""
AWAY = (20 * MS, SECOND, 5 * SECOND, 20 * SECOND)


def generate_of_moves(seed: int) -> Scenario:
    """Return the scenario of a seed in which clients move."""
    random = Random(f"moves/{seed}")
    made = _programs(random)
    end = max(fact.at for fact in made)
    made += _troubles(random, [f.at for f in made if isinstance(f, facts.Move)], end)
    made.sort(key=lambda fact: fact.at)
    fates = {}
    if random.random() < 0.6:
        fates |= generate._fates(random, generate.LATE)
        others = generate._fates(random, generate.LATE)
        fates |= {f"{SECOND_NAME}/{key}": delays for key, delays in others.items()}
    return Scenario(
        seed=seed,
        facts=made,
        fates=fates,
        queue=random.choice([100_000, 100_000, 50]),
        limits=random.choice(LIMITS),
        segment=random.choice([0, 0, 100, 1448]),
        batch=random.choice([10, 100, 500_000]),
        collectors=2,
    )


def _programs(random: Random) -> list[facts.Fact]:
    made: list[facts.Fact] = []
    at = 0
    for number in range(random.randint(1, 3)):
        begin = at
        made.append(generate.client(random, number, begin))
        made.append(_move(random, begin, number))
        for _ in range(random.randint(1, 4)):
            until = _course(random, made, number, at)
            made += [
                _move(random, random.randrange(at, until + 1), number)
                for _ in range(random.choice([0, 1, 1, 2]))
            ]
            at = until + random.choice([0, MS, SECOND, *AWAY])
            if random.random() < 0.5:
                made.append(facts.Flush(at=at, program=number, seconds=random.choice([0.5, 5.0])))
        if random.random() < 0.7:
            made.append(facts.Close(at=at, program=number, seconds=random.choice([5.0, 15.0])))
            if random.random() < 0.3:
                made.append(_move(random, at + random.randrange(50 * MS), number))
        elif random.random() < 0.7:
            made.append(facts.Kill(at=at, program=number))
        at = random.randrange(begin, at + 1)
    return made


def _course(random: Random, made: list[facts.Fact], program: int, at: int) -> int:
    """Add the events that a program emits, about those between two moves.

    Return the time at which it has emitted them.
    """
    for stream in random.choices([1, 2, 5], k=random.randint(1, 5)):
        count = random.choice([1, 3, 30, 150])
        over = random.choice([0, 0, MS, 30 * MS]) * (1 + count // 30)
        made.append(facts.Emit(at=at, program=program, stream=stream, count=count, over=over))
        at += over + random.choice([1, MS, 50 * MS, SECOND])
    return at


def _move(random: Random, at: int, program: int) -> facts.Move:
    cut = random.choice([None, 0, 0, MS, 300 * MS, 5 * SECOND, KEEPALIVE])
    return facts.Move(at=at, program=program, to=random.choice([0, 1, 1, None]), cut=cut)


def _troubles(random: Random, moves: list[int], end: int) -> list[facts.Fact]:
    """Return faults of the collectors. Most of them happen about when clients move."""
    made: list[facts.Fact] = []

    def times(share: float, most: int) -> list[int]:
        if random.random() > share:
            return []
        near = [max(0, at + random.randrange(-SECOND, SECOND)) for at in moves]
        return random.choices([*near, random.randrange(end + 1)], k=random.randint(1, most))

    for number in range(2):
        for at in times(0.6, 3):
            changes = random.choice([None, None, 0, 1, 3, 10, 50])
            again = at + random.choice([10 * MS, *AWAY])
            made += [
                facts.KillCollector(
                    at=at, collector=number, power=random.random() < 0.4, changes=changes
                ),
                facts.StartCollector(at=again, collector=number),
            ]
        for share, kind in ((0.2, facts.Suspend), (0.15, facts.FullDisk), (0.3, facts.Partition)):
            made += [
                kind(at=at, collector=number, duration=random.choice([50 * MS, *AWAY]))
                for at in times(share, 2)
            ]
        made.append(facts.StartCollector(at=end + 30 * SECOND, collector=number))
    made += [
        facts.TableDown(at=at, duration=random.choice(AWAY), landed=random.random() < 0.5)
        for at in times(0.2, 2)
    ]
    return made
