"""Make facts for programs without a client, for peers that vanish, and for clocks that are set.

Cases that the collector cannot distinguish are left out (ARCHITECTURE.md, "Blind spots"). JETS lines in datagrams must
not be later than the header of the next program, so a program at the address of another one begins after `APART`. If
Heph follows noise on a connection that its program finds broken, it may become readable only at the end, so there is no
noise. A program at the address of another one is silent for `QUIET` after its header. The header arrives, because the
collector and its disk do not fail then.
"""

from __future__ import annotations

from random import Random

from tests.simulation import facts
from tests.simulation.world import MS, SECOND

HOUR = 3600 * SECOND
APART, QUIET = 8 * SECOND, 5 * MS
"""Times (ns) that are longer than the lateness of a datagram, and than its usual delay."""
TORN = 9
"""The stream for events that are sent incompletely; see `play`."""

GARBLES = ("before", "behind", "torn")
TRANSPORTS = ("heph-tcp", "jets-tcp", "jets-udp", "raw")
PROGRAMS = 200
"""The number of the first program without a client."""


def producers(random: Random) -> list[facts.Fact]:
    """Return programs without a client."""
    made: list[facts.Fact] = []
    transports = random.sample(TRANSPORTS, random.randint(1, len(TRANSPORTS)))
    shared = random.random() < 0.5
    garbled = random.random() < 0.6
    begun: dict[str, facts.Begin] = {}
    at = random.randrange(2 * SECOND)
    for number in range(PROGRAMS, PROGRAMS + random.randint(1, 5)):
        transport = random.choice(transports)
        stream = transport.endswith("tcp")
        alone = transport == "raw" or not shared
        address = f"{transport}-{number}:1" if alone else f"{transport}:1"
        before = begun.get(address)
        again = before is not None
        if again and not stream:
            at += APART
        on = before.program if again and before and stream and random.random() < 0.5 else None
        begin = facts.Begin(
            at=at, program=number, transport=transport, address=address, buffer=0, on=on,
            first=2**32 - random.randint(1, 40) if random.random() < 0.2 and transport in {"raw", "heph-tcp"} else 0,
            clock=random.choice([0, 0, HOUR, -HOUR, -5 * SECOND]), pace=random.choice([0, 0, 200, -200]),
        )  # fmt: skip
        made.append(begin)
        begun[address] = begin
        at += QUIET if again else MS
        at = _course(random, made, begin, at, garbled=garbled)
        at += random.choice([0, MS, 100 * MS, 3 * SECOND])
        if stream or transport == "jets-udp":
            end = random.random()
            if end < 0.5:
                made.append(facts.Close(at=at, program=number, seconds=0.0))
            elif end < 0.7:
                made.append(facts.Kill(at=at, program=number))
        at += random.choice([MS, 100 * MS, SECOND, 10 * SECOND])
    return made


def are_without_clients(made: list[facts.Fact]) -> bool:
    """Return whether the scenario has programs whose stored events are compared with the bytes that they sent.

    Then no damaged log may lack these bytes.
    """
    return any(isinstance(f, facts.Begin) and f.program >= PROGRAMS for f in made)


def are_told_by_headers(made: list[facts.Fact]) -> bool:
    """Return whether some programs can be distinguished only by headers in datagrams."""
    begun = [f.address for f in made if isinstance(f, facts.Begin) and f.transport == "jets-udp"]
    return len(begun) > len(set(begun))


def _course(
    random: Random, made: list[facts.Fact], begin: facts.Begin, at: int, *, garbled: bool
) -> int:
    """Add the facts of a program's life. Return the time at which it is over."""
    program, heph = begin.program, not begin.transport.startswith("jets")
    streams = random.sample(range(1, 8), random.randint(1, 3))
    # The beginning of this stream is unknown if an event beyond the wrap comes before its first one.
    if begin.first:
        for stream in (*streams, TORN):
            made.append(facts.Emit(at=at, program=program, stream=stream, count=1))
            at += QUIET
    for _ in range(random.randint(1, 8)):
        for stream in random.choices(streams, k=random.randint(1, 4)):
            count = random.choice([1, 3, 10, 60])
            over = random.choice([0, 0, MS, 30 * MS]) * (1 + count // 30)
            made.append(facts.Emit(at=at, program=program, stream=stream, count=count, over=over))
            at += over + MS
        if garbled and random.random() < 0.4:
            made.append(facts.Garble(at=at, program=program, how=random.choice(GARBLES)))
        if heph and not begin.first and random.random() < 0.15:
            count = random.choice([1, 20])
            more = 7 if count > 1 and begin.transport == "heph-tcp" else 0
            made.append(
                facts.Discard(
                    at=at, program=program, stream=streams[0], count=count, unnumbered=more
                )
            )
        at += random.choice([0, MS, 50 * MS, SECOND, 20 * SECOND])
    return at


def peers(random: Random, made: list[facts.Fact]) -> list[facts.Fact]:
    """Return faults of the connections and hosts of programs."""
    found: list[facts.Fact] = []
    end = max(fact.at for fact in made)
    share = random.choice([0, 0.2, 0.6])
    noisy = {f.program for f in made if isinstance(f, facts.Garble)}
    noisy_at = {f.address for f in made if isinstance(f, facts.Begin) and f.program in noisy}
    for begin in [fact for fact in made if isinstance(fact, facts.Begin)]:
        at = random.randrange(begin.at, end + 2 * SECOND)
        if random.random() >= share:
            continue
        program, stream = begin.program, begin.transport.endswith("tcp")
        kind = random.choice(["tear", "vanish", "deaf", "reset"])
        behind_noise = begin.transport == "heph-tcp" and begin.address in noisy_at
        if kind == "tear" and stream and not behind_noise:
            later = random.choice([MS, 300 * MS, 5 * SECOND, 60 * SECOND])
            found.append(facts.Tear(at=at, program=program, later=later))
        elif kind == "vanish" and begin.transport != "raw":
            found.append(facts.Vanish(at=at, program=program))
        elif kind == "deaf":
            duration = random.choice([SECOND, 10 * SECOND, 60 * SECOND])
            found.append(facts.Deaf(at=at, program=program, duration=duration))
        elif stream:
            found.append(facts.Reset(at=at, program=program))
    return found


def floods(random: Random, end: int) -> list[facts.Fact]:
    """Return connections that each begin very many sessions. For most seeds, return none."""
    if random.random() < 0.8:
        return []
    return [
        facts.Flood(
            at=random.randrange(end + SECOND), number=number, epochs=random.choice([20, 200, 2000])
        )
        for number in range(random.randint(1, 3))
    ]


def clocks(random: Random, end: int) -> list[facts.Fact]:
    """Return changes of the collector's wall clock."""
    found: list[facts.Fact] = []
    if random.random() < 0.7:
        return found
    for _ in range(random.randint(1, 4)):
        size = random.choice([20 * MS, 60 * MS, SECOND, 60 * SECOND, HOUR, 24 * HOUR])
        by = size * random.choice([-1, 1])
        found.append(facts.SetClock(at=random.randrange(end + SECOND), by=by))
    if random.random() < 0.5:
        pace = random.choice([-500, -50, 50, 500, 20_000])
        found.append(facts.Drift(at=random.randrange(end + 1), pace=pace))
    return found


def reloads(random: Random, made: list[facts.Fact], end: int) -> list[facts.Fact]:
    """Return reloads of the collector's configuration.

    The source of datagrams is not removed if programs without a client send to it: their sessions do not continue after
    a source was removed.
    """
    begun = [f for f in made if isinstance(f, facts.Begin)]
    raw = any(f.transport == "raw" or not f.acknowledge for f in begun)
    found: list[facts.Fact] = []
    if random.random() < 0.8:
        return found
    for _ in range(random.randint(1, 3)):
        without = random.choice(["", "", "udp", "tcp", "jets-udp", "jets-tcp"])
        without = "" if raw and without == "udp" else without
        # If a datagram arrives late, after its source was removed and added again, it begins a session whose start is
        # unknown.
        duration = APART if without.endswith("udp") else random.choice([10 * MS, SECOND, APART])
        found.append(
            facts.Reload(
                at=random.randrange(end + SECOND),
                reorder_events=random.choice([512, 700, 2000]),
                reorder_seconds=random.choice([2.0, 3.0, 5.0]),
                without=without,
                duration=duration if without else 0,
            )
        )
    return found
