"""Simulate a network that carries datagrams and connections, according to the fates of a scenario."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import blake2b
from itertools import count
from typing import Protocol

from tests.simulation.world import MS, SECOND, World

WINDOW = 2**16
"""Maximum number of bytes of a connection that may be on their way or unread."""

COLLECTOR = "collector:1"
JETS = "collector:2"
"""The collector's addresses, by format."""

KEEPALIVE = 120 * SECOND
"""Time (ns) after which the collector's kernel gives up a connection whose peer has vanished."""


class Pipe:
    """One direction of a connection: its bytes in order, then its end."""

    def __init__(self) -> None:
        self.data = b""
        self.ended = False
        self.flying = 0
        """Number of bytes that are on their way."""
        self.last = 0
        """The age of the world (ns) at which the newest bytes arrive."""

    @property
    def room(self) -> int:
        return max(0, WINDOW - self.flying - len(self.data))

    def read(self, size: int) -> bytes:
        data, self.data = self.data[:size], self.data[size:]
        return data


class Connection:
    """A connection between a client and the collector."""

    def __init__(self, network: Network, source: str, target: str) -> None:
        self.source = source
        self.target = target
        self.up, self.down = Pipe(), Pipe()
        self.broken = False
        """Whether the connection is broken for both peers. Unread bytes are lost then."""
        self.torn = False
        """Whether the connection is broken for the client, and the collector has not noticed it yet."""
        self.came: Callable[[], None] = lambda: None
        """Function that is called when the collector can read bytes."""
        self._network = network

    def send(self, pipe: Pipe, data: bytes) -> int:
        """Send as many bytes as there is room for.

        Return their number. Raise ConnectionResetError if the connection is broken.
        """
        if self.broken or (self.torn and pipe is self.up):
            raise ConnectionResetError(104, "Connection reset by peer")
        data = data[: pipe.room]
        pipe.flying += len(data)
        size = self._network.segment or len(data)
        for begin in range(0, len(data), max(1, size)):
            self._carry(pipe, data[begin : begin + size])
        return len(data)

    def end(self, pipe: Pipe) -> None:
        """Send the end of one direction, after everything that was sent before."""
        if not (self.torn and pipe is self.up):
            self._network.carry(pipe, b"", lambda: self._end(pipe))

    @property
    def lost(self) -> bool:
        """Return whether the connection no longer exists for the client."""
        return self.broken or self.torn

    def tear(self, later: int) -> None:
        """Break the connection for the client now, and for the collector after some nanoseconds."""
        self.torn = True
        self._network.later(later, self.reset)

    def _carry(self, pipe: Pipe, data: bytes) -> None:
        self._network.carry(pipe, data, lambda: self._arrive(pipe, data))

    def reset(self) -> None:
        self.broken = True
        for pipe in (self.up, self.down):
            pipe.data = b""
        self.came()

    def _arrive(self, pipe: Pipe, data: bytes) -> None:
        pipe.flying -= len(data)
        if not self.broken:
            pipe.data += data
        self.came()

    def _end(self, pipe: Pipe) -> None:
        pipe.ended = True
        self.came()


class Road(Protocol):
    """The connection between a client and the collectors that receive its data."""

    @property
    def parted(self) -> bool: ...
    def attach(self, address: str, receive: Callable[[str, bytes], None] | None) -> None: ...
    def send(self, source: str, target: str, datagram: bytes) -> bool: ...
    def connect(self, source: str, target: str = COLLECTOR) -> Connection: ...


class Network:
    def __init__(
        self, world: World, fates: Mapping[str, list[int]], segment: int = 0, name: str = ""
    ) -> None:
        """Keys of the scenario's fates belong to this network if they begin with its name."""
        self.segment = segment
        """Maximum number of bytes of a connection that arrive together; 0: no limit."""
        self._world = world
        self._fates = fates
        self._name = name
        self._delays = world.random(f"{name}network")
        self._sent: Counter[str] = Counter()
        self._introduced: dict[str, int | None] = {}
        """By source, the age (ns) at which the datagram arrives that comes before all later ones."""
        self._hosts: dict[str, Callable[[str, bytes], None]] = {}
        self._accepts: Callable[[Connection], bool] | None = None
        self._digest = blake2b(digest_size=16)
        self._open_again = 0
        """The age (ns) from which the network carries data again that waits now."""

    def attach(self, address: str, receive: Callable[[str, bytes], None] | None) -> None:
        """Give an address to a host, as a function of source and datagram. None: no host has the address."""
        if receive is None:
            self._hosts.pop(address, None)
        else:
            self._hosts[address] = receive

    def listen(self, accept: Callable[[Connection], bool] | None) -> None:
        """Let the collector accept connections (`accept` returns whether it does), or refuse all connections."""
        self._accepts = accept

    def introduce(self, source: str) -> None:
        """Let the next datagram of a source arrive once and without delay, whatever its fate is.

        Later datagrams do not overtake it.
        """
        self._introduced[source] = None

    def part(self, duration: int) -> None:
        """Carry nothing for some nanoseconds: datagrams are lost, and connections wait."""
        self._open_again = max(self._open_again, self._world.age + duration)

    @property
    def trace(self) -> str:
        """Return a digest of everything that was sent, with the times."""
        return self._digest.hexdigest()

    @property
    def parted(self) -> bool:
        return self._world.age < self._open_again

    @property
    def answers_lost_next(self) -> int:
        """Return how many of the collector's next datagrams are lost one after the other."""
        first = self._sent["down"]
        return next(n for n in count() if self._fate("down", first + n))

    def send(self, source: str, target: str, datagram: bytes) -> bool:
        """Carry a datagram. Return whether a host had the address when the datagram was sent."""
        way = "up" if target in {COLLECTOR, JETS} else "down"
        number = self._sent[way]
        self._sent[way] += 1
        self._note(source, datagram)
        delays = self._fate(way, number)
        introduces = self._introduced.get(source, 0) is None
        if introduces:
            delays = [0]
        elif self.parted:
            return True
        for delay in delays:
            arrival = self._world.age + delay + self._usual()
            if introduces:
                self._introduced[source] = arrival
            arrival = max(arrival, self._introduced.get(source) or 0)
            self._world.at(arrival, lambda: self._arrive(source, target, datagram))
        return target in self._hosts

    def connect(self, source: str, target: str = COLLECTOR) -> Connection:
        """Return a new connection to the collector. Raise ConnectionRefusedError."""
        if self._accepts is None:
            raise ConnectionRefusedError(111, "Connection refused")
        connection = Connection(self, source, target)
        if not self._accepts(connection):
            raise ConnectionRefusedError(111, "Connection refused")
        return connection

    def later(self, delay: int, step: Callable[[], None]) -> None:
        """Call a function after some nanoseconds."""
        self._world.after(delay, step)

    def carry(self, pipe: Pipe, what: bytes, arrive: Callable[[], None]) -> None:
        """Let something arrive after everything that a pipe carries now."""
        self._note("", what)
        age = max(self._world.age, self._open_again)
        pipe.last = max(pipe.last + 1, age + self._usual())
        self._world.at(pipe.last, arrive)

    def _fate(self, way: str, number: int) -> list[int]:
        return self._fates.get(f"{self._name}{way}/{number}", [0])

    def _note(self, source: str, what: bytes) -> None:
        self._digest.update(b"%d %s %d " % (self._world.age, source.encode(), len(what)) + what)

    def _usual(self) -> int:
        return self._delays.randrange(MS // 10, MS)

    def _arrive(self, source: str, target: str, datagram: bytes) -> None:
        if target in self._hosts:
            self._hosts[target](source, datagram)
