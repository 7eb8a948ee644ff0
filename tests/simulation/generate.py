"""Make the scenario of a seed. Each seed switches some kinds of faults off (swarm testing).

For programs at one address, the collector cannot find out some facts (ARCHITECTURE.md, "Blind spots"; `excluded/` has
the shortest scenario of each). The generator therefore avoids these cases:

- An event may come later than the time between the beginnings of two programs at its address, or later than the
  collector waits for events of the first one. Then it is unknown whose event it is. So no datagram is later, and the
  collector leaves no datagram unread for longer.
- An event may come before its program's first packet, if the program sends this packet only once. Then it is unknown
  whose event it is. So the first datagram of a program without a client arrives, and arrives first
  (`Network.introduce`). Its collector runs and has room for it in the kernel, and is not killed until the datagram is
  on disk. All clients ask for answers there, because a client without answers announces itself only in a few datagrams.
- The wall clock may be set while no collector runs, or so shortly before a kill that the log does not contain it. Then
  it is unknown whose later events are.

If a program sends Heph in datagrams and announces no session, no limit makes the collector forget gaps: there, a late
event from a forgotten gap looks like a copy ("What came below a gap that is no longer remembered").
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from random import Random

from msgspec.structs import replace

from tests.simulation import (
    facts,
    generate_files,
    generate_restarts,
    generate_streams,
    generate_wire,
    limits,
    quick,
)
from tests.simulation.facts import Scenario
from tests.simulation.quick import LIFE
from tests.simulation.world import MS, SECOND

CLIENTS = ("udp", "tcp")
LATE = 4 * SECOND
LATE_SHARED = 1900 * MS
"""Maximum lateness (ns) of a datagram at an address that several programs use.

It is less than the time for which the collector waits for late events of the program before.
"""
SLACK = 60 * MS
"""Tolerance (ns) with which the collector knows how late an event is, plus the minimum time that a datagram takes."""
SAVED = 600 * MS
"""After this time (ns), a received datagram is on disk, unless the collector is suspended meanwhile.

A blocking call may take half a second.
"""
LOOKED = 3 * SECOND
"""After this time (ns), the log contains that the wall clock was set."""
LONG = 20 * SECOND
INTRODUCTIONS = 9
"""Number of datagrams that an outage at the beginning sometimes takes.

It is more than the number of datagrams in which a client without answers announces its session.
"""
PROGRAMS_MAX = 5
LINGER = 12 * SECOND
"""If a client does nothing for this time (ns), it has sent everything that it had."""
LIVES_MAX = 11
"""Maximum number of programs that follow each other at one address.

It is more than the number of epochs that the collector remembers for an address.
"""
MIXED = 0.15
"""Share of the scenarios in which some programs write files beside programs that send."""
_OF_THE_NETWORK = (facts.Partition, facts.Rot)
"""Faults of the network; checks of files do not depend on them."""
DATAGRAMS = 5000
"""Maximum number of datagrams in each direction that have a fate of their own."""


def generate(seed: int) -> Scenario:
    """Return the scenario of a seed. In some scenarios, programs write files beside programs that send."""
    if crowded := generate_streams.draw(seed):
        return crowded
    scenario, random = _of_the_wire(seed), Random(f"mixed/{seed}")
    return _with_files(scenario, random) if random.random() < MIXED else scenario


def _of_the_wire(seed: int) -> Scenario:
    if course := generate_restarts.draw(seed):
        return course
    random = Random(f"scenario/{seed}")
    shared = random.random() < 0.5
    are_quick = shared and random.random() < 0.4
    made = quick.programs(random) if are_quick else _programs(random, shared=shared)
    wire = Random(f"wire/{seed}")
    if wire.random() < 0.35:
        others = [] if shared or wire.random() < 0.7 else made
        made, shared = generate_wire.producers(wire) + others, False
    end = max(fact.at for fact in made)
    late = min(LATE_SHARED, _apart(made) - SLACK) // 2 if shared else LATE
    troubles = _troubles(random, end, late // 2 if shared else None)
    headers = generate_wire.are_told_by_headers(made)
    if headers:
        ends = (facts.KillCollector, facts.DiskFails)
        troubles = [f for f in troubles if not isinstance(f, ends)]
    if generate_wire.are_without_clients(made):
        troubles = [f for f in troubles if not isinstance(f, facts.Rot)]
    first_words = _first_words(made) if shared else []
    made += _spare(troubles, first_words)
    fates = {} if random.random() < 0.2 else _fates(random, late)
    if random.random() < 0.1:
        fates |= {f"up/{number}": [] for number in range(INTRODUCTIONS)}
    places = 16_384
    if random.random() < 0.15:
        places = random.randint(8, 40)
        made += _strangers(random, end, places)
    if not shared:
        made += generate_wire.peers(wire, made)
        if not headers:
            made += generate_wire.reloads(wire, made, end)
    clocks = generate_wire.clocks(wire, end)
    made += _seen(clocks, made) if shared else clocks
    state = 0
    if not shared and random.random() < 0.1:
        state = random.choice([2**14, 2**16])
    if not shared and random.random() < 0.15:
        stays = random.choice([f for f in made if isinstance(f, facts.Begin)]).program
        made = [
            f for f in made if not isinstance(f, facts.Kill | facts.Close) or f.program != stays
        ]
    chance = Random(f"deluge/{seed}")
    floods = generate_wire.floods(chance, end)
    made += floods
    made.sort(key=lambda fact: fact.at)
    announced = not any(isinstance(f, facts.Begin) and f.transport not in CLIENTS for f in made)
    small = limits.draw(Random(f"limits/{seed}"), announced=announced, shared=shared)
    if floods:
        small |= {"new_sessions_rate": chance.choice([20, 100])}
    if any(isinstance(f, facts.Begin) and f.transport == "raw" for f in made):
        state = 0
    roomy = bool(first_words) or headers or random.random() < 0.7
    small_spool = not shared and random.random() < 0.2
    return Scenario(
        seed=seed,
        facts=made,
        fates=fates,
        queue=100_000 if roomy else random.choice([10, 50, 300]),
        places=places,
        limits=small,
        segment=wire.choice([0, 0, 100, 1448]),
        state=state,
        spool=random.choice([2**17, 2**19, 2**21]) if small_spool else 2**26,
        batch=_batch(seed),
        stalls=0.0 if shared else _stalls(seed),
    )


def client(random: Random, number: int, at: int) -> facts.Begin:
    """Return the fact that a program with a client begins, at an address of its own."""
    transport = random.choice(["udp", "tcp"])
    return facts.Begin(
        at=at, program=number, transport=transport, address=f"{transport}-{number}:1",
        buffer=random.choice([2**15, 2**17, 2**22]),
    )  # fmt: skip


def _batch(seed: int) -> int:
    return Random(f"batch/{seed}").choice([10, 100, 500_000])


def _stalls(seed: int) -> float:
    return Random(f"stalls/{seed}").choice([0.0, 0.001])


def _with_files(scenario: Scenario, random: Random) -> Scenario:
    """Return the scenario with additional programs that write files.

    Faults that damage the log are removed, because their records must not be missing.
    """
    end = max(fact.at for fact in scenario.facts)
    made = [fact for fact in scenario.facts if not isinstance(fact, facts.Rot)]
    traces = generate_files.traces(random, random.choice([0, random.randrange(end + 1)]))
    coming, files = generate_files.sources(
        Random(f"sources/{scenario.seed}"), traces, generate_files.files(random)
    )
    made += traces + coming
    made.sort(key=lambda fact: fact.at)
    return replace(scenario, facts=made, files=files)


def generate_of_files(seed: int) -> Scenario:
    """Return the scenario of a seed in which programs only write files."""
    random = Random(f"files/{seed}")
    made = generate_files.traces(random)
    coming = Random(f"sources/{seed}")
    traces, end = list(made), max(fact.at for fact in made)
    made += [f for f in _troubles(random, end, None) if not isinstance(f, _OF_THE_NETWORK)]
    made += generate_wire.clocks(Random(f"wire/{seed}"), end)
    reloads, files = generate_files.sources(coming, traces, generate_files.files(random))
    made += reloads
    made.sort(key=lambda fact: fact.at)
    return Scenario(
        seed=seed,
        facts=made,
        fates={},
        files=files,
        batch=_batch(seed),
        stalls=_stalls(seed),
    )


def _programs(random: Random, *, shared: bool) -> list[facts.Fact]:
    made: list[facts.Fact] = []
    buffer = random.choice([2**15, 2**17, 2**22])
    transports = random.choice([["udp"], ["udp"], ["tcp"], ["raw"], ["udp", "tcp", "raw"]])
    at = 0
    acknowledge, lingers = random.random() < 0.9 or shared, random.random() < 0.3
    many = LIVES_MAX if shared and random.random() < 0.1 else 0
    for number in range(many or random.randint(1, PROGRAMS_MAX)):
        transport = random.choice(transports)
        alone = shared and transport != "tcp"
        address = "datagrams:1" if alone else f"{transport}-{number}:1"
        begin = at
        made.append(
            facts.Begin(
                at=begin,
                program=number,
                transport=transport,
                address=address,
                buffer=buffer,
                acknowledge=acknowledge,
                introduced=alone and transport == "raw",
            )
        )
        at = _course(random, made, number, at, phases=1 if many else 12)
        if transport == "raw":
            made[:] = [f for f in made if not isinstance(f, facts.Flush) or f.program != number]
        if transport == "raw" or random.random() < 0.4:
            at = max(at + (LINGER if lingers else 0), begin + LIFE)
            made.append(facts.Kill(at=at, program=number))
        else:
            seconds = random.choice([1.0, 5.0, 15.0])
            made.append(facts.Close(at=at, program=number, seconds=seconds))
            if random.random() < 0.1:
                made.append(facts.Reset(at=at + random.randrange(5 * MS), program=number))
            closing = round(seconds * SECOND) if alone and random.random() < 0.7 else 0
            at = max(at + closing, begin + LIFE)
        at += random.choice([0, 100 * MS, 300 * MS, SECOND, 5 * SECOND, 20 * SECOND])
        if not alone and random.random() < 0.5:
            at = random.randrange(begin, at + 1)  # These programs run at the same time.
    return made


def _apart(made: list[facts.Fact]) -> int:
    """Return the minimum time (ns) between the beginnings of two programs at one address; at most `LONG`."""
    begun: dict[str, list[int]] = defaultdict(list)
    for fact in made:
        if isinstance(fact, facts.Begin):
            begun[fact.address].append(fact.at)
    return min(
        (after - at for times in begun.values() for at, after in pairwise(times)),
        default=LONG,
    )


def _first_words(made: list[facts.Fact]) -> list[int]:
    """Return the times (ns) at which programs without a client send their first datagrams."""
    raw = {f.program for f in made if isinstance(f, facts.Begin) and f.transport == "raw"}
    first: dict[int, int] = {}
    for fact in made:
        if isinstance(fact, facts.Emit) and fact.program in raw:
            first.setdefault(fact.program, fact.at)
    return list(first.values())


def _spare(troubles: list[facts.Fact], first_words: list[int]) -> list[facts.Fact]:
    """Remove those kills that would lose one of the datagrams that are sent at the given times."""
    saved = SAVED + sum(f.duration for f in troubles if isinstance(f, facts.Suspend))

    def loses(kill: facts.KillCollector) -> bool:
        if kill.changes is not None:
            return bool(first_words)  # The time of this kill is not known in advance.
        again = _starts_again(troubles, kill.at)
        return any(kill.at - saved < at <= again for at in first_words)

    return [f for f in troubles if not (isinstance(f, facts.KillCollector) and loses(f))]


def _starts_again(made: list[facts.Fact], killed: int) -> int:
    """Return the latest time (ns) at which a killed collector runs again.

    Its start has to wait until the table answers.
    """
    down = [(f.at, f.at + f.duration) for f in made if isinstance(f, facts.TableDown)]
    starts = sorted(f.at for f in made if isinstance(f, facts.StartCollector))
    tries = (at for at in starts if at >= killed)
    return next(at for at in tries if not any(since <= at <= until for since, until in down))


def _seen(clocks: list[facts.Fact], made: list[facts.Fact]) -> list[facts.Fact]:
    """Remove changes of the clock while no collector runs, and those that a kill follows too soon."""
    kills = [f for f in made if isinstance(f, facts.KillCollector)]

    def misses(fact: facts.SetClock, kill: facts.KillCollector) -> bool:
        if kill.changes is not None:
            return kill.at < fact.at + LOOKED  # The end of this process is not known in advance.
        return kill.at - LOOKED < fact.at <= _starts_again(made, kill.at)

    return [
        f
        for f in clocks
        if not (isinstance(f, facts.SetClock) and any(misses(f, kill) for kill in kills))
    ]


def _course(random: Random, made: list[facts.Fact], program: int, at: int, *, phases: int) -> int:
    """Add the facts of a program's life. Return the time at which it is over."""
    streams = random.sample(range(1, 9), random.randint(1, 3))
    for _ in range(random.randint(1, phases)):
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
    """Return programs that use more streams than the collector has places."""
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


def _troubles(random: Random, end: int, longest: int | None) -> list[facts.Fact]:
    """Return faults of the collector, disk, table and network, up to a given time.

    The collector reads nothing for at most `longest` (ns).
    """
    made: list[facts.Fact] = []

    def times(share: float, most: int) -> list[int]:
        if random.random() > share:
            return []
        return [random.randrange(end + SECOND) for _ in range(random.randint(1, most))]

    def long() -> int:
        return random.choice([50 * MS, 500 * MS, 3 * SECOND, LONG])

    cuts, crashes = random.random() < 0.5, random.random() < 0.5
    for at in times(0.5, 4):
        power = cuts and random.random() < 0.5
        changes = random.choice([0, 1, 2, 3, 5, 10, 20, 50]) if crashes and random.random() < 0.5 else None  # fmt: skip
        made.append(facts.KillCollector(at=at, power=power, changes=changes))
        made.append(facts.StartCollector(at=at + random.choice([10 * MS, 500 * MS, 3 * SECOND])))
    most = 1 if longest else 3
    for share, pause in ((0.3, facts.Suspend), (0.2, facts.FullDisk)):
        pauses = [pause(at=at, duration=min(long(), longest or LONG)) for at in times(share, most)]
        if pause is facts.Suspend or longest is None:
            # After a full disk, data is written half a second later, which would be too long.
            made += pauses
    if longest is None:
        for at in times(0.15, 2):
            made.append(facts.DiskFails(at=at, call=random.choice(["write", "sync", "sync"])))
            if random.random() < 0.5:
                cut = at + random.choice([SECOND, 3 * SECOND])
                made.append(facts.KillCollector(at=cut, power=True))
                made.append(facts.StartCollector(at=cut + 10 * MS))
        for at in times(0.15, 2):
            file = random.choice(["checkpoint", "segment"])
            made.append(facts.Rot(at=at, file=file, share=random.random()))
            made.append(facts.KillCollector(at=at + 1))
            made.append(facts.StartCollector(at=at + 10 * MS))
    made += [facts.Partition(at=at, duration=long()) for at in times(0.3, 3)]
    made += [
        facts.TableDown(at=at, duration=long(), landed=random.random() < 0.5)
        for at in times(0.3, 3)
    ]
    made.append(facts.StartCollector(at=end + 30 * SECOND))
    return made


def _fates(random: Random, late: int) -> dict[str, list[int]]:
    """Return the fates of those datagrams that do not arrive once and without delay."""

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
    delay = random.randrange(min(late, SECOND * 3 // 10)) if random.random() < slow else 0
    return random.randrange(delay, late) if random.random() < slower else delay
