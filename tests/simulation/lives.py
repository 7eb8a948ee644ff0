"""Lives of a program that emits, one after the other, and what must be true of them at the end.

Each life has events of a few streams, is killed or ends in order, and the next begins soon, late, or
at the same address. Meanwhile the network does its worst, and the collector is killed and started, or
stopped (SIGSTOP) and then killed or continued.
The book knows what was emitted and what the client called delivered. It shares no code with the
ledger or the client.

Left out is what no collector can tell (ARCHITECTURE.md, "Blind spots"). At one address:

- events arrive less than `reorder_time` after the next life's first;
- lives are longer than datagrams are usually late.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, NamedTuple

from tailrace.config.schema import LedgerConfig
from tests.ingest.test_machine import assert_conserved, attributes, of
from tests.simulation.client import Client, clients_in
from tests.simulation.collector import STRANGE, Collector
from tests.simulation.network import Faults, Network
from tests.simulation.world import MS, SECOND, World

_LIFE = 500 * MS

Crowd = Literal["strangers", "own streams"]
LIMITS: dict[Crowd, LedgerConfig] = {
    "strangers": LedgerConfig(source_streams_max=64),
    "own streams": LedgerConfig(streams_max=1),
}
"""Who wants more streams than there are places: others, which costs a life nothing; or a life itself,
of whose other streams nobody knows what is missing."""


class Event(NamedTuple):
    life: int
    stream: int
    number: int


@dataclass
class Life:
    """What one life emitted. `delivered` are the events that were recorded before the client last
    said that all was; `excused` is how many of them it had said it discarded."""

    sent: list[Event] = field(default_factory=list)
    discarded: set[Event] = field(default_factory=set)
    delivered: int = 0
    excused: int = 0
    ended: bool = False
    """Whether it said goodbye and was told that all was delivered."""


class Simulation:
    def __init__(self, seed: int, crowd: Crowd | None = None) -> None:
        self.world = world = World(seed)
        self._random = random = world.random("course")
        calm = random.random() < 0.2
        self._one_address = random.random() < 0.6
        late = 1.5 if self._one_address else 4.0
        self.network = Network(world, Faults() if calm else _faults(random, late))
        limits = LIMITS[crowd] if crowd else LedgerConfig()
        self.collector = Collector(world, self.network, limits, crowded=crowd == "strangers")
        self.lives: list[Life] = []
        self.uncounted: set[tuple[int, int]] = set()
        """Life and stream of which nobody knows what is missing; known after `check`."""
        self._kills = 0 if random.random() < 0.3 else random.randint(1, 4)
        self._stopped_first = random.random() < 0.2
        """Whether the collector is stopped before the first life begins."""
        self._buffer = random.choice([2**15, 2**17, 2**22])

    def run(self) -> None:
        """Live all lives, and end the collector."""
        world, random = self.world, self._random
        with clients_in(world):
            self.collector.start()
            if self._stopped_first:
                self.collector.stop()
            self._plan_kills()
            self._plan_stops()
            for number in range(random.randint(1, 4)):
                self.lives.append(Life())
                self._live(number, self.lives[-1])
                world.run(random.choice([0, 100 * MS, 300 * MS, SECOND, 5 * SECOND, 20 * SECOND]))
            world.run(30 * SECOND)
            self.collector.go_on()
            if not self.collector.alive:
                self.collector.start()
            self.collector.end()

    def _plan_kills(self) -> None:
        random, world = self._random, self.world
        at = 0
        for _ in range(self._kills):
            at += random.randrange(10 * SECOND)
            world.after(at, self._kill)
            at += random.choice([10 * MS, 500 * MS, 3 * SECOND])
            world.after(at, self._start)

    def _plan_stops(self) -> None:
        random, at = self.world.random("stops"), 0
        for _ in range(random.randint(0, 3)):
            at += random.randrange(10 * SECOND)
            self.world.after(at, self.collector.stop)
            at += random.choice([100 * MS, SECOND, 20 * SECOND])
            self.world.after(at, self.collector.go_on)

    def _kill(self) -> None:
        if self.collector.alive:
            self.collector.kill()

    def _start(self) -> None:
        if not self.collector.alive:
            self.collector.start()

    def _live(self, number: int, life: Life) -> None:
        random, world = self._random, self.world
        address = "client:1" if self._one_address else f"client:{number}"
        begin = world.now
        client = Client(world, self.network, address, buffer_bytes=self._buffer)
        next_: Counter[int] = Counter()
        streams = random.sample(range(1, 9), random.randint(1, 3))
        for _ in range(random.randint(1, 12)):
            for _ in range(random.choice([1, 10, 100, 500, 2000])):
                self._emit(
                    client, life, Event(number, stream := random.choice(streams), next_[stream])
                )
                next_[stream] += 1
                if random.random() < 0.1:
                    world.run(random.randrange(20 * MS))
            world.run(random.choice([0, MS, 50 * MS, SECOND, 4 * SECOND]))
            if random.random() < 0.3:
                self._told(client, life, client.emitter.flush(random.choice([0.5, 3.0, 10.0])))
        if random.random() < 0.4:
            world.run(max(0, begin + _LIFE - world.now))
            client.kill()
        else:
            sent, excused = len(life.sent), client.discarded
            life.ended = client.close(random.choice([1.0, 5.0, 15.0]))
            world.run(max(0, begin + _LIFE - world.now))
            if life.ended:
                life.delivered, life.excused = sent, excused

    def _emit(self, client: Client, life: Life, event: Event) -> None:
        before = client.discarded
        client.emitter.use_stream(event.stream)
        client.emitter.event(f"{event.life}/{event.stream}/{event.number}")
        life.sent.append(event)
        if client.discarded > before:
            life.discarded.add(event)

    def _told(self, client: Client, life: Life, delivered: bool) -> None:
        if delivered:
            life.delivered, life.excused = len(life.sent), client.discarded

    # The oracle

    def check(self) -> None:
        """Demand of the table what the book has."""
        rows = [row for row in self.collector.rows if int(row["stream"] or 0) < STRANGE]
        spans = of(rows, "span")
        stored = Counter(_event(row) for row in spans)
        sessions: dict[str, set[int]] = {}
        for row in spans:
            sessions.setdefault(row["session"], set()).add(_event(row).life)
        assert [s for s, lives in sessions.items() if len(lives) > 1] == [], "two programs in one"
        self.uncounted = _uncounted(rows, sessions)
        twice = [e for e, times in stored.items() if times > 1 and e[:2] not in self.uncounted]
        assert twice == [], "stored twice"
        for row in spans:
            event = _event(row)
            assert row["seq"] == event.number or (
                row["seq"] is None and event[:2] in self.uncounted
            ), "another number"
        self._check_delivered(stored)
        self._check_gaps(rows, stored, sessions)
        assert_conserved(self.collector.ingest)

    def _check_delivered(self, stored: Counter[Event]) -> None:
        for number, life in enumerate(self.lives):
            lacking = [event for event in life.sent[: life.delivered] if event not in stored]
            assert len(lacking) <= life.excused, f"life {number}: delivered and lost: {lacking[:9]}"

    def _check_gaps(
        self, rows: list[dict[str, Any]], stored: Counter[Event], sessions: dict[str, set[int]]
    ) -> None:
        """No gap has what is stored; what is not stored, and was not the last, is in a gap."""
        missing: Counter[Event] = Counter()
        for row in of(rows, "gap") + of(rows, "heal"):
            lives = sessions.get(row["session"])
            if row["seq"] is None or not lives:
                continue
            about = attributes(row)
            last = about.get("last", row["seq"] + about["count"] - 1)
            (life,) = lives
            for number in range(row["seq"], last + 1):
                missing[Event(life, int(row["stream"]), number)] += (
                    1 if row["kind"] == "gap" else -1
                )
        named = {event for event, times in missing.items() if times > 0}
        assert sorted(named & stored.keys()) == [], "stored and in a gap"
        highest: dict[tuple[int, int], int] = {}
        for event in stored:
            key = event.life, event.stream
            highest[key] = max(highest.get(key, 0), event.number)
        for life in self.lives:
            for event in life.sent:
                known = life.ended or event.number < highest.get((event.life, event.stream), 0)
                if known and event not in stored and event[:2] not in self.uncounted:
                    assert event in named, f"nowhere and in no gap: {event}"


def _uncounted(rows: list[dict[str, Any]], sessions: dict[str, set[int]]) -> set[tuple[int, int]]:
    """Return life and stream of each gap that says that nobody knows what is missing."""
    gaps = [row for row in of(rows, "gap") if row["name"] == "uncounted"]
    return {(life, int(row["stream"])) for row in gaps for life in sessions.get(row["session"], ())}


def _event(row: dict[str, Any]) -> Event:
    return Event(*map(int, row["name"].split("/")))


def _faults(random: Random, very_late_seconds: float) -> Faults:
    def some(most: float) -> float:
        return 0.0 if random.random() < 0.4 else random.random() * most

    return Faults(some(0.2), some(0.1), some(0.3), some(0.02), very_late_seconds)
