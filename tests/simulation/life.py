"""One process of the collector: the daemon's loops, spool and sources, from a start to an end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tailrace.config.load import Loaded
from tailrace.config.schema import Config, TcpConfig, UdpConfig
from tailrace.figures import Figures
from tailrace.ingest.ahead import Ahead
from tailrace.ingest.machine import Rejected
from tailrace.pipeline.current import Current
from tailrace.pipeline.health import Health
from tailrace.pipeline.intake import SourceIntake
from tailrace.pipeline.loops import Chance, Loops, Opened
from tailrace.pipeline.replay import restored
from tailrace.pipeline.steps import Steps, wait
from tailrace.sources.connection import Connection as Served
from tailrace.sources.connections import ConnectionSource
from tailrace.sources.tcp import TcpListener
from tailrace.sources.udp import LOOK_EVERY, UdpSource
from tailrace.spool.checkpoint import Checkpoints
from tailrace.spool.disk import Disk as SpoolDisk
from tailrace.spool.segment import HEADER_SIZE, segment_first
from tailrace.spool.spool import Spool
from tailrace.spool.writer import SPARE_NAME
from tests.simulation.disk import Disk
from tests.simulation.driving import Driver
from tests.simulation.network import COLLECTOR, Connection, Network
from tests.simulation.sockets import Datagrams, Stream
from tests.simulation.table import Quarantine, Table
from tests.simulation.world import BEGIN, SECOND, World

DIRECTORY = Path("/spool")
SOON, LATER = 0.001, 0.05
"""Seconds until a process that waits for a socket runs, and until a full socket is tried again."""


@dataclass
class Machine:
    """What outlives a process."""

    disk: Disk
    table: Table = field(default_factory=Table)
    quarantine: Quarantine = field(default_factory=Quarantine)
    sockets: int = 0
    """Sockets that there ever were."""


class Clock:
    """The world's (see `tailrace.clock.Clock`)."""

    def __init__(self, world: World) -> None:
        self._world = world

    def wall_ns(self) -> int:
        return self._world.now

    def monotonic(self) -> float:
        return (self._world.now - BEGIN) / SECOND


class Voice:
    """A source, whose replies are watched."""

    def __init__(self, source: UdpSource | ConnectionSource, watch: Callable[[], None]) -> None:
        self.hears = source.hears
        self._source = source
        self._watch = watch

    def reply(self, number: int, data: bytes) -> bool:
        self._watch()
        return self._source.reply(number, data)


class Life:
    """A process. `ended` is told what ended it: None for a stop in order, else what was raised."""

    def __init__(
        self,
        world: World,
        network: Network,
        machine: Machine,
        *,
        config: Config,
        queue: int,
        random: Random,
        ended: Callable[[BaseException | None], None],
    ) -> None:
        """Open what is on disk. Raise StoreError, FullError, SyncError or Crash."""
        self._network = network
        self._config = config
        self._disk = machine.disk
        self._clock = Clock(world)
        self._random = random
        self._ended = ended
        self._driver = Driver(world, random, self._fail)
        self._current = Current(Loaded(config, None, ""), self._clock)
        machine.sockets += 1
        self.socket = Datagrams(network, queue, machine.sockets)
        disk = SpoolDisk(machine.disk)
        checkpoints = Checkpoints(DIRECTORY, disk)
        spool = Spool.open(DIRECTORY, config.spool, self._clock, disk)
        table = machine.table.opened()
        committed = machine.table.position() or 0
        self.ingest = restored(spool, checkpoints.newest(committed), committed)
        self._udp = UdpSource("udp", self._source("udp", UdpConfig), self._clock)
        tcp = self._source("tcp", TcpConfig)
        self._tcp = ConnectionSource(tcp, TcpListener(tcp))
        self._connections: dict[Served, Stream] = {}
        self._intakes: dict[str, SourceIntake] = {}
        self._stopping = False
        self.health = Health()
        self.loops = Loops(
            Opened(
                spool,
                self.ingest,
                table,
                machine.quarantine,
                checkpoints,
                committed,
            ),
            {"udp": Voice(self._udp, self._check), "tcp": Voice(self._tcp, self._check)},
            self._current,
            self._clock,
            health=self.health,
            figures=Figures(),
            cut=self._cut,
            chance=Chance(random.randbytes, random.random),
        )
        network.attach(COLLECTOR, self.socket.receive)
        self._driver.drive(self._begin())

    def _source(self, name: str, kind: type) -> UdpConfig | TcpConfig:
        config = self._config.sources[name]
        assert isinstance(config, kind)
        return config

    def pause(self, until: int) -> None:
        """Do nothing until the world is so old (ns)."""
        self._driver.works_again = max(self._driver.works_again, until)

    def go_on(self) -> None:
        self._driver.works_again = 0

    def end(self) -> None:
        """Be no more."""
        self._driver.dead = True
        self._network.attach(COLLECTOR, None)
        self._network.listen(None)
        for stream in self._connections.values():
            stream.connection.reset()

    def stop(self) -> None:
        """End in order, in some time."""
        self._driver.drive(self._stop())

    def _check(self) -> None:
        """What is acknowledged outlives a power cut."""
        position = self.ingest.position
        for path in self._disk.paths():
            name = path.name
            if name.endswith(".segment") and name != SPARE_NAME:
                size = min(HEADER_SIZE + position - segment_first(path), self._disk.length(path))
                assert size < HEADER_SIZE or self._disk.keeps(path, size), f"{name} is not synced"

    def _fail(self, error: BaseException) -> None:
        if not self._driver.dead:
            self._ended(error)

    def _begin(self) -> Steps[None]:
        loops = self.loops
        ahead = yield from loops.begin()
        for steps in (
            loops.syncing.run(), loops.decoding.run(), loops.commit(), loops.tick(),
        ):  # fmt: skip
            self._driver.drive(steps)
        for name in ("udp", "tcp"):
            self._intakes[name] = self._intake(name, ahead)
        self._udp.begin(self.socket, self._intakes["udp"])
        self._tcp.begin(self._intakes["tcp"])
        self._network.listen(self._accept)
        self._driver.drive(self._receive())
        self._driver.drive(self._look_around())
        self._driver.drive(loops.answer())
        if loops.heartbeats:
            self._driver.drive(loops.heartbeats.run())
        loops.syncing.admit()

    def _intake(self, name: str, ahead: Ahead) -> SourceIntake:
        earlier = {n: info for n, info in ahead.sessions.items() if info.source == name}
        return SourceIntake(
            name, "heph", self._current, spool=self.loops.spool, gate=self.loops.gate,
            ingest=self.ingest, ahead=ahead, clock=self._clock, earlier=earlier,
            entropy=self._random.randbytes,
        )  # fmt: skip

    def _room(self) -> Steps[None]:
        while self.loops.gate.closed:
            yield from wait(flag=self.loops.gate.opened)

    def _receive(self) -> Steps[None]:
        """Receive datagrams (see `UdpSource.run`)."""
        while not self._stopping:
            yield from self._room()
            yield from wait(flag=self.socket.readable)
            yield from wait(SOON)
            self._udp.drain(self._intakes["udp"])

    def _look_around(self) -> Steps[None]:
        while not self._stopping:
            yield from wait(LOOK_EVERY)
            self._udp.look_around(self._intakes["udp"])

    def _accept(self, connection: Connection) -> None:
        stream = Stream(connection)
        served = Served(stream, connection.source, connection.source.rpartition(":")[0])
        self._connections[served] = stream
        self._tcp.open(served, self._intakes["tcp"])
        self._driver.drive(self._serve(served, stream))

    def _serve(self, served: Served, stream: Stream) -> Steps[None]:
        """Take in what comes on a connection (see `ConnectionSource._receive`)."""
        intake = self._intakes["tcp"]
        with served.answering(lambda: self._driver.drive(self._send_rest(served))):
            ended = None
            while ended is None and served in self._connections:
                yield from self._room()
                yield from wait(flag=stream.readable)
                yield from wait(SOON)
                if served in self._connections:
                    ended = self._tcp.take_in(served, intake)
        self._over(served, ended)

    def _send_rest(self, served: Served) -> Steps[None]:
        while served in self._connections and served.send_more():
            yield from wait(LATER)

    def _over(self, served: Served, ended: str | None) -> None:
        if (stream := self._connections.pop(served, None)) is None:
            return
        served.reason = ended or served.reason
        served.close()
        stream.close()
        self._tcp.over(served, self._intakes["tcp"])

    def _cut(self, rejected: Rejected) -> None:
        for served in list(self._connections):
            if served.number == rejected.number:
                self._over(served, rejected.why)

    def _stop(self) -> Steps[None]:
        self.health.stopping()
        yield from self.loops.say_last()
        self._stopping = True
        self._udp.finish(self._intakes["udp"])
        for served in list(self._connections):
            self._tcp.drain(served, self._intakes["tcp"])
            self._over(served, None)
        self._network.attach(COLLECTOR, None)
        self._network.listen(None)
        complete = yield from self.loops.finish(last=True)
        assert complete, "a stop left something in the spool"
        self._driver.dead = True
        self._ended(None)
