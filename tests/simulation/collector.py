"""A collector: the real ingest between sources and loops that have the daemon's order and times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.ahead import Ahead
from tailrace.ingest.machine import Ingest
from tailrace.spool.entry import LAST, EntryKind
from tests.ingest.log import rows
from tests.simulation.network import COLLECTOR, Connection, Network
from tests.simulation.storage import Checkpoint, Disk, Refused
from tests.simulation.tail import FilesAround, Tail
from tests.simulation.world import MS, SECOND, World

DRAIN, LATER, SYNC, ANSWER, TICK, COMMIT = MS, 10 * MS, 50 * MS, 100 * MS, 500 * MS, SECOND
READ_MAX = 128 * 1024
CHECKPOINT_SHARE = 0.2


class Kernel:
    """The collector's socket for datagrams, which outlives a suspension and not a kill."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.came: Callable[[], None] = lambda: None
        self.queue: list[tuple[str, bytes]] = []
        self.dropped = 0

    def receive(self, source: str, datagram: bytes) -> None:
        if len(self.queue) < self.room:
            self.queue.append((source, datagram))
        else:
            self.dropped += 1
        self.came()


class Collector:
    def __init__(
        self,
        world: World,
        network: Network,
        queue: int,
        places: int,
        files: FilesAround | None = None,
    ) -> None:
        self.disk = Disk()
        self.dropped = 0
        """Datagrams that the kernel dropped, in all lives."""
        self._world = world
        self._network = network
        self._room = queue
        self._limits = LedgerConfig(source_streams_max=places)
        self._random = world.random("collector")
        self._files = files
        self._works_again = 0
        self._draining = False
        self.life: Life | None = None
        for period, step in (
            (SYNC, Life.sync), (ANSWER, Life.answer), (TICK, Life.tick), (COMMIT, Life.commit),
        ):  # fmt: skip
            world.every(period, partial(self._step, step))

    @property
    def rows(self) -> list[dict[str, Any]]:
        return self.disk.table.rows

    def start(self) -> None:
        if self.life is None:
            self.life = Life(
                self._world, self._network, self.disk, Kernel(self._room), self._came, self._limits
            )
            self.life.follow(self._files, lambda: self._works_again)

    def kill(self) -> None:
        """End at once."""
        if self.life is not None:
            self.life.end()
            self.dropped += self.life.kernel.dropped
            self.life = None
            self.disk.cut(self._random)

    def suspend(self, duration: int) -> None:
        """Do nothing for so many nanoseconds (SIGSTOP), while the kernel goes on receiving."""
        self._works_again = max(self._works_again, self._world.age + duration)

    def stop(self) -> None:
        """End in order, for good."""
        self._works_again = 0
        self.disk.full = self.disk.table.down = False
        self.start()
        assert self.life is not None
        self.life.stop()
        self.dropped += self.life.kernel.dropped

    def _came(self) -> None:
        """Take in what the kernel has, soon."""
        if not self._draining:
            self._draining = True
            self._world.after(DRAIN, self._drain)

    def _drain(self) -> None:
        if self._world.age < self._works_again or self.disk.full:
            self._world.after(LATER, self._drain)
        else:
            self._draining = False
            self._step(Life.drain)

    def _step(self, step: Callable[[Life], None]) -> None:
        if self.life is not None and self._world.age >= self._works_again:
            step(self.life)


class Life:
    """A process of the collector, from its start to its end."""

    def __init__(
        self,
        world: World,
        network: Network,
        disk: Disk,
        kernel: Kernel,
        came: Callable[[], None],
        limits: LedgerConfig,
    ) -> None:
        """`came` is called when the kernel has something for the collector."""
        self.kernel = kernel
        kernel.came = self._came = came
        self._world = world
        self._network = network
        self._limits = limits
        self._disk = disk
        self._random = world.random(f"life/{world.age}")
        newest = disk.newest()
        self.ingest = Ingest.restore(newest.snapshot) if newest else Ingest()
        self._replayed = disk.table.position
        self._told = 0
        """Drops that the log has."""
        self._emptied = world.now
        self._pending: tuple[list[dict[str, Any]], int, bytes | None] | None = None
        self._allowance: dict[int, int] = defaultdict(int)
        self._numbers: dict[str, int] = {}
        self._connections: dict[int, Connection] = {}
        self._follow: Callable[[], Tail] | None = None
        """Begins to follow files, once it is known how far they are read."""
        self.tail: Tail | None = None
        self._resume()
        network.attach(COLLECTOR, kernel.receive)
        network.listen(self._accept)

    def _resume(self) -> None:
        ahead = Ahead(self.ingest)
        for entry in self._disk.read(self.ingest.position):
            ahead.apply(entry)
        self._left = self._disk.durable
        self._add(EntryKind.START)
        for number, info in ahead.sessions.items():
            if info.transport == "udp":
                self._numbers[info.peer] = number
            elif not info.file:
                self._disk.log.close(number, "collector restart")

    def follow(self, files: FilesAround | None, works_again: Callable[[], int]) -> None:
        """Follow files, if there are any, once all is decoded that an earlier life left."""
        if files:
            self._follow = lambda: Tail(
                self._world, self._disk.log, self.ingest, self._limits, files,
                lambda: self._disk.full, works_again,
            )  # fmt: skip

    def end(self) -> None:
        if self.tail:
            self.tail.end()
        self._network.attach(COLLECTOR, None)
        self._network.listen(None)
        for connection in self._connections.values():
            connection.reset()

    def stop(self) -> None:
        self.drain()
        if self.tail:
            self.tail.end()
        self._network.attach(COLLECTOR, None)
        self._network.listen(None)
        self._add(EntryKind.STOP, LAST)
        self.sync()
        while self.ingest.position < self._disk.durable:
            self._decode()
        self.commit()
        self.commit()
        assert self._disk.table.position == self._disk.durable

    def _add(self, kind: EntryKind, payload: bytes = b"") -> None:
        self._disk.log.now = self._world.now
        self._disk.log.add(kind, payload=payload)

    # The loops

    def drain(self) -> None:
        """Take in what the kernel has."""
        log, kernel = self._disk.log, self.kernel
        log.now = self._world.now
        if kernel.dropped > self._told:
            log.drops(kernel.dropped - self._told, source="udp", since=self._emptied)
            self._told = kernel.dropped
        received: dict[str, list[bytes]] = defaultdict(list)
        for source, datagram in kernel.queue:
            received[source].append(datagram)
        kernel.queue.clear()
        self._emptied = log.now
        for source, datagrams in received.items():
            if source not in self._numbers:
                self._numbers[source] = log.open(
                    source="udp", transport="udp", peer=source, limits=self._limits
                )
            number = self._numbers[source]
            log.datagrams(number, datagrams)
            self._allowance[number] += sum(map(len, datagrams))
        for number, connection in list(self._connections.items()):
            self._read(number, connection)

    def _accept(self, connection: Connection) -> None:
        self._disk.log.now = self._world.now
        number = self._disk.log.open(
            source="tcp", transport="tcp", peer=connection.source, limits=self._limits
        )
        self._connections[number] = connection
        connection.came = self._came

    def _read(self, number: int, connection: Connection) -> None:
        log, up = self._disk.log, connection.up
        if data := up.read(READ_MAX):
            log.data(number, data)
        if up.data:
            self._came()
        if connection.broken or (up.ended and not up.data):
            log.close(number, "reset" if connection.broken else "eof")
            if not connection.broken:
                connection.end(connection.down)
            del self._connections[number]

    def sync(self) -> None:
        if not self._disk.full:
            self._disk.sync()
            self._decode()

    def _decode(self) -> None:
        for entry in self._disk.read(self.ingest.position):
            self.ingest.apply(entry)
            if entry.end <= self._replayed:
                self.ingest.take()
        if self._follow and self.ingest.position >= self._left:
            self.tail, self._follow = self._follow(), None

    def answer(self) -> None:
        """Tell clients what is durable, once all that an earlier life left is decoded."""
        if self.ingest.position < self._left:
            return
        addresses = {number: address for address, number in self._numbers.items()}
        for answer in self.ingest.acknowledgements(self._hears):
            connection = self._connections.get(answer.number)
            if connection is not None:
                sent = 0 if connection.broken else connection.send(connection.down, answer.data)
                answer.taken = sent == len(answer.data)
            elif answer.number in addresses:
                answer.taken = len(answer.data) <= self._allowance[answer.number]
                if answer.taken:
                    self._allowance[answer.number] -= len(answer.data)
                    self._network.send(COLLECTOR, addresses[answer.number], answer.data)
            else:
                answer.taken = False

    def _hears(self, number: int) -> bool:
        connection = self._connections.get(number)
        if connection is not None:
            return not connection.broken and connection.down.room > READ_MAX // 4
        return self._allowance[number] > 0

    def tick(self) -> None:
        if self.ingest.waiting:
            self._add(EntryKind.TICK)

    def commit(self) -> None:
        """Commit what there is, or try again what was refused."""
        if self.ingest.position < self._replayed:
            return
        if self._pending is None:
            taken, kept = self.ingest.take()
            self._disk.quarantine(kept)
            due = self._random.random() < CHECKPOINT_SHARE
            self._pending = (
                rows(taken), self.ingest.position, self.ingest.snapshot() if due else None
            )  # fmt: skip
        made, position, snapshot = self._pending
        try:
            self._disk.table.commit(made, position)
        except Refused:
            return
        self._pending = None
        if snapshot is not None:
            self._disk.checkpoint(Checkpoint(position, snapshot))
