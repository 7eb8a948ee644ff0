"""Run the real Python client in a simulated world. The world provides its clock, its threads and its random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from types import SimpleNamespace
from unittest.mock import patch

import tailrace_client._emitter
import tailrace_client._recorder
import tailrace_client._sender
import tailrace_client._session
import tailrace_client._settlement
from tailrace_client._emitter import Emitter
from tailrace_client._link import Link
from tailrace_client._recorder import Recorder
from tests.simulation.clocks import ProgramsTime
from tests.simulation.hearing import Hearing
from tests.simulation.network import COLLECTOR, Connection, Road
from tests.simulation.watch import Watch
from tests.simulation.world import MS, SECOND, Queue, Time, World

LOST = frozenset({"given_up", "lost", "refused", "uncounted"})
"""Reasons with which a client discards events that it had accepted from the program."""


class Datagrams:
    """A client's transport for datagrams in the simulated network (see `tailrace_client._transport.Transport`)."""

    packet_max = 65_507
    chunk_bytes = 1432
    datagrams = True
    prompt = True
    is_near = False
    answers = True
    refusal = ""

    def __init__(self, world: World, network: Road, address: str) -> None:
        self._world = world
        self._network = network
        self._address = address
        self._received: list[bytes] = []
        self._refused = False
        self.is_open = False
        self.deaf_until = 0
        """Until this age of the world (ns), the client reads nothing that arrives."""
        self.hearing: Hearing | None = None

    def open(self) -> None:
        self.is_open = True
        self._network.attach(self._address, lambda _, data: self._received.append(data))

    def send(self, pieces: Sequence[bytes], /) -> int:
        if not (self.is_open and pieces):
            return 0
        refused, self._refused = self._refused, False
        if refused:
            raise ConnectionRefusedError(111, "Connection refused")
        data = b"".join(pieces)
        if self.hearing:
            self.hearing.sent(data)
        self._refused = not self._network.send(self._address, COLLECTOR, data)
        return len(data)

    def receive(self) -> bytes:
        data = self._received.pop(0) if self._received and self._hears() else b""
        if self.hearing:
            self.hearing.heard(data)
        return data

    def _hears(self) -> bool:
        return self._world.age >= self.deaf_until

    def wait(self, seconds: float, /, *, to_send: bool) -> None:
        del to_send  # The send buffer always has room.
        self._world.wait(
            max(1, round(seconds * SECOND)), lambda: bool(self._received) and self._hears()
        )

    def finish(self, seconds: float, /) -> None:
        del seconds
        self.close()

    def close(self) -> None:
        self.is_open = False
        self._network.attach(self._address, None)

    def forked(self) -> Datagrams:
        return Datagrams(self._world, self._network, self._address)


class Bytes:
    """A client's transport for a connection in the simulated network."""

    packet_max = 2**20
    chunk_bytes = 64 * 1024
    datagrams = False
    prompt = True
    is_near = False
    answers = True
    refusal = ""

    def __init__(self, world: World, network: Road, address: str) -> None:
        self._world = world
        self._network = network
        self._address = address
        self.connection: Connection | None = None
        self.deaf_until = 0
        """Until this age of the world (ns), the client reads nothing that arrives."""
        self.hearing: Hearing | None = None

    @property
    def is_open(self) -> bool:
        return self.connection is not None

    def open(self) -> None:
        self._world.sleep(MS)
        if self._network.parted:
            self._world.sleep(2 * SECOND)
            raise TimeoutError(110, "Connection timed out")
        self.connection = self._network.connect(self._address)
        if self.hearing:
            self.hearing.connected()

    def send(self, pieces: Sequence[bytes], /) -> int:
        if self.connection is None or not pieces:
            return 0
        data = b"".join(pieces)
        if self.hearing:
            self.hearing.sent(data)
        try:
            return self.connection.send(self.connection.up, data)
        except ConnectionResetError:
            self.close()
            raise

    def receive(self) -> bytes:
        connection = self.connection
        if connection is None:
            return b""
        if self._world.age < self.deaf_until and not connection.lost:
            return b""
        data = connection.down.read(65_536)
        if not data and (connection.lost or connection.down.ended):
            self.close()
            raise ConnectionResetError(104, "Connection reset by peer")
        if self.hearing:
            self.hearing.heard(data)
        return data

    def wait(self, seconds: float, /, *, to_send: bool) -> None:
        connection = self.connection

        def over() -> bool:
            return connection is None or bool(
                connection.lost
                or (
                    (connection.down.data or connection.down.ended)
                    and self._world.age >= self.deaf_until
                )
                or (to_send and connection.up.room)
            )

        self._world.wait(max(1, round(seconds * SECOND)), over)

    def finish(self, seconds: float, /) -> None:
        deadline = self._world.age + round(seconds * SECOND)
        if self.connection is not None:
            self.connection.end(self.connection.up)
        while self.is_open and (left := deadline - self._world.age) > 0:
            try:
                if not self.receive():
                    self.wait(left / SECOND, to_send=False)
            except ConnectionResetError:
                return
        self.close()

    def close(self) -> None:
        if self.connection is not None:
            self.connection.end(self.connection.up)
            self.connection = None

    def forked(self) -> Bytes:
        return Bytes(self._world, self._network, self._address)


TRANSPORTS = {"udp": Datagrams, "tcp": Bytes}


class Client:
    """The client of one simulated program."""

    def __init__(
        self,
        world: World,
        network: Road,
        transport: str,
        address: str,
        *,
        buffer_bytes: int,
        acknowledge: bool,
    ) -> None:
        self.transport = TRANSPORTS[transport](world, network, address)
        # This is a reading of the program's own clock.
        imported = tailrace_client._emitter.time.monotonic_ns()
        with (
            patch.object(tailrace_client._emitter, "parse", lambda *_: self.transport),
            patch.object(tailrace_client._emitter, "_IMPORTED", imported),
        ):
            self.emitter = Emitter(
                f"{transport}://collector:1",
                buffer_bytes=buffer_bytes,
                process="program",
                acknowledge=acknowledge,
            )
        sender = self.emitter._sender
        assert sender is not None
        # The interpreter's exit must not close the senders of simulated programs.
        tailrace_client._sender._open.discard(sender)
        assert sender.link is not None
        self.link = sender.link

    def watched(self, watches: Sequence[Watch], program: int, address: str) -> None:
        """Compare what the client believes to be delivered with the answers that it gets."""
        self.hearing = Hearing(watches, program, address, self.link)
        self.transport.hearing = self.hearing

    def emit(self, stream: int, number: int, name: str) -> None:
        """Emit an event. Its number is an attribute, because the client gives it another number of its own."""
        self.emitter.use_stream(stream)
        owner, _, _ = name.rpartition("/")
        self.emitter.event(owner, number=number)  # A name that recurs takes the client less time.

    @property
    def discarded(self) -> int:
        return sum(self.emitter.discarded.values())

    @property
    def refused(self) -> int:
        """Return how many events the client refused to accept.

        If it loses an event that it had accepted, it reports this event as not delivered.
        """
        return sum(n for why, n in self.emitter.discarded.items() if why not in LOST)


@contextmanager
def clients_in(
    world: World, times: Callable[[object], Time | None] = lambda _: None
) -> Iterator[None]:
    """Let all clients use the clocks, threads and network of a world.

    `times` returns the clocks for a group of processes; None stands for the world's own.
    """
    time = ProgramsTime(world, times)
    chance = world.random("client")
    own_os = SimpleNamespace(urandom=chance.randbytes, getpid=lambda: 1, environ={})
    # The host name is constant, so that a trace is the same on every machine.
    host = SimpleNamespace(gethostname=lambda: "host")
    native = count(1)
    threads = SimpleNamespace(
        start_new_thread=lambda function, _: world.spawn(function),
        get_native_id=lambda: next(native),  # All threads have different ids.
    )
    modules = [getattr(tailrace_client, name) for name in ("_recorder", "_sender", "_emitter")]
    patches = [patch.object(module, "time", time) for module in modules]
    patches += [
        patch.object(tailrace_client._sender, "_thread", threads),
        patch.object(
            tailrace_client._sender, "queue", SimpleNamespace(SimpleQueue=partial(Queue, world))
        ),
        patch.object(tailrace_client._emitter, "Recorder", Recorder),
        patch.object(tailrace_client._sender, "Link", partial(Link, clock=time.monotonic)),
        patch.object(tailrace_client._session, "os", own_os),
        patch.object(tailrace_client._session, "socket", host),
        patch.object(tailrace_client._settlement, "os", own_os),
    ]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in reversed(patches):
            each.stop()
