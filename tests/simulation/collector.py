"""A collector: the real ingest between sources and loops that have the daemon's order and times."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from tailrace.clock import Timeline
from tailrace.config.schema import LedgerConfig
from tailrace.decoding.formats import FORMATS
from tailrace.ingest.ahead import Ahead
from tailrace.ingest.machine import Ingest
from tailrace.ingest.session import readable
from tailrace.sources.udp import STRANGERS
from tailrace.spool.entry import LAST, Entry, EntryKind
from tests.ingest.log import rows
from tests.simulation import budgets, waiting
from tests.simulation.clocks import HostClock, timekeeping
from tests.simulation.network import COLLECTOR, JETS, Connection, Network
from tests.simulation.storage import Checkpoint, Disk, Refused
from tests.simulation.tail import FilesAround, Host, Tail
from tests.simulation.watch import Watch
from tests.simulation.world import MS, SECOND, World

DRAIN, LATER, SYNC, ANSWER, TICK, COMMIT = MS, 10 * MS, 50 * MS, 100 * MS, 500 * MS, SECOND
READ_MAX = 128 * 1024
RECORD_MAX = 2**20
DATAGRAM_SOURCES = {"udp": ("heph", COLLECTOR), "jets-udp": ("jets", JETS)}
STREAM_SOURCES = {COLLECTOR: ("tcp", "heph"), JETS: ("jets-tcp", "jets")}
"""Sources: their formats and addresses."""

CHECKPOINT_SHARE = 0.2


class Kernel:
    """The collector's socket for datagrams, which outlives a suspension and not a kill."""

    def __init__(self, room: int, watch: Watch) -> None:
        self.room = room
        self._watch = watch
        self.came: Callable[[], None] = lambda: None
        self.queue: list[tuple[str, bytes]] = []
        self.dropped = 0

    def receive(self, source: str, datagram: bytes) -> None:
        if len(self.queue) < self.room:
            self.queue.append((source, datagram))
        else:
            self.dropped += 1
            self._watch.lost(datagram)
        self.came()


class Collector:
    def __init__(
        self,
        world: World,
        network: Network,
        queue: int,
        limits: LedgerConfig,
        watch: Watch,
        files: FilesAround | None = None,
    ) -> None:
        self.disk = Disk()
        self._watch = watch
        self.dropped = 0
        """Datagrams that the kernel dropped, in all lives."""
        self._world = world
        self._network = network
        self._room = queue
        self.clock = HostClock(world)
        self.settings = Settings(limits)
        self.book = Book()
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
                self._world, self._network, self.disk, self._room, self._came,
                clock=self.clock, settings=self.settings, book=self.book, watch=self._watch,
            )  # fmt: skip
            self.life.follow(self._files, lambda: self._works_again)

    def kill(self) -> None:
        """End at once."""
        if self.life is not None:
            self.life.end()
            self.dropped += self.life.dropped
            self.life = None
            self._works_again = 0
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
        self.settings.without.clear()
        self.life.stop()
        self.dropped += self.life.dropped

    def reload(self, limits: LedgerConfig, without: str, duration: int) -> None:
        """Take other limits for new sessions; do without a source for so many nanoseconds."""
        settings = self.settings
        settings.limits = limits
        if without:
            settings.without[without] = settings.without.get(without, 0) + 1
            if self.life is not None:
                self.life.remove(without)
            self._world.after(duration, lambda: self._add(without))

    def _add(self, source: str) -> None:
        left = self.settings.without.get(source, 0) - 1
        self.settings.without[source] = max(0, left)
        if left == 0 and self.life is not None:
            self.life.add(source)

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


class Settings:
    """The configuration that runs."""

    def __init__(self, limits: LedgerConfig) -> None:
        self.limits = limits
        self.without: dict[str, int] = {}
        """By source, how many reloads have taken it away that are not over."""

    def has(self, source: str) -> bool:
        return not self.without.get(source)


class Opened(NamedTuple):
    """A session's beginning."""

    wall: int
    """What the wall clock showed (Unix ns)."""
    age: int
    """How old the world was (ns)."""
    format: str
    limits: LedgerConfig


class Book:
    """What the collector took in, for the oracle."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        """What was on disk and read from there, by position."""
        self.opened: dict[int, Opened] = {}
        """By session."""
        self.connections: dict[int, Connection] = {}
        """By session."""


class Life:
    """A process of the collector, from its start to its end."""

    def __init__(
        self,
        world: World,
        network: Network,
        disk: Disk,
        room: int,
        came: Callable[[], None],
        *,
        clock: HostClock,
        settings: Settings,
        book: Book,
        watch: Watch,
    ) -> None:
        """`came` is called when the kernel has something for the collector."""
        self._kernels = {name: Kernel(room, watch) for name in DATAGRAM_SOURCES}
        self._came = came
        self._world = world
        self._network = network
        self._settings = settings
        self._book = book
        self._disk = disk
        self._watch = watch
        self._random = world.random(f"life/{world.age}")
        newest = disk.newest()
        self.ingest = Ingest.restore(newest.snapshot) if newest else Ingest()
        self._replayed = disk.table.position
        self._told: Counter[str] = Counter()
        """By source, drops that the log has."""
        self._pending: tuple[list[dict[str, Any]], int, bytes | None] | None = None
        self._allowance: dict[int, int] = defaultdict(int)
        self._numbers: dict[tuple[str, str], int] = {}
        """Sessions of datagram peers, by source and address."""
        self._connections: dict[int, Connection] = {}
        self._follow: Callable[[], Tail] | None = None
        """Begins to follow files, once it is known how far they are read."""
        self.tail: Tail | None = None
        ahead = self._look_ahead()
        self._clock = clock
        self._timeline = Timeline(clock, ahead.now)
        self._timekeeping = timekeeping(disk, self._timeline, clock)
        self._resume(ahead)
        self._emptied = dict.fromkeys(DATAGRAM_SOURCES, self._timeline.now())
        for name in DATAGRAM_SOURCES:
            self.add(name)
        network.listen(self._accept)

    def _look_ahead(self) -> Ahead:
        ahead = Ahead(self.ingest)
        for entry in self._disk.read(self.ingest.position):
            ahead.apply(entry)
        return ahead

    def _resume(self, ahead: Ahead) -> None:
        self._left = self._disk.durable
        self._timekeeping.begin(ahead)
        self._add(EntryKind.START)
        for number, info in ahead.sessions.items():
            if info.file:
                continue
            if info.source not in DATAGRAM_SOURCES:
                self._close(number, "collector restart")
            elif self._settings.has(info.source):
                self._numbers[info.source, info.peer] = number
            else:
                self._close(number, "source removed")

    @property
    def dropped(self) -> int:
        """Return how many datagrams the kernel dropped."""
        return sum(kernel.dropped for kernel in self._kernels.values())

    def follow(self, files: FilesAround | None, works_again: Callable[[], int]) -> None:
        """Follow files, if there are any, once all is decoded that an earlier life left."""
        if files:
            host = Host(
                self._clock, self._now, lambda: self._settings.limits, self._note,
                lambda: self._disk.full, works_again,
            )  # fmt: skip
            self._follow = lambda: Tail(self._world, self._disk.log, self.ingest, files, host)

    def end(self) -> None:
        if self.tail:
            self.tail.end()
        for _, address in DATAGRAM_SOURCES.values():
            self._network.attach(address, None)
        self._network.listen(None)
        for connection in self._connections.values():
            connection.reset()

    def stop(self) -> None:
        self.drain()
        if self.tail:
            self.tail.end()
        for _, address in DATAGRAM_SOURCES.values():
            self._network.attach(address, None)
        self._network.listen(None)
        self._timekeeping.look()
        self._add(EntryKind.STOP, LAST)
        self.sync()
        while self.ingest.position < self._disk.durable:
            self._decode()
        self.commit()
        self.commit()
        assert self._disk.table.position == self._disk.durable

    def add(self, source: str) -> None:
        """Take in what is sent to a source from now on."""
        if source in DATAGRAM_SOURCES and self._settings.has(source):
            kernel = self._kernels[source]
            kernel.came = self._came
            self._network.attach(DATAGRAM_SOURCES[source][1], kernel.receive)

    def remove(self, source: str) -> None:
        """Take in what has come to a source, and end its sessions."""
        self.drain()
        if source in DATAGRAM_SOURCES:
            self._network.attach(DATAGRAM_SOURCES[source][1], None)
            for key, number in list(self._numbers.items()):
                if key[0] == source:
                    self._close(number, "source removed")
                    del self._numbers[key]
        for number, connection in list(self._connections.items()):
            if STREAM_SOURCES[connection.target][0] == source:
                self._close(number, "source removed")
                del self._connections[number]
                connection.reset()

    def _add(self, kind: EntryKind, payload: bytes = b"") -> None:
        self._now()
        self._disk.log.add(kind, payload=payload)

    def _now(self) -> int:
        """Give the next entries the time that it is; return it."""
        self._disk.log.now = now = self._timeline.now()
        return now

    def _open(self, source: str, format_: str, transport: str, peer: str) -> int:
        self._now()
        number: int = self._disk.log.open(
            format_, source=source, transport=transport, peer=peer, limits=self._settings.limits
        )
        self._note(number, format_)
        return number

    def _note(self, number: int, format_: str) -> None:
        """Take note of a session's beginning."""
        limits = self._settings.limits
        self._book.opened[number] = Opened(self._clock.wall_ns(), self._world.age, format_, limits)

    def _close(self, number: int, reason: str) -> None:
        self._now()
        self._disk.log.close(number, reason)

    # The loops

    def drain(self) -> None:
        """Take in what the kernel has."""
        for name, kernel in self._kernels.items():
            self._drain(name, kernel)
        for number, connection in list(self._connections.items()):
            self._read(number, connection)

    def _drain(self, source: str, kernel: Kernel) -> None:
        log = self._disk.log
        now = self._now()
        if kernel.dropped > self._told[source]:
            dropped = kernel.dropped - self._told[source]
            log.drops(dropped, source=source, since=self._emptied[source])
            self._told[source] = kernel.dropped
        received: dict[str, list[bytes]] = defaultdict(list)
        for peer, datagram in kernel.queue:
            received[peer].append(datagram)
        kernel.queue.clear()
        self._emptied[source] = now
        for peer, datagrams in received.items():
            key = source, peer
            if key not in self._numbers:
                format_, _ = DATAGRAM_SOURCES[source]
                if not any(readable(FORMATS[format_], RECORD_MAX, data) for data in datagrams):
                    self._noise(source, format_, datagrams)
                    continue
                self._numbers[key] = self._open(source, format_, "udp", peer)
            number = self._numbers[key]
            self._now()
            log.datagrams(number, datagrams)
            self._allowance[number] += sum(map(len, datagrams))

    def _noise(self, source: str, format_: str, datagrams: list[bytes]) -> None:
        """Hand on what nobody's session has."""
        key = source, STRANGERS
        if key not in self._numbers:
            self._numbers[key] = self._open(source, format_, "udp", STRANGERS)
        self._now()
        self._disk.log.datagrams(self._numbers[key], datagrams)

    def _accept(self, connection: Connection) -> bool:
        source, format_ = STREAM_SOURCES[connection.target]
        if not self._settings.has(source):
            return False
        number = self._open(source, format_, "tcp", connection.source)
        self._connections[number] = self._book.connections[number] = connection
        connection.came = self._came
        return True

    def _read(self, number: int, connection: Connection) -> None:
        up = connection.up
        if data := up.read(READ_MAX):
            self._now()
            self._disk.log.data(number, data)
        if up.data:
            self._came()
        if connection.broken or (up.ended and not up.data):
            self._close(number, "reset" if connection.broken else "eof")
            if not connection.broken:
                connection.end(connection.down)
            del self._connections[number]

    def sync(self) -> None:
        if not self._disk.full:
            self._disk.sync()
            self._decode()

    def _decode(self) -> None:
        self._watch.synced(self._disk.log.entries, self._disk.durable)
        for entry in self._disk.read(self.ingest.position):
            self.ingest.apply(entry)
            self._book.entries[entry.position] = entry
            if entry.end <= self._replayed:
                self.ingest.take()
        budgets.check(self.ingest, self._settings.limits)
        if self._follow and self.ingest.position >= self._left:
            self.tail, self._follow = self._follow(), None

    def answer(self) -> None:
        """Tell clients what is durable, once all that an earlier life left is decoded."""
        if self.ingest.position < self._left:
            return
        addresses = {number: address for (_, address), number in self._numbers.items()}
        for answer in self.ingest.acknowledgements(self._hears):
            self._watch.answered(answer.data)
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
        self._timekeeping.look()
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
        if position == self.ingest.position:
            all_decoded = position == self._disk.durable
            self._watch.committed(self._disk.table.rows, self.ingest, all_decoded=all_decoded)
        waiting.check_windows(self.ingest, self._watch.ticked)
        if snapshot is not None:
            budgets.check_snapshot(snapshot, self.ingest, self._settings.limits)
            self._disk.checkpoint(Checkpoint(position, snapshot))
