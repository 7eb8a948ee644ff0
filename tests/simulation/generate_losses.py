"""Make scenarios in which another program takes names of the running collector's files away (`python -m
tests.simulation --names`).

The collector is neither killed nor does it lack memory in them: after a loss of the spool, some data exists only in
memory, and a kill would lose it (ARCHITECTURE.md, "Blind spots"). All programs have clients. Only names may be lost for
good. So a table that does not answer must answer again before a stop gives up.
"""

from __future__ import annotations

from random import Random

import msgspec

from tests.simulation import facts, generate
from tests.simulation.facts import Scenario
from tests.simulation.losses import DOWN_MOST, SUSPENDED_MOST
from tests.simulation.world import MS, SECOND

HARMLESS = ("lock", "store-lock", "spare")
FATAL = ("segment", "closed", "spool", "store")
APART = 40 * SECOND
"""Minimum time (ns) between two losses.

It is longer than the time until the next start has received all data that waited.
"""


def generate_of_losses(seed: int) -> Scenario:
    """Return the scenario of a seed in which names are lost."""
    random = Random(f"losses/{seed}")
    made = _programs(random)
    asked = [fact.at for fact in made if isinstance(fact, facts.Flush)]
    end = max(fact.at for fact in made)
    at = 0
    for _ in range(random.choice([1, 1, 2, 3])):
        later = [each for each in asked if each >= at] or [random.randrange(at, max(end, at) + 1)]
        at = random.choice(later) + random.choice([0, MS, 20 * MS, 200 * MS, SECOND])
        made += _loss(random, at)
        at += APART
    calls = Random(f"losses/calls/{seed}")
    if calls.random() < 0.3:
        made = [_at_a_call(fact, calls) for fact in made]
    made.sort(key=lambda fact: fact.at)
    return Scenario(
        seed=seed,
        facts=made,
        fates={} if random.random() < 0.5 else generate._fates(random, generate.LATE),
        segment=random.choice([0, 0, 100, 1448]),
        batch=random.choice([10, 100, 500_000]),
    )


def _programs(random: Random) -> list[facts.Fact]:
    made: list[facts.Fact] = []
    at = 0
    for number in range(random.randint(1, 4)):
        begin = at
        made.append(generate.client(random, number, begin))
        for _ in range(random.randint(1, 3)):
            at = generate._course(random, made, number, at, phases=4)
            made.append(facts.Flush(at=at, program=number, seconds=random.choice([0.5, 3.0])))
            at += random.choice([MS, SECOND, 5 * SECOND, APART])
        made.append(facts.Close(at=at, program=number, seconds=random.choice([5.0, 15.0])))
        at = random.randrange(begin, at + 1)
    return made


def _at_a_call(fact: facts.Fact, random: Random) -> facts.Fact:
    """Let a loss happen between two calls of the collector to its disk."""
    if not isinstance(fact, facts.LoseName):
        return fact
    return msgspec.structs.replace(fact, call=random.randint(1, 60))


def _loss(random: Random, at: int) -> list[facts.Fact]:
    """Return a loss, and other faults at the same time."""
    what = random.choice(HARMLESS if random.random() < 0.3 else FATAL)
    how = random.choice(["removed", "renamed", "replaced"])
    undone = how != "removed" and what in FATAL and random.random() < 0.4
    beside = what in HARMLESS and random.random() < 0.7
    made: list[facts.Fact] = [
        facts.LoseName(at=at, what=what, how=how, undone=undone, beside=beside)
    ]
    before = max(0, at - random.choice([0, 100 * MS, 2 * SECOND]))
    if random.random() < 0.3:
        down = random.choice([SECOND, 4 * SECOND, DOWN_MOST])
        made.append(facts.TableDown(at=before, duration=down, landed=random.random() < 0.5))
    if random.random() < 0.2:
        pause = random.choice([50 * MS, SECOND, SUSPENDED_MOST])
        made.append(facts.Suspend(at=before, duration=pause))
    return made
