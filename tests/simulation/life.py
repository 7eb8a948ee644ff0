"""Simulate one process of the collector, from its start to its end: the daemon's loops, its spool and its sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from tailrace.config.load import Loaded
from tailrace.config.schema import Config, LedgerConfig, TailConfig, TcpConfig, UdpConfig
from tailrace.daemon.context import Chance, Context, Current, Health
from tailrace.daemon.intake import FileSessions
from tailrace.daemon.loops.commit import Opened
from tailrace.daemon.loops.decode import restored
from tailrace.daemon.loops.loops import Loops
from tailrace.daemon.loops.steps import Steps, Wait
from tailrace.figures import Figures
from tailrace.ingest.machine import Ahead, Rejected
from tailrace.sources.connection import Connection as Served
from tailrace.sources.connections import ConnectionSource
from tailrace.sources.listeners import TcpListener
from tailrace.sources.udp import LOOK_EVERY, UdpSource
from tailrace.spool.checkpoint import Checkpoints
from tailrace.spool.disk import Disk as SpoolDisk
from tailrace.spool.entry import Entry, EntryKind
from tailrace.spool.payloads import OpenInfo
from tailrace.spool.segment import HEADER_SIZE, segment_first
from tailrace.spool.spool import Spool
from tests.simulation import budgets, counting, waiting
from tests.simulation.clocks import HostClock
from tests.simulation.disk import Disk
from tests.simulation.driving import Driver
from tests.simulation.intakes import Intake
from tests.simulation.network import COLLECTOR, JETS, Connection, Network
from tests.simulation.sockets import Datagrams, Stream
from tests.simulation.table import Quarantine, Table
from tests.simulation.tail import FilesAround, Host, Intake as FilesIntake, Tail, format_of
from tests.simulation.violation import demand
from tests.simulation.watch import Watch
from tests.simulation.world import FOR_EVER, SECOND, World

STORE = Path("/store")
DIRECTORY = STORE / "spool"
SOON, LATER = 0.001, 0.05
"""Time (seconds) until a process that waits for a socket runs, and until a full socket is tried again."""
ROUND = SECOND
"""Time (ns) that is longer than the time from a check of the names to the last answer that relies on this check."""


DATAGRAM_SOURCES = {"udp": COLLECTOR, "jets-udp": JETS}
STREAM_SOURCES = {COLLECTOR: "tcp", JETS: "jets-tcp"}
REMOVED = "source removed"


class Begun(NamedTuple):
    """The beginning of a session."""

    wall: int
    """The wall clock at this moment (Unix ns)."""
    age: int
    """The age of the world at this moment (ns)."""
    format: str
    limits: LedgerConfig


class Book:
    """The bytes that the collector has received into its current spool. The oracle reads them."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything, because there is another spool."""
        self.entries: dict[int, Entry] = {}
        """Bytes of entries that were read from disk, by their position."""
        self.opened: dict[int, Begun] = {}
        """The beginnings of sessions, by session number."""
        self.names: dict[str, int] = {}
        """Session numbers, by the name of the session."""
        self.connections: dict[int, Connection] = {}
        """The connections of sessions, by session number."""

    def cut(self, end: int) -> None:
        """Forget sessions that the log lost before anything of them was read. The log will reuse their numbers."""
        for number in [n for n in self.opened if n >= end and n not in self.entries]:
            del self.opened[number]
            self.connections.pop(number, None)


@dataclass
class Machine:
    """The parts of a machine that exist longer than a process."""

    disk: Disk
    clock: HostClock
    watch: Watch
    files: FilesAround | None = None
    book: Book = field(default_factory=Book)
    table: Table = field(default_factory=Table)
    quarantine: Quarantine = field(default_factory=Quarantine)
    sockets: int = 0
    """All sockets that have ever existed."""
    names_are_lost: bool = False
    """Whether the scenario takes names away (see `losses`).

    Only then the store has a lock, because the lock changes the sequence of calls to the disk.
    """
    spool: str = ""
    """The identity of the newest spool."""
    lost_at: int | None = None
    """The age (ns) at which a name was lost without which the running process must end."""
    stalled: list[tuple[int, int]] = field(default_factory=list)
    """Intervals in which a blocking call of the collector took seconds, as pairs of ages (ns)."""
    behind: list[tuple[str, list[int]]] = field(default_factory=list)
    """Intervals in which a source of files had to wait for the decoder before it could begin: the format, and two ages
    (ns).
    """

    def opened(self, spool: str) -> None:
        """Record a spool's identity. If the spool was made after a loss, the table knows nothing of it."""
        if self.names_are_lost and self.spool != spool:
            self.table.forget_position()
            self.book.begin_anew()
        self.spool = spool


class Saves(Checkpoints):
    """Observes checkpoints before they are saved."""

    def noted(self, note: Callable[[bytes], None]) -> None:
        self._note = note

    def save(self, position: int, state: bytes, *, since: int | None = None) -> None:
        self._note(state)
        super().save(position, state, since=since)


Source = UdpSource | ConnectionSource


class Voice:
    """Observes the replies of a source. It also takes the place of a source that was removed."""

    def __init__(self, find: Callable[[], Source | None], watch: Callable[[bytes], None]) -> None:
        self._find = find
        self._watch = watch

    def can_reply(self, number: int) -> bool:
        source = self._find()
        return source is not None and source.can_reply(number)

    def reply(self, number: int, data: bytes) -> bool:
        self._watch(data)
        source = self._find()
        return source is not None and source.reply(number, data)


class Life:
    """One process of the collector.

    `ended` is called at its end: with None after a stop in order, otherwise with the exception that was raised.
    """

    def __init__(
        self,
        world: World,
        network: Network,
        machine: Machine,
        *,
        config: Config,
        queue: int,
        stalls: float,
        random: Random,
        ended: Callable[[BaseException | None], None],
    ) -> None:
        """Open the files on disk. Raise StoreError, FullError, SyncError or Crash."""
        self._world = world
        self._network = network
        self._machine = machine
        self._disk = machine.disk
        self._clock = clock = machine.clock
        self._queue = queue
        self._random = random
        self._ahead: Ahead | None = None
        self._ended = ended
        self._driver = Driver(world, random, self._fail, stalls=stalls, stalled=machine.stalled)
        self._current, self.health = Current(Loaded(config, None, ""), clock), Health()
        chance = Chance(random.randbytes, random.random)
        self._context = Context(self._current, self.health, clock, Figures(), chance=chance)
        self._dropped = 0
        disk = SpoolDisk(machine.disk)
        checkpoints = Saves(DIRECTORY, disk)
        checkpoints.noted(self._saved)
        check_store = disk.lock(STORE).check if machine.names_are_lost else lambda: None
        spool = Spool.open(DIRECTORY, config.spool, clock, disk)
        machine.opened(spool.identity)
        machine.book.cut(spool.end)
        for _, waits in machine.behind:  # These waits belong to the process before.
            waits[1] = min(waits[1], world.age)
        table = machine.table.opened()
        committed = machine.table.position() or 0
        self.ingest = restored(spool, checkpoints.newest(committed), committed)
        self._watched(machine.watch, machine.book)
        self._sources: dict[str, Source] = {}
        self._sockets: dict[str, Datagrams] = {}
        self._connections: dict[Served, Stream] = {}
        self._intakes: dict[str, Intake] = {}
        self._left: dict[str, tuple[object, dict[int, OpenInfo]]] = {}
        """Sources of files that have not begun yet, each with the sessions that an earlier run left open."""
        self._receives = self._ends = self._stopping = False
        self.tail: Tail | None = None
        voices = {
            name: Voice(partial(self._sources.get, name), self._answer)
            for name in (*DATAGRAM_SOURCES, *STREAM_SOURCES.values())
        }
        opened = Opened(
            spool, self.ingest, table, machine.quarantine, checkpoints, committed, check_store
        )
        self.loops = Loops(
            opened,
            voices,
            self._context,
            cut=self._cut,
        )
        self.loops.log_at_rest = 2**12  # Use a small value, because scenarios are short.
        self.loops.decoding.turn_seconds = 0  # Each step of an entry takes a turn of its own.
        self._file_sessions = FileSessions(self.loops.gate)
        committing = self.loops.committing
        wake = committing._taken
        committing._taken = lambda: (wake(), self._taken())[0]
        for name in DATAGRAM_SOURCES:
            if name in config.sources:
                self._bind(name)
        self._driver.drive(self._begin())

    def _watched(self, watch: Watch, book: Book) -> None:
        """Let the oracle observe what is decoded and received."""
        ingest = self.ingest
        steps = ingest.steps

        def steps_noted(entry: Entry) -> Iterator[None]:
            watch.came(entry)
            book.entries[entry.position] = entry
            yield from steps(entry)
            if entry.kind == EntryKind.TICK:
                waiting.check_windows(ingest, entry.time_ns)

        ingest.steps = steps_noted  # type: ignore[method-assign]  # seen by the oracle
        self._machine.table.grew = lambda position: watch.committed(
            self._machine.table.rows, position
        )

    def _saved(self, state: bytes) -> None:
        budgets.check_snapshot(state, self.ingest, self._current.config.ledger)

    def _taken(self) -> None:
        """Record the collector's figures for rows that are about to be committed."""
        self._machine.watch.claimed(self.loops.committing.committed)
        self._machine.watch.taken(self.ingest)
        budgets.check(self.ingest, self._current.config.ledger)
        counting.check(self.ingest)

    @property
    def dropped(self) -> int:
        """Return the number of datagrams that the kernel dropped."""
        return self._dropped + sum(socket.dropped for socket in self._sockets.values())

    def reload(self, config: Config) -> None:
        """Reload the configuration: use other limits and other sources."""
        before = self._current.config.sources
        self._current.put(Loaded(config, None, ""))
        if not self._receives or self._stopping:
            return
        for name in sorted(before.keys() - config.sources.keys()):
            if isinstance(before[name], TailConfig):
                self._leave(name)
            else:
                self._remove(name)
        for name in sorted(config.sources.keys() - before.keys()):
            if isinstance(config.sources[name], TailConfig):
                self._driver.drive(self._follow(name, {}))
            else:
                self._receive_from(name, self._intake(name, {}))

    def _bind(self, name: str) -> None:
        """Create the socket of a source of datagrams."""
        self._machine.sockets += 1
        address = DATAGRAM_SOURCES[name]
        self._sockets[name] = Datagrams(
            self._network, address, self._queue, self._machine.sockets, self._machine.watch.lost
        )
        self._network.attach(address, self._sockets[name].receive)

    def _receive_from(self, name: str, intake: Intake) -> None:
        self._intakes[name] = intake
        config = self._current.config.sources[name]
        if isinstance(config, UdpConfig):
            if name not in self._sockets:
                self._bind(name)
            source = self._sources[name] = UdpSource(name, config, self._clock)
            source.begin(self._sockets[name], intake)
            self._driver.drive(self._receive(name, source))
            self._driver.drive(self._look_around(name, source))
        else:
            assert isinstance(config, TcpConfig)
            own = self._sources[name] = ConnectionSource(config, TcpListener(config))
            own.begin(intake)

    def _remove(self, name: str) -> None:
        """Receive everything that was sent to a source, and end its sessions."""
        source, intake = self._sources.pop(name), self._intakes[name]
        intake.stopped = REMOVED
        if isinstance(source, UdpSource):
            self._network.attach(DATAGRAM_SOURCES[name], None)
            source.finish(intake)
            self._dropped += self._sockets.pop(name).dropped
            for number in list(intake.open_now):
                intake.close(number, REMOVED)
        else:
            for served, stream in list(self._connections.items()):
                if STREAM_SOURCES[stream.connection.target] == name:
                    source.drain(served, intake)
                    self._over(served, None, source)

    def pause(self, until: int) -> None:
        """Do nothing until the world has this age (ns)."""
        self._driver.works_again = max(self._driver.works_again, until)

    def go_on(self) -> None:
        self._driver.works_again = 0

    def end(self) -> None:
        """End the process at once."""
        self._driver.dead = True
        if self.tail is not None:
            self.tail.end()
        self._deafen()
        for stream in self._connections.values():
            stream.connection.reset()

    def _deafen(self) -> None:
        for address in DATAGRAM_SOURCES.values():
            self._network.attach(address, None)
        self._network.listen(None)

    def stop(self) -> None:
        """Stop the process in order, within some time."""
        if not self._ends:
            self._driver.drive(self._stop())

    def _end_with_names(self) -> Steps[None]:
        """End the process when a name on disk is lost (see `daemon.daemon`)."""
        yield Wait(flag=self.loops.names.lost)
        if not self._ends:
            yield from self._stop()

    def _answer(self, data: bytes) -> None:
        """Compare an answer with the disk: acknowledged data must remain after a power cut."""
        self._machine.watch.answered(data)
        if (lost_at := self._machine.lost_at) is not None:
            late = self._world.age - max(lost_at, self._driver.works_again)
            demand(late < ROUND, "an answer after a name was lost", late)
        position = self.ingest.position
        for path in self._disk.paths():
            name = path.name
            if name.endswith(".segment") and name[0].isdigit() and path.parent == DIRECTORY:
                size = min(HEADER_SIZE + position - segment_first(path), self._disk.length(path))
                assert size < HEADER_SIZE or self._disk.keeps(path, size), f"{name} is not synced"

    def _fail(self, error: BaseException) -> None:
        if not self._driver.dead:
            self._ended(error)

    def _begin(self) -> Steps[None]:
        loops = self.loops
        ahead = self._ahead = yield from loops.begin()
        for steps in (
            loops.syncing.run(), loops.decoding.run(), loops.committing.run(), loops.committing.run(),
            loops.tick(), loops.names.watch(),
        ):  # fmt: skip
            self._driver.drive(steps)
        earlier = ahead.sessions.items()
        for name, config in self._current.config.sources.items():
            if isinstance(config, TailConfig):
                continue
            mine = {number: info for number, info in earlier if info.source == name}
            self._receive_from(name, self._intake(name, mine, ahead))
        for name in self._sockets.keys() - self._sources.keys():
            self._network.attach(DATAGRAM_SOURCES[name], None)
        self._end_others({info.source for _, info in earlier}, ahead)
        for name, config in self._current.config.sources.items():
            if isinstance(config, TailConfig):
                mine = {number: info for number, info in earlier if info.source == name}
                self._driver.drive(self._follow(name, mine))
        self._receives = True
        self._network.listen(self._accept)
        self._driver.drive(loops.answer())
        self._driver.drive(self._end_with_names())
        if loops.heartbeats:
            self._driver.drive(loops.heartbeats.run())
        loops.syncing.admit()

    def _follow(self, name: str, left: dict[int, OpenInfo]) -> Steps[None]:
        """Begin to follow the files of a source, once everything before is decoded (see `daemon.receiving`)."""
        files, begins = self._machine.files, object()
        assert files is not None
        self._left[name] = begins, left
        waits = [self._world.age, FOR_EVER]
        self._machine.behind.append((format_of(name), waits))
        yield from self.loops.decoding.reached(self.loops.spool.end)
        waits[1] = self._world.age
        if self._left.get(name, (None, {}))[0] is not begins or self._stopping:
            return  # The source was removed meanwhile.
        del self._left[name]
        driver, gate = self._driver, self.loops.gate
        host = Host(self._clock, lambda: gate.behind, lambda: driver.works_again, driver.attempt)
        self.tail = self.tail or Tail(self._world, files, host)
        self.tail.begin(name, self._intake_of_files(name, files, left))

    def _leave(self, name: str) -> None:
        """Remove a source of files. Its sessions wait for another source."""
        if name in self._left:
            left = self._left.pop(name)[1]
        else:
            assert self.tail is not None
            left = self.tail.stop(name)
            self._file_sessions.end(name)
        for number, info in left.items():
            self._file_sessions.let_go(number, info)

    def _intake_of_files(
        self, name: str, files: FilesAround, earlier: dict[int, OpenInfo]
    ) -> FilesIntake:
        assert self._ahead is not None
        intake = FilesIntake(
            name, format_of(name), self._context, self.loops.gate,
            files=self._file_sessions, ahead=self._ahead, earlier=earlier,
        )  # fmt: skip
        intake.noted(self._begun)
        intake.placed(files)
        return intake

    def _end_others(self, sources: set[str], ahead: Ahead) -> None:
        """End the sessions of sources that are no longer configured (see `daemon.receiving`)."""
        for name in sources - self._current.config.sources.keys():
            mine = {number: info for number, info in ahead.sessions.items() if info.source == name}
            intake = self._intake(name, mine, ahead)
            for number, info in mine.items():
                if info.file:
                    self._file_sessions.let_go(number, info)
                else:
                    intake.close(number, REMOVED)

    def _intake(
        self, name: str, earlier: dict[int, OpenInfo], ahead: Ahead | None = None
    ) -> Intake:
        self._ahead = ahead or self._ahead
        intake = Intake(
            name, "jets" if name.startswith("jets") else "heph", self._context, self.loops.gate,
            files=self._file_sessions, ahead=self._ahead, earlier=earlier,
        )  # fmt: skip
        intake.noted(self._begun)
        return intake

    def _begun(self, number: int, info: OpenInfo) -> None:
        book = self._machine.book
        wall, age = self._clock.wall_ns(), self._world.age
        book.opened[number] = Begun(wall, age, info.format, info.ledger)
        book.names[info.session] = number

    def _room(self, closed: Callable[[], bool]) -> Steps[None]:
        while closed():
            yield Wait(flag=self.loops.gate.opened)

    def _receive(self, name: str, source: UdpSource) -> Steps[None]:
        """Receive datagrams as `UdpSource.run` does."""
        while not self._stopping and self._sources.get(name) is source:
            yield from self._room(lambda: self.loops.gate.shut)
            socket = self._sockets.get(name)
            if socket is None:
                return
            yield Wait(flag=socket.readable)
            yield Wait(SOON)
            if not self._stopping and self._sources.get(name) is source:
                source.drain(self._intakes[name])

    def _look_around(self, name: str, source: UdpSource) -> Steps[None]:
        while not self._stopping and self._sources.get(name) is source:
            yield Wait(LOOK_EVERY)
            if not self._stopping and self._sources.get(name) is source:
                source.look_around(self._intakes[name])

    def _accept(self, connection: Connection) -> bool:
        name = STREAM_SOURCES[connection.target]
        source = self._sources.get(name)
        if not isinstance(source, ConnectionSource):
            return False
        stream = Stream(connection)
        served = Served(stream, connection.source, connection.source.rpartition(":")[0])
        self._connections[served] = stream
        self._driver.drive(self._serve(served, stream, source))
        return True

    def _serve(self, served: Served, stream: Stream, source: ConnectionSource) -> Steps[None]:
        """Receive bytes of a connection as `ConnectionSource._receive` does."""
        intake = self._intakes[STREAM_SOURCES[stream.connection.target]]
        served.answer(lambda: self._driver.drive(self._send_rest(served)))
        ended = None
        while ended is None and served in self._connections:
            yield Wait(flag=stream.readable)
            yield from self._room(lambda: self.loops.gate.closed)
            yield Wait(SOON)
            if served in self._connections:
                ended = source.take_in(served, intake)
                self._note(served, stream)
        self._over(served, ended, source)

    def _note(self, served: Served, stream: Stream) -> None:
        """Record whose bytes a session contains, once it has begun."""
        if served.number is not None:
            self._machine.book.connections[served.number] = stream.connection

    def _send_rest(self, served: Served) -> Steps[None]:
        while served in self._connections and served.send_more():
            yield Wait(LATER)

    def _over(self, served: Served, ended: str | None, source: ConnectionSource) -> None:
        if (stream := self._connections.pop(served, None)) is None:
            return
        served.reason = ended or served.reason
        served.close()
        stream.close()
        source.over(served, self._intakes[STREAM_SOURCES[stream.connection.target]])
        self._note(served, stream)

    def _cut(self, rejected: Rejected) -> None:
        for served, source, _ in self._served():
            if served.number == rejected.number:
                self._over(served, rejected.why, source)

    def _served(self) -> Iterator[tuple[Served, ConnectionSource, Intake]]:
        for served, stream in list(self._connections.items()):
            name = STREAM_SOURCES[stream.connection.target]
            source = self._sources[name]
            assert isinstance(source, ConnectionSource)
            yield served, source, self._intakes[name]

    def _stop(self) -> Steps[None]:
        self._ends = True
        self.health.stopping()
        yield from self.loops.answer_last()
        self._stopping = True
        if self.tail is not None:
            self.tail.end()
        for name, source in self._sources.items():
            if isinstance(source, UdpSource):
                source.finish(self._intakes[name])
        for served, source, intake in self._served():
            source.drain(served, intake)
            self._over(served, None, source)
        self._deafen()
        complete = yield from self.loops.finish(last=self.loops.names.loss is None)
        loss = self.loops.names.loss
        assert complete or loss is not None, "a stop left something in the spool"
        self.loops.spool.close()  # Close the spool while no loop runs.
        self._driver.dead = True
        self._ended(loss)
