"""Plays a scenario: programs with real clients, a network, and a collector with the real ingest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from tests.simulation import facts
from tests.simulation.client import Client, clients_in
from tests.simulation.collector import Collector
from tests.simulation.facts import Scenario
from tests.simulation.network import Network
from tests.simulation.raw import Raw
from tests.simulation.world import SECOND, World
from tests.simulation.yard import Yard

SETTLE = 30 * SECOND
"""Longer than the collector waits for late events."""


class Event(NamedTuple):
    program: int
    stream: int
    number: int


@dataclass
class Program:
    """What one program emitted, and what its client told it.

    `delivered` are the events that the program had emitted when the client last said that all was delivered;
    `excused`: how many of them the client had said that it discarded."""

    begin: facts.Begin
    sent: list[Event] = field(default_factory=list)
    numbers: Counter[int] = field(default_factory=Counter)
    delivered: int = 0
    excused: int = 0
    ended: bool = False
    """Whether the client said goodbye, and said that all was delivered."""
    client: Client | None = None
    closing: tuple[int, int] | None = None
    """When the program began to end in order, and by when the client had to be done (ages, ns)."""


class Play:
    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.world = World(scenario.seed)
        self.network = Network(self.world, scenario.fates)
        self.yard = Yard(self.world, scenario)
        self.collector = Collector(
            self.world, self.network, scenario.queue, scenario.places, self.yard.around
        )
        self.programs: dict[int, Program] = {}
        self._addresses: dict[str, Program] = {}

    def run(self) -> None:
        """Play all facts, wait until nothing can be late, and stop the collector."""
        world = self.world
        courses: dict[int, list[facts.Fact]] = defaultdict(list)
        with clients_in(world):
            try:
                self.collector.start()
                for fact in self.scenario.facts:
                    if isinstance(fact, facts.Emit | facts.Flush | facts.Close):
                        courses[fact.program].append(fact)
                    elif not isinstance(fact, facts.Begin):
                        world.at(fact.at, partial(self._happen, fact))
                for fact in self.scenario.facts:
                    if isinstance(fact, facts.Begin):
                        world.at(fact.at, partial(self._begin, fact, courses[fact.program]))
                last = max((fact.at for fact in self.scenario.facts), default=0)
                world.run(last + SETTLE)
                self.collector.stop()
            finally:
                self.yard.close()
                world.close()

    @property
    def trace(self) -> str:
        """Return a digest of all that went through the network and into the log from files, and when."""
        return self.network.trace + self.yard.trace

    def _happen(self, fact: facts.Fact) -> None:
        collector = self.collector
        if isinstance(fact, facts.OfTrace):
            self.yard.happen(fact)
        match fact:
            case facts.Kill():
                self._kill(self.programs.get(fact.program))
            case facts.KillCollector():
                collector.kill()
                self.yard.forget()
            case facts.StartCollector():
                collector.start()
            case facts.Suspend():
                collector.suspend(fact.duration)
            case facts.FullDisk():
                collector.disk.full = True
                self.world.after(fact.duration, collector.disk.empty)
            case facts.TableDown():
                collector.disk.table.break_(landed=fact.landed)
                self.world.after(fact.duration, collector.disk.table.mend)
            case facts.Partition():
                self.network.part(fact.duration)
            case facts.Reset():
                self._reset(self.programs.get(fact.program))

    def _begin(self, fact: facts.Begin, course: list[facts.Fact]) -> None:
        before = self._addresses.get(fact.address)
        if before is not None:
            self._kill(before)
            self.network.spare(fact.address)
        program = self.programs[fact.program] = self._addresses[fact.address] = Program(fact)
        self.world.spawn(partial(self._live, program, course), program)

    def _kill(self, program: Program | None) -> None:
        if program is not None:
            self.world.kill(program)
            if program.client is not None:
                program.client.transport.close()

    def _reset(self, program: Program | None) -> None:
        client = program.client if program else None
        connection = getattr(client.transport, "connection", None) if client else None
        if connection is not None:
            connection.reset()

    def _live(self, program: Program, course: list[facts.Fact]) -> None:
        begin = program.begin
        if begin.transport == "raw":
            self._live_raw(program, course)
            return
        client = program.client = Client(
            self.world, self.network, begin.transport, begin.address, buffer_bytes=begin.buffer
        )
        for fact in course:
            self.world.sleep(max(0, fact.at - self.world.age))
            match fact:
                case facts.Emit():
                    self._emit(program, fact, client.emit)
                case facts.Flush():
                    self._told(program, client, client.emitter.flush(fact.seconds))
                case facts.Close():
                    sent, excused = len(program.sent), client.discarded
                    age = self.world.age
                    program.closing = (age, age + round(fact.seconds * SECOND))
                    program.ended = client.emitter.close(fact.seconds)
                    if program.ended:
                        program.delivered, program.excused = sent, excused
                    return
                case _:
                    raise AssertionError(fact)

    def _live_raw(self, program: Program, course: list[facts.Fact]) -> None:
        raw = Raw(self.world, self.network, program.begin.address)
        for fact in course:
            self.world.sleep(max(0, fact.at - self.world.age))
            assert isinstance(fact, facts.Emit)
            self._emit(program, fact, raw.event)

    def _emit(
        self, program: Program, fact: facts.Emit, emit: Callable[[int, int, str], None]
    ) -> None:
        for number in range(fact.count):
            event = Event(program.begin.program, fact.stream, program.numbers[fact.stream])
            program.numbers[fact.stream] += 1
            program.sent.append(event)
            emit(event.stream, event.number, "/".join(map(str, event)))
            if fact.over and number % 10 == 9:
                self.world.sleep(10 * fact.over // fact.count)

    def _told(self, program: Program, client: Client, delivered: bool) -> None:
        if delivered:
            program.delivered, program.excused = len(program.sent), client.discarded
