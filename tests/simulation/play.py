"""Play a scenario: programs with real clients, a network, and a collector with the real ingest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b

import msgspec

from tailrace.units import Duration
from tests.ingest.log import heph_epoch
from tests.simulation import counting, facts, waiting
from tests.simulation.budgets import limits_of
from tests.simulation.client import Client, clients_in
from tests.simulation.clocks import HostTime
from tests.simulation.collector import Collector
from tests.simulation.facts import Scenario
from tests.simulation.network import KEEPALIVE, Connection, Network, Road
from tests.simulation.producers import TRANSPORTS, Producer, producer
from tests.simulation.watch import Watch
from tests.simulation.wire import Sent
from tests.simulation.words import Event
from tests.simulation.world import MS, SECOND, World
from tests.simulation.yard import Yard

SETTLE = 30 * SECOND
"""Time (ns) that is longer than the collector waits for late events."""
BOOT = MS
"""Time (ns) that is longer than a program runs before its clock begins, and then before its first event.

No two programs run equally long, because the collector takes events of equal times and sizes for the same event
(ARCHITECTURE.md, "Blind spots").
"""
COURSE = facts.Emit | facts.Flush | facts.Close | facts.Garble | facts.Discard
"""Facts that happen within a program, one after the other."""
FLOOD, FLOODS_BEGAN = "flood-", 10**17
"""The address of a flood, to which its number is appended, and its first epoch, which no program has."""
TORN = 9
"""The stream of events that are sent beside noise, or incompletely."""


@dataclass
class Program:
    """The events of one program, and what its client told it.

    `delivered` are the events that the program had emitted when it asked whether everything was delivered and the
    client last confirmed it. `excused` is the number of events that the client had refused to accept by then.
    """

    begin: facts.Begin
    sent: list[Event] = field(default_factory=list)
    numbers: Counter[int] = field(default_factory=Counter)
    delivered: int = 0
    excused: int = 0
    ended: bool = False
    """Whether the client sent a goodbye, and knew that everything was delivered."""
    over: bool = False
    """Whether the program was killed or has ended in order."""
    client: Client | None = None
    producer: Producer | None = None
    """The producer, if the program has no client."""
    time: HostTime | None = None
    """The clocks of the program's host."""
    began: int = 0
    """The age of the world (ns) when the program began."""
    torn: set[Event] = field(default_factory=set)
    """Events of which only a piece was sent, or nothing."""
    thrown: int = 0
    unnumbered: int = 0
    """Events that were discarded, with a number and without one."""
    closing: tuple[int, int] | None = None
    """The age (ns) at which the program began to end in order, and the age by which the client had to be done."""


class Play:
    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.world = World(scenario.seed)
        self.network = Network(self.world, scenario.fates, scenario.segment)
        self.sent = Sent()
        self.watch = Watch(scenario)
        self.yard = Yard(self.world, scenario)
        self.collector = Collector(
            self.world,
            self.network,
            scenario.queue,
            limits_of(scenario),
            self.watch,
            scenario.spool,
            self.yard.around,
            batch=scenario.batch,
            stalls=scenario.stalls,
            names_are_lost=any(isinstance(fact, facts.LoseName) for fact in scenario.facts),
        )
        self.networks, self.watches, self.collectors = (
            [self.network],
            [self.watch],
            [self.collector],
        )
        self.yard.give_clock(self.collector.clock.wall_ns)
        self.programs: dict[int, Program] = {}
        self._addresses: dict[str, Program] = {}

    def run(self) -> None:
        """Play all facts, wait until nothing can be late any more, and stop the collector."""
        world = self.world
        courses: dict[int, list[facts.Fact]] = defaultdict(list)
        times = lambda group: group.time if isinstance(group, Program) else None  # noqa: E731
        with clients_in(world, times), counting.watched():
            try:
                for collector in self.collectors:
                    collector.start()
                for fact in self.scenario.facts:
                    if isinstance(fact, COURSE):
                        courses[fact.program].append(fact)
                    elif not isinstance(fact, facts.Begin):
                        world.at(fact.at, partial(self._happen, fact))
                for fact in self.scenario.facts:
                    if isinstance(fact, facts.Begin):
                        world.at(fact.at, partial(self._begin, fact, courses[fact.program]))
                last = max((fact.at for fact in self.scenario.facts), default=0)
                world.run(last + SETTLE)
                waiting.check(self)
                for collector in self.collectors:
                    collector.stop()
            finally:
                self.yard.close()
                world.close()

    @property
    def trace(self) -> str:
        """Return a digest of everything that went through the network, and from files into the log, with the times, and
        of the table.
        """
        return "-".join(map(_trace, self.networks, self.collectors)) + self.yard.trace

    def alone(self) -> Iterator[Play]:
        """Yield the play as each collector sees it."""
        yield self

    def first(self, program: int) -> int:
        """Return the number of the first event of a program's streams."""
        return self.programs[program].begin.first

    def _road(self, program: int) -> Road:
        """Return the network or the balancer through which a program's client reaches collectors."""
        del program
        return self.network

    def _happen(self, fact: facts.Fact) -> None:
        number = fact.collector if isinstance(fact, facts.OfCollector) else 0
        collector, network = self.collectors[number], self.networks[number]
        if isinstance(fact, facts.OfTrace):
            self.yard.happen(fact)
        match fact:
            case facts.Kill():
                self._kill(self.programs.get(fact.program))
            case facts.KillCollector():
                collector.kill(power=fact.power, changes=fact.changes)
            case facts.StartCollector():
                collector.start()
            case facts.Suspend():
                collector.suspend(fact.duration)
            case facts.FullDisk():
                collector.disk.full = collector.table.full = True
                self.world.after(fact.duration, collector.disk.empty)
                self.world.after(fact.duration, collector.table.empty)
            case facts.DiskFails():
                collector.disk.broken = fact.call
            case facts.Rot():
                collector.rot(fact.file, fact.share)
            case facts.LoseName():
                self._lose_name(collector, fact)
            case facts.TableDown():
                for each in self.collectors:
                    each.table.break_(landed=fact.landed)
                    self.world.after(fact.duration, each.table.mend)
            case facts.Partition():
                network.part(fact.duration)
            case facts.Reset():
                if connection := self._connection(fact.program):
                    connection.reset()
            case facts.Tear():
                if connection := self._connection(fact.program):
                    connection.tear(fact.later)
            case facts.Vanish():
                self._vanish(fact.program)
            case facts.Deaf():
                program = self.programs.get(fact.program)
                if program is not None and program.client is not None:
                    program.client.transport.deaf_until = self.world.age + fact.duration
            case facts.Flood():
                self._flood(fact)
            case facts.SetClock():
                collector.clock.step(fact.by)
            case facts.Drift():
                collector.clock.run(fact.pace)
            case facts.Reload():
                limits = msgspec.structs.replace(
                    collector.limits,
                    reorder_events=fact.reorder_events,
                    reorder_time=Duration(fact.reorder_seconds),
                )
                collector.reload(limits, fact.without, fact.duration, fact.renamed)

    def _lose_name(self, collector: Collector, fact: facts.LoseName) -> None:
        def happen() -> None:
            collector.losses.happen(fact, {n: len(p.sent) for n, p in self.programs.items()})

        if fact.call:
            collector.disk.ambush(fact.call, happen)
        else:
            happen()

    def _flood(self, fact: facts.Flood) -> None:
        with suppress(ConnectionRefusedError):
            connection = self.network.connect(f"{FLOOD}{fact.number}:1")
            epochs = (heph_epoch(FLOODS_BEGAN + n) for n in range(fact.epochs))
            connection.send(connection.up, b"".join(epochs))
            connection.end(connection.up)

    def _begin(self, fact: facts.Begin, course: list[facts.Fact]) -> None:
        before = self._addresses.get(fact.address)
        follows = fact.on is not None and before is not None and before.begin.program == fact.on
        if before is not None:
            self._kill(before, hang_up=not follows)
        if fact.introduced or (before is not None and fact.transport == "jets-udp"):
            self.network.introduce(fact.address)
        program = self.programs[fact.program] = self._addresses[fact.address] = Program(fact)
        program.time, program.began = HostTime(self.world, fact.clock, fact.pace), self.world.age
        former = before.producer if before is not None and follows else None
        self.world.spawn(partial(self._live, program, course, former), program)

    def _kill(self, program: Program | None, *, hang_up: bool = True) -> None:
        if program is not None:
            program.over = True
            self.world.kill(program)
            if program.client is not None:
                program.client.transport.close()
            elif program.producer is not None and hang_up:
                program.producer.sender.end()

    def _vanish(self, number: int) -> None:
        """End a program and its host. The collector is not told; its kernel notices by itself."""
        program, connection = self.programs.get(number), self._connection(number)
        if program is not None:
            program.over = True
            self.world.kill(program)
        if connection is not None:
            connection.tear(KEEPALIVE)

    def _connection(self, number: int) -> Connection | None:
        program = self.programs.get(number)
        if program is None:
            return None
        if program.producer is not None:
            return program.producer.sender.connection
        return getattr(program.client.transport, "connection", None) if program.client else None

    def _live(self, program: Program, course: list[facts.Fact], former: Producer | None) -> None:
        begin = program.begin
        boot = self.world.random(f"boot/{begin.program}")
        self.world.sleep(boot.randrange(BOOT))
        if begin.transport in TRANSPORTS:
            self._live_raw(program, course, former, boot.randrange(BOOT))
            return
        client = program.client = Client(
            self.world,
            self._road(begin.program),
            begin.transport,
            begin.address,
            buffer_bytes=begin.buffer,
            acknowledge=begin.acknowledge,
        )
        client.watched(self.watches, begin.program, begin.address)
        self.world.sleep(boot.randrange(BOOT))
        if beside := [f for f in course if isinstance(f, facts.Emit) and f.beside]:
            self.world.spawn(partial(self._live_beside, program, beside, client))
            course = [fact for fact in course if fact not in beside]
        for fact in course:
            self.world.sleep(max(0, fact.at - self.world.age))
            match fact:
                case facts.Emit():
                    self._emit(program, fact, client.emit)
                case facts.Flush():
                    sent, numbers = len(program.sent), program.numbers.copy()
                    if client.emitter.flush(fact.seconds):
                        self._told(program, client, sent, numbers)
                case facts.Close():
                    sent = len(program.sent)
                    age = self.world.age
                    program.closing = (age, age + round(fact.seconds * SECOND))
                    done = client.emitter.close(fact.seconds)
                    program.ended = done and begin.acknowledge
                    program.over = True
                    if program.ended:
                        program.delivered, program.excused = sent, client.refused
                    return
                case _:
                    raise AssertionError(fact)

    def _live_beside(self, program: Program, course: list[facts.Emit], client: Client) -> None:
        for fact in course:
            self.world.sleep(max(0, fact.at - self.world.age))
            if not program.over:
                self._emit(program, fact, client.emit)

    def _live_raw(
        self, program: Program, course: list[facts.Fact], former: Producer | None, boot: int
    ) -> None:
        assert program.time is not None
        own = program.producer = producer(
            self.world, self.network, self.sent, program.begin, program.time
        )
        if former is not None and not own.sender.connectionless:
            own.sender.go_on(former.sender)
        self.world.sleep(boot)
        for fact in course:
            self.world.sleep(max(0, fact.at - self.world.age))
            match fact:
                case facts.Emit():
                    self._emit(program, fact, own.event)
                case facts.Garble():
                    (event,) = self._number(program, TORN, 1)
                    if fact.how == "torn":
                        program.torn.add(event)
                    own.garble(fact.how, event.stream, event.number, event.name)
                case facts.Discard():
                    events = self._number(program, fact.stream, fact.count)
                    program.torn.update(events)
                    program.thrown += fact.count
                    program.unnumbered += fact.unnumbered
                    own.discard(fact.stream, events[0].number, fact.count, fact.unnumbered)
                case facts.Close():
                    own.close()
                    return
                case facts.Flush():
                    pass

    def _number(self, program: Program, stream: int, count: int) -> list[Event]:
        """Return the numbers of the next events of a stream."""
        first = program.numbers[stream]
        events = [Event(program.begin.program, stream, first + n) for n in range(count)]
        program.numbers[stream] += count
        program.sent += events
        return events

    def _emit(
        self, program: Program, fact: facts.Emit, emit: Callable[[int, int, str], None]
    ) -> None:
        for number in range(fact.count):
            (event,) = self._number(program, fact.stream, 1)
            emit(event.stream, event.number, event.name)
            if fact.over and number % 10 == 9:
                self.world.sleep(10 * fact.over // fact.count)

    def _told(
        self, program: Program, client: Client, sent: int, numbers: Mapping[int, int]
    ) -> None:
        """Record that the client calls this number of events delivered: those below the given numbers."""
        if program.begin.acknowledge:
            program.delivered, program.excused = sent, client.refused
            assert client.hearing is not None
            client.hearing.believes(numbers.items())


def _trace(network: Network, collector: Collector) -> str:
    rows = blake2b(msgspec.json.encode(collector.rows), digest_size=8).hexdigest()
    return f"{network.trace}-{rows}"
