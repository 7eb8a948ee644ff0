"""Send the bytes of programs without a client, and record which bytes belong to which event.

A sender begins each connection with a greeting (on a datagram socket, it sends one now and then). It keeps nothing:
what does not arrive is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tests.simulation.network import Connection, Network
from tests.simulation.world import SECOND, World

GREET_EVERY = 20
"""One datagram in this number contains a greeting."""


class Part(NamedTuple):
    """Bytes that are a whole record or, if `good` is False, cannot be read."""

    data: bytes
    event: object = None
    """The event to which the bytes belong, if any."""
    good: bool = True


class Sent:
    """Everything that programs without a client have sent."""

    def __init__(self) -> None:
        self.datagrams: dict[bytes, list[Part]] = {}
        self.streams: dict[Connection, list[Part]] = {}

    def parts(self, connection: Connection, size: int) -> Iterator[Part]:
        """Yield the parts of a connection's first `size` bytes. A part that is cut is not good."""
        for part in self.streams[connection]:
            if size <= 0:
                return
            whole = len(part.data) <= size
            yield part if whole else Part(part.data[:size], good=False)
            size -= len(part.data)


class Datagrams:
    """A sender whose every call sends one datagram."""

    connectionless = True

    def __init__(
        self,
        world: World,
        network: Network,
        sent: Sent,
        *,
        source: str,
        target: str,
        greet: Callable[[], list[Part]],
        often: bool,
    ) -> None:
        """With `often`, one datagram in `GREET_EVERY` has a greeting; otherwise only the first one."""
        del world
        self._network = network
        self._sent = sent
        self._source = source
        self._target = target
        self._greet = greet
        self._often = often
        self._count = 0
        self.connection: Connection | None = None

    def send(self, parts: Iterable[Part]) -> None:
        due = self._count % GREET_EVERY == 0 if self._often else not self._count
        parts = [*(self._greet() if due else ()), *parts]
        self._count += 1
        data = b"".join(part.data for part in parts)
        self._sent.datagrams[data] = parts
        self._network.send(self._source, self._target, data)

    def introduce(self) -> None:
        """Let the next datagram arrive once, without delay, and before all others."""
        self._network.introduce(self._source)

    def end(self) -> None:
        """Do nothing, because there is no connection to end."""


class Stream:
    """A sender over a connection, or over several ones after each other."""

    connectionless = False

    def __init__(
        self,
        world: World,
        network: Network,
        sent: Sent,
        *,
        source: str,
        target: str,
        greet: Callable[[], list[Part]],
    ) -> None:
        self._world = world
        self._network = network
        self._sent = sent
        self._source = source
        self._target = target
        self._greet = greet
        self.connection: Connection | None = None

    def send(self, parts: Iterable[Part]) -> None:
        if self.connection is None or self.connection.lost:
            if not self._connect():
                return
            parts = [*self._greet(), *parts]
        assert self.connection is not None
        for part in parts:
            if not self._send(self.connection, part):
                return

    def go_on(self, other: Stream) -> None:
        """Continue on the connection of another program."""
        self.connection, other.connection = other.connection, None
        if self.connection is not None:
            for part in self._greet():
                self._send(self.connection, part)

    def introduce(self) -> None:
        """Do nothing: on a connection, nothing is lost or late."""

    def end(self) -> None:
        """End the connection after everything that was sent."""
        if self.connection is not None:
            self.connection.end(self.connection.up)
            self.connection = None

    def _connect(self) -> bool:
        self.connection = None
        if self._network.parted:
            return False
        try:
            self.connection = self._network.connect(self._source, self._target)
        except ConnectionRefusedError:
            return False
        self._sent.streams[self.connection] = []
        return True

    def _send(self, connection: Connection, part: Part) -> bool:
        self._sent.streams[connection].append(part)
        data = part.data
        while data:
            try:
                data = data[connection.send(connection.up, data) :]
            except ConnectionResetError:
                return False
            if data:
                self._world.wait(SECOND, lambda: connection.lost or connection.up.room > 0)
        return True


Sender = Datagrams | Stream
