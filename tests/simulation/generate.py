"""Makes a scenario of a seed. Each seed switches some kinds of faults off (swarm testing).

Of programs at one address the collector could not tell some things (ARCHITECTURE.md, "Blind spots"). So
there a program lives `LIFE` at least and is silent for `QUIET` after its first event. The datagram of this
event, which announces the session, arrives once and at once, and the collector's kernel keeps no datagrams for
long. No datagram is later than `LATE_SHARED`. Programs without a client need a collector that hears them
begin: it is not killed.
"""

from __future__ import annotations

from random import Random

from tests.simulation import facts, generate_files
from tests.simulation.facts import Files, Scenario
from tests.simulation.world import MS, SECOND

LIFE = 500 * MS
QUIET = 5 * MS
LATE = 4 * SECOND
LATE_SHARED = 1500 * MS
INTRODUCTIONS = 9
"""Datagrams in which a client announces its session, or more."""
PROGRAMS_MAX = 5
FILES_ALONE, FILES_BESIDE = 0.3, 0.2
"""Shares of the seeds whose programs write files only, and of the others of which some do."""
DATAGRAMS = 5000
"""Datagrams in each direction that have a fate of their own, at most."""


def generate(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    kind = Random(f"files/{seed}")
    if kind.random() < FILES_ALONE:
        return _files_alone(seed, kind)
    random = Random(f"scenario/{seed}")
    shared = random.random() < 0.5
    made = _programs(random, shared=shared)
    files = Files()
    if kind.random() < FILES_BESIDE:
        files = generate_files.files(kind)
        made += generate_files.traces(kind)
    end = max(fact.at for fact in made)
    troubles = _troubles(random, end, shared=shared)
    if shared and any(isinstance(f, facts.Begin) and f.transport == "raw" for f in made):
        troubles = [f for f in troubles if not isinstance(f, facts.KillCollector)]
    made += troubles
    fates = {} if random.random() < 0.2 else _fates(random, LATE_SHARED if shared else LATE)
    if random.random() < 0.1:
        fates |= {f"up/{number}": [] for number in range(INTRODUCTIONS)}
    places = 16_384
    if random.random() < 0.15:
        places = random.randint(8, 40)
        made += _strangers(random, end, places)
    made.sort(key=lambda fact: fact.at)
    queue = 100_000 if shared or random.random() < 0.7 else random.choice([10, 50, 300])
    return Scenario(seed=seed, facts=made, fates=fates, queue=queue, places=places, files=files)


def generate_of_files(seed: int) -> Scenario:
    """Return the scenario of a seed in which programs write files only."""
    return _files_alone(seed, Random(f"files/{seed}"))


def _files_alone(seed: int, random: Random) -> Scenario:
    """Return a scenario without a network."""
    made = generate_files.traces(random)
    end = max(fact.at for fact in made)
    made += [f for f in _troubles(random, end, shared=False) if not isinstance(f, facts.Partition)]
    made.sort(key=lambda fact: fact.at)
    return Scenario(seed=seed, facts=made, fates={}, files=generate_files.files(random))


def _programs(random: Random, *, shared: bool) -> list[facts.Fact]:
    made: list[facts.Fact] = []
    buffer = random.choice([2**15, 2**17, 2**22])
    transports = random.choice([["udp"], ["udp"], ["tcp"], ["raw"], ["udp", "tcp", "raw"]])
    at = 0
    for number in range(random.randint(1, PROGRAMS_MAX)):
        transport = random.choice(transports)
        alone = shared and transport != "tcp"
        address = f"{transport}:1" if alone else f"{transport}-{number}:1"
        begin = at
        made.append(
            facts.Begin(
                at=begin, program=number, transport=transport, address=address, buffer=buffer
            )
        )
        if alone:
            made.append(facts.Emit(at=at, program=number, stream=1, count=1))
            at += QUIET
        at = _course(random, made, number, at)
        if transport == "raw":
            made[:] = [f for f in made if not isinstance(f, facts.Flush) or f.program != number]
        if transport == "raw" or random.random() < 0.4:
            at = max(at, begin + LIFE)
            made.append(facts.Kill(at=at, program=number))
        else:
            seconds = random.choice([1.0, 5.0, 15.0])
            made.append(facts.Close(at=at, program=number, seconds=seconds))
            if random.random() < 0.1:
                made.append(facts.Reset(at=at + random.randrange(5 * MS), program=number))
            at = max(at + (round(seconds * SECOND) if alone else 0), begin + LIFE)
        at += random.choice([0, 100 * MS, 300 * MS, SECOND, 5 * SECOND, 20 * SECOND])
        if not alone and random.random() < 0.5:
            at = random.randrange(begin, at + 1)  # beside each other
    return made


def _course(random: Random, made: list[facts.Fact], program: int, at: int) -> int:
    """Add what a program does; return when it has done it."""
    streams = random.sample(range(1, 9), random.randint(1, 3))
    for _ in range(random.randint(1, 12)):
        for stream in random.choices(streams, k=random.randint(1, 6)):
            count = random.choice([1, 3, 30, 150, 600])
            over = random.choice([0, 0, MS, 30 * MS]) * (1 + count // 30)
            made.append(facts.Emit(at=at, program=program, stream=stream, count=count, over=over))
            at += over + 1
        at += random.choice([0, MS, 50 * MS, SECOND, 4 * SECOND])
        if random.random() < 0.3:
            seconds = random.choice([0.5, 3.0, 10.0])
            made.append(facts.Flush(at=at, program=program, seconds=seconds))
            at += MS
        if random.random() < 0.03:
            made.append(facts.Reset(at=at, program=program))
    return at


def _strangers(random: Random, end: int, places: int) -> list[facts.Fact]:
    """Return programs that want more streams than there are places."""
    made: list[facts.Fact] = []
    for number in range(100, 100 + random.randint(1, 4)):
        at = random.randrange(end + 1)
        address = f"stranger-{number}:1"
        made.append(facts.Begin(at=at, program=number, transport="raw", address=address, buffer=0))
        for stream in range(random.randint(1, places)):
            at += random.choice([0, MS, 50 * MS])
            count = random.choice([1, 1, 5])
            made.append(facts.Emit(at=at, program=number, stream=stream, count=count))
    return made


def _troubles(random: Random, end: int, *, shared: bool) -> list[facts.Fact]:
    """Return what happens to collector, disk, table and network until some time."""
    made: list[facts.Fact] = []

    def times(share: float, most: int) -> list[int]:
        if random.random() > share:
            return []
        return [random.randrange(end + SECOND) for _ in range(random.randint(1, most))]

    def long() -> int:
        return random.choice([50 * MS, 500 * MS, 3 * SECOND, 20 * SECOND])

    for at in times(0.5, 4):
        made.append(facts.KillCollector(at=at))
        made.append(facts.StartCollector(at=at + random.choice([10 * MS, 500 * MS, 3 * SECOND])))
    if not shared:
        made += [facts.Suspend(at=at, duration=long()) for at in times(0.3, 3)]
        made += [facts.FullDisk(at=at, duration=long()) for at in times(0.2, 2)]
    made += [facts.Partition(at=at, duration=long()) for at in times(0.3, 3)]
    made += [
        facts.TableDown(at=at, duration=long(), landed=random.random() < 0.5)
        for at in times(0.3, 3)
    ]
    made.append(facts.StartCollector(at=end + 30 * SECOND))
    return made


def _fates(random: Random, late: int) -> dict[str, list[int]]:
    """Return the fates of the datagrams that do not arrive once and at once."""

    def some(most: float) -> float:
        return 0.0 if random.random() < 0.4 else random.random() * most

    fates: dict[str, list[int]] = {}
    for way in ("up", "down"):
        loss, double, slow, slower = some(0.2), some(0.1), some(0.3), some(0.02)
        for number in range(DATAGRAMS):
            copies = 0 if random.random() < loss else 1
            copies += random.random() < double
            delays = [_delay(random, slow, slower, late) for _ in range(copies)]
            if delays != [0]:
                fates[f"{way}/{number}"] = delays
    return fates


def _delay(random: Random, slow: float, slower: float, late: int) -> int:
    delay = random.randrange(SECOND * 3 // 10) if random.random() < slow else 0
    return delay + (random.randrange(late) if random.random() < slower else 0)
