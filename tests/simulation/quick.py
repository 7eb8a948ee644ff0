"""Make programs that replace each other at one address within about a second.

Datagrams of two or three of them are on their way at the same time. The collector has little more than clocks and the
clients' packets to find out whose a datagram is.
"""

from __future__ import annotations

from random import Random

from tests.simulation import facts
from tests.simulation.world import MS, SECOND

LIFE = 100 * MS
"""Minimum time (ns) for which a program lives before another one gets its address."""


def programs(random: Random) -> list[facts.Fact]:
    """Return the facts of some programs, one after the other."""
    made: list[facts.Fact] = []
    transport = random.choice(["udp", "udp", "raw"])
    at = 0
    for number in range(random.randint(2, 5)):
        begin = at
        made.append(
            facts.Begin(
                at=at,
                program=number,
                transport=transport,
                address=f"{transport}:1",
                buffer=random.choice([2**15, 2**22]),
                introduced=transport == "raw",
            )
        )
        for _ in range(random.randint(1, 6)):
            stream, count = random.choice([1, 2, 3]), random.choice([1, 3, 30, 150, 400])
            over = random.choice([0, 0, MS, 30 * MS])
            made.append(facts.Emit(at=at, program=number, stream=stream, count=count, over=over))
            at += random.choice([1, MS, 50 * MS, 200 * MS, 500 * MS])
        if transport == "udp" and random.random() < 0.3:
            made.append(facts.Flush(at=at, program=number, seconds=3.0))
        at = max(at + random.choice([0, 0, MS, 100 * MS, 600 * MS]), begin + LIFE)
        if transport == "udp" and random.random() < 0.3:
            made.append(facts.Close(at=at, program=number, seconds=5.0))
            at += random.choice([1, 10 * MS, 100 * MS, 300 * MS, SECOND])
        else:
            made.append(facts.Kill(at=at, program=number))
        at += random.choice([0, 0, 0, 10 * MS, 300 * MS])
    return made
