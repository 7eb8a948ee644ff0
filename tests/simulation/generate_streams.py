"""Make scenarios with programs about which the collector must remember much: with more streams than an answer or the
collector has room for, with many holes, or with events that overtake the first event of their stream.
"""

from __future__ import annotations

from random import Random

from tests.simulation import facts
from tests.simulation.facts import Scenario
from tests.simulation.world import MS, SECOND

SHARE = 0.06
"""The share of the seeds for which such a scenario is made."""
PROGRAMS = 3
BUFFERS = [2**15, 2**20]
"""Sizes (bytes) of clients' buffers. With a small one, a client forgets events that no answer has settled."""
WINDOW = 512
"""Number of event numbers of a stream for which the collector remembers marks."""
PLACES = 16_384


def draw(seed: int) -> Scenario | None:
    """Return the scenario of a seed; None for most seeds."""
    random = Random(f"streams/{seed}")
    if random.random() >= SHARE:
        return None
    return random.choice([_crowd, _crowd, _crumbs, _beginnings])(random, seed)


def _crowd(random: Random, seed: int) -> Scenario:
    """Return clients with very many streams. Some of the streams get no place in the collector."""
    made: list[facts.Fact] = []
    for number in range(random.randint(1, PROGRAMS)):
        made += _program(random, number)
    end = max(fact.at for fact in made)
    made += _troubles(random, end)
    made.sort(key=lambda fact: fact.at)
    return Scenario(
        seed=seed,
        facts=made,
        fates=_fates(random),
        places=random.choice([PLACES, PLACES, 20, 100]),
        limits=_limits(random),
    )


def _crumbs(random: Random, seed: int) -> Scenario:
    """Return a client that sends single events, loses many of them, and gets few answers.

    Its second thread continues to emit while the first one waits.
    """
    made: list[facts.Fact] = [
        facts.Begin(at=0, program=0, transport="udp", address="udp:1", buffer=random.choice(BUFFERS))
    ]  # fmt: skip
    base = random.choice([1, 2**32 - 10])
    at, streams = MS, range(base, base + random.choice([1, 1, 2, 6]))
    count = random.choice([60, 400])
    for _ in range(count):
        made.append(facts.Emit(at=at, program=0, stream=random.choice(streams), count=1))
        at += random.choice([15 * MS, 40 * MS, 40 * MS])
    until = at + 70 * SECOND
    made.append(facts.Flush(at=at, program=0, seconds=60.0))
    for beside in range(at, until, random.choice([2, 7, 20]) * SECOND):
        stream = random.choice([base, base, base + 6])
        made.append(facts.Emit(at=beside + MS, program=0, stream=stream, count=3, beside=True))
    if random.random() < 0.7:
        made.append(facts.Partition(at=at + random.choice([0, SECOND]), duration=25 * SECOND))
    if random.random() < 0.7:
        made.append(facts.Close(at=until, program=0, seconds=15.0))
    made.append(facts.StartCollector(at=until + 30 * SECOND))
    made.sort(key=lambda fact: fact.at)
    up, silent = random.choice([0.2, 0.5]), random.choice([5, 30] if count < 100 else [5, 30, 90])
    fates: dict[str, list[int]] = {f"down/{n}": [] for n in range(silent)}
    fates |= {f"up/{n}": [] for n in range(2, 400) if random.random() < up}
    limits = {"resume_time": 15.0} if random.random() < 0.7 else {}
    if random.random() < 0.5:
        limits["session_state_max"] = random.choice([2**12, 2**13])
    return Scenario(seed=seed, facts=made, fates=fates, limits=limits)


def _beginnings(random: Random, seed: int) -> Scenario:
    """Return a program whose last events the kernel drops, and one whose counter begins directly below its wrap.

    The first events of the second program's second stream overtake each other.
    """
    made: list[facts.Fact] = [
        facts.Suspend(at=SECOND, duration=SECOND),
        facts.Begin(at=0, program=0, transport="raw", address="raw-0:1", buffer=0),
        facts.Emit(at=100 * MS, program=0, stream=1, count=3),
        facts.Emit(at=SECOND + 100 * MS, program=0, stream=1, count=random.choice([20, 60])),
    ]
    at = 5 * SECOND
    first = 2**32 - random.randint(20, 40) - random.choice([0, 0, WINDOW - 35])
    begin = facts.Begin(at=at, program=1, transport="raw", address="raw-1:1", buffer=0, first=first, overtaken=True)  # fmt: skip
    made.append(begin)
    made.append(facts.Emit(at=at, program=1, stream=1, count=1))
    at += 100 * MS
    for _ in range(60):
        made.append(facts.Emit(at=at, program=1, stream=2, count=1))
        at += 20 * MS
    made.append(facts.StartCollector(at=at + 30 * SECOND))
    made.sort(key=lambda fact: fact.at)
    sent = sum(f.count for f in made if isinstance(f, facts.Emit) and f.program == 0)
    fates = {
        f"up/{n}": random.choice([[], *2 * [[random.randrange(600 * MS)]]])
        for n in range(sent + 1, sent + 15)
    }
    return Scenario(seed=seed, facts=made, fates=fates, queue=10)


def _program(random: Random, number: int) -> list[facts.Fact]:
    transport = random.choice(["udp", "udp", "tcp"])
    at = random.randrange(3 * SECOND)
    made: list[facts.Fact] = [
        facts.Begin(
            at=at, program=number, transport=transport, address=f"{transport}-{number}:1",
            buffer=random.choice(BUFFERS),
        )
    ]  # fmt: skip
    base = random.choice([1, 2**32 - 200])
    streams = list(range(base, base + random.choice([3, 12, 30, 80, 150])))
    for _ in range(random.randint(2, 6)):
        for stream in random.sample(streams, random.randint(1, len(streams))):
            count = random.choice([1, 1, 2, 20])
            made.append(facts.Emit(at=at, program=number, stream=stream, count=count))
            at += random.choice([1, MS])
        at += random.choice([MS, SECOND, 7 * SECOND, 25 * SECOND])
        if random.random() < 0.4:
            made.append(facts.Flush(at=at, program=number, seconds=random.choice([0.5, 10.0])))
            at += MS
    end = random.choice(["close", "close", "kill", "none"])
    if end == "close":
        made.append(facts.Close(at=at, program=number, seconds=15.0))
    elif end == "kill":
        made.append(facts.Kill(at=at + random.choice([0, 20 * SECOND]), program=number))
    return made


def _troubles(random: Random, end: int) -> list[facts.Fact]:
    made: list[facts.Fact] = []
    for _ in range(random.choice([0, 0, 1, 2])):
        at = random.randrange(end + 1)
        made.append(facts.KillCollector(at=at, power=random.random() < 0.3))
        made.append(facts.StartCollector(at=at + random.choice([10 * MS, SECOND])))
    if random.random() < 0.5:
        at, duration = random.randrange(end + 1), random.choice([SECOND, 20 * SECOND, 50 * SECOND])
        made.append(facts.Partition(at=at, duration=duration))
    made.append(facts.StartCollector(at=end + 30 * SECOND))
    return made


def _fates(random: Random) -> dict[str, list[int]]:
    """Return the fates of datagrams in a network that loses many of them, or none."""
    up, down, silent = (
        random.choice([0, 0.05, 0.3]),
        random.choice([0, 0.3]),
        random.choice([0, 0, 5, 40]),
    )
    fates: dict[str, list[int]] = {f"down/{number}": [] for number in range(silent)}
    for number in range(2000):
        if random.random() < up:
            fates[f"up/{number}"] = []
        if random.random() < down:
            fates[f"down/{number}"] = []
    return fates


def _limits(random: Random) -> dict[str, float]:
    """Return small values for those limits that these programs reach."""
    limits: dict[str, float] = {}
    if random.random() < 0.5:
        limits["resume_time"] = 15.0
    if random.random() < 0.4:
        limits["streams_max"] = random.choice([1, 5, 40])
    if random.random() < 0.3:
        limits["holes_max"] = random.choice([1, 3, 13])
    if random.random() < 0.3:
        limits[random.choice(["session_state_max", "source_state_max"])] = random.choice([2**12, 2**14])  # fmt: skip
    return limits
