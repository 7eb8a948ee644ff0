"""Make courses of events in which defects were found that have been mended: connections that break at their end,
programs that follow each other at one address, late copies, and connections that the collector closes while bytes wait
in its kernel.
"""

from __future__ import annotations

from random import Random

from tests.simulation import facts
from tests.simulation.facts import Scenario
from tests.simulation.generate_wire import PROGRAMS
from tests.simulation.world import MS, SECOND

LIFE, QUIET = 500 * MS, 5 * MS
"""The same as in `generate`: the minimum time for which a program lives, and for which it is silent after its first
datagram.
"""

Drawn = tuple[list[facts.Fact], dict[str, list[int]]]
"""The facts and the fates of datagrams that were drawn."""


def quick_ends(random: Random) -> Drawn:
    """Return programs whose connection breaks while they send their goodbye."""
    made: list[facts.Fact] = []
    for program in range(random.randint(2, 5)):
        at = random.randrange(3 * SECOND)
        begin = facts.Begin(
            at=at, program=program, transport="tcp", address=f"tcp-{program}:1", buffer=2**20
        )
        emit = facts.Emit(at=at + MS, program=program, stream=1, count=random.choice([1, 30, 600]))
        flush = facts.Flush(at=at + 2 * MS, program=program, seconds=3.0)
        end = at + random.choice([SECOND, 4 * SECOND])
        close = facts.Close(at=end, program=program, seconds=15.0)
        reset = facts.Reset(at=end + random.randrange(2 * MS), program=program)
        made += [begin, emit, flush, close, reset]
    return made, {}


def speechless(random: Random) -> Drawn:
    """Return programs that follow each other at one address.

    The first packets of the first program are lost; those of the next one are sent in a datagram of their own.
    """
    made: list[facts.Fact] = []
    at = 0
    for program in range(2):
        made.append(
            facts.Begin(
                at=at, program=program, transport="raw", address="raw:1", buffer=0, alone=True
            )
        )
        begin, at = at, at + QUIET
        made.append(facts.Emit(at=at, program=program, stream=1, count=1))
        pause = random.choice([MS, 20 * MS, 300 * MS]) * (program + 1)
        for _ in range(random.randint(2, 6)):
            at += pause
            count = random.choice([1, 10, 60])
            made.append(facts.Emit(at=at, program=program, stream=1, count=count))
        at = max(at, begin + LIFE) + random.choice([0, SECOND, 5 * SECOND])
    return made, {"up/0": []}


def late_copies(random: Random) -> Drawn:
    """Return two programs at one address. Copies of datagrams that the first program sent long before arrive after the
    second one has begun.

    No copy is later than the time between the beginnings of the programs. Otherwise it would be unknown whose copy it
    is.
    """
    address, count = "raw:1", random.choice([900, 1500])
    apart, burst = 1500 * MS, 900 * MS
    made: list[facts.Fact] = [
        facts.Begin(at=0, program=0, transport="raw", address=address, buffer=0, introduced=True),
        facts.Emit(at=0, program=0, stream=1, count=1),
        facts.Emit(at=burst, program=0, stream=1, count=count, over=random.choice([0, 300 * MS])),
        facts.Begin(
            at=apart, program=1, transport="raw", address=address, buffer=0, introduced=True
        ),
        facts.Emit(at=apart + MS, program=1, stream=1, count=1),
    ]
    at = apart + QUIET
    for _ in range(random.randint(2, 10)):
        at += random.choice([MS, 50 * MS, 200 * MS])
        made.append(facts.Emit(at=at, program=1, stream=1, count=random.choice([1, 10, 60])))
    fates = {}
    for number in random.sample(range(1, count), random.randint(5, 40)):
        fates[f"up/{number}"] = [0, random.randrange(apart - burst, apart - 100 * MS)]
    return made, fates


def unheard(random: Random) -> Drawn:
    """Return a client that loses events and gets no answer for more than 10 s."""
    count = random.choice([150, 600])
    made: list[facts.Fact] = [
        facts.Begin(at=0, program=0, transport="udp", address="udp:1", buffer=2**20),
        facts.Emit(at=MS, program=0, stream=1, count=count, over=random.choice([0, SECOND])),
        facts.Emit(at=2 * SECOND, program=0, stream=1, count=count),
        facts.Flush(at=60 * SECOND, program=0, seconds=10.0),
        facts.Close(at=80 * SECOND, program=0, seconds=15.0),
    ]
    fates: dict[str, list[int]] = {f"down/{n}": [] for n in range(random.randint(5, 30))}
    for number in range(1, 200):
        if random.random() < 0.2:
            fates[f"up/{number}"] = []
    return made, fates


def starts_between(random: Random) -> Drawn:
    """Return programs that follow each other at one address, and a collector that starts between two of them.

    No datagram is later than the time between the beginnings of the programs.
    """
    made: list[facts.Fact] = []
    apart, slack, many = 700 * MS, 60 * MS, random.choice([2, 2, 3])
    for program in range(many):
        at = begin = program * apart
        buffer = random.choice([2**15, 2**22])
        made.append(
            facts.Begin(at=at, program=program, transport="udp", address="udp:1", buffer=buffer)
        )
        for _ in range(random.randint(1, 6)):
            stream, count = random.choice([1, 2, 3]), random.choice([1, 1, 3, 30, 100])
            over = random.choice([0, 0, MS, 30 * MS])
            made.append(facts.Emit(at=at, program=program, stream=stream, count=count, over=over))
            at = min(at + random.choice([1, MS, 50 * MS, 200 * MS]), begin + apart - slack)
        if random.random() < 0.3:
            made.append(facts.Flush(at=at, program=program, seconds=3.0))
        if random.random() < 0.5:
            at += random.randrange(slack)
            made.append(facts.Close(at=at, program=program, seconds=5.0))
    start = random.randrange(1, many) * apart + random.randrange(-300 * MS, 200 * MS)
    kill = random.choice([0, random.randrange(start)])
    made.append(facts.KillCollector(at=kill, power=random.random() < 0.2))
    made.append(facts.StartCollector(at=start))
    loss, slow = random.choice([0, 0.1, 0.3]), random.choice([0.1, 0.3, 0.6])
    late, fates = (apart - slack) // 2, {}
    for number in range(1500):
        for way in ("up", "down"):
            delays = [random.randrange(late)] if random.random() < slow else [0]
            delays = [] if random.random() < loss else delays
            if delays != [0]:
                fates[f"{way}/{number}"] = delays
    return made, fates


def cut_connections(random: Random) -> Drawn:
    """Return programs without a client on connections.

    Their collector is killed, or loses a source, while their bytes wait in its kernel.
    """
    made: list[facts.Fact] = []
    for program in range(PROGRAMS, PROGRAMS + random.randint(1, 4)):
        transport = random.choice(["heph-tcp", "heph-tcp", "jets-tcp"])
        at = random.randrange(2 * SECOND)
        begin = facts.Begin(
            at=at,
            program=program,
            transport=transport,
            address=f"{transport}-{program}:1",
            buffer=0,
        )
        made.append(begin)
        streams = random.sample(range(1, 8), random.randint(1, 3))
        for _ in range(random.randint(2, 12)):
            stream, count = random.choice(streams), random.choice([1, 3, 10, 60])
            over = random.choice([0, MS, 300 * MS])
            made.append(facts.Emit(at=at, program=program, stream=stream, count=count, over=over))
            at += over + random.choice([MS, 50 * MS, SECOND])
        end = random.random()
        if end < 0.4:
            made.append(facts.Close(at=at, program=program, seconds=0.0))
        elif end < 0.7:
            made.append(facts.Kill(at=at, program=program))
    latest = max(fact.at for fact in made) + SECOND
    for _ in range(random.randint(1, 3)):
        at, still = random.randrange(latest), random.choice([20 * MS, 500 * MS, 3 * SECOND])
        made.append(facts.Suspend(at=at, duration=still))
        end = at + random.randrange(1, still)
        if random.random() < 0.75:
            made.append(facts.KillCollector(at=end))
            made.append(facts.StartCollector(at=end + random.choice([10 * MS, 500 * MS, SECOND])))
        else:
            made.append(
                facts.Reload(
                    at=end, reorder_events=512, reorder_seconds=2.0,
                    without=random.choice(["tcp", "jets-tcp"]), duration=SECOND,
                )
            )  # fmt: skip
    return made, {}


KINDS = (quick_ends, speechless, late_copies, unheard)


def draw(seed: int) -> Scenario | None:
    """Return a scenario with one of these courses for a share of the seeds; None for the others."""
    random, between, cuts = (Random(f"{kind}/{seed}") for kind in ("restarts", "between", "cuts"))
    if random.random() < 0.15:
        made, fates = random.choice(KINDS)(random)
    elif between.random() < 0.04:
        made, fates = starts_between(between)
    elif cuts.random() < 0.04:
        made, fates = cut_connections(cuts)
    else:
        return None
    made.append(facts.StartCollector(at=max(fact.at for fact in made) + 30 * SECOND))
    made.sort(key=lambda fact: fact.at)
    return Scenario(seed=seed, facts=made, fates=fates)
