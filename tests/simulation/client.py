"""The real Python client in a world: its sender's thread is a step that is taken again and again.

A client that waits in `flush` or `close` lets the world go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import tailrace_client._backoff
import tailrace_client._emitter
import tailrace_client._recorder
import tailrace_client._sender
import tailrace_client._session
import tailrace_client._turn
from tailrace_client._emitter import Emitter
from tailrace_client._link import Link
from tailrace_client._recorder import Recorder
from tests.simulation.collector import ADDRESS
from tests.simulation.network import Network
from tests.simulation.world import MS, SECOND, Time, World

ROUND = 10 * MS


class Killed(BaseException):
    """The client's process is no more."""


class Datagrams:
    """A transport of the client's (`tailrace_client._transport.Transport`) in a world."""

    packet_max = 65_507
    chunk_bytes = 1432
    datagrams = True
    prompt = True
    answers = True
    refusal = ""

    def __init__(self, world: World, network: Network, address: str) -> None:
        self._world = world
        self._network = network
        self._address = address
        self._received: list[bytes] = []
        self._refused = False
        self.is_open = False

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
        self._refused = not self._network.send(self._address, ADDRESS, data)
        return len(data)

    def receive(self) -> bytes:
        return self._received.pop(0) if self._received else b""

    def wait(self, seconds: float, /, *, to_send: bool) -> None:
        del to_send  # there is always room
        self._world.run(max(1, round(seconds * SECOND)), lambda: bool(self._received))

    def finish(self, seconds: float, /) -> None:
        del seconds
        self.close()

    def close(self) -> None:
        self.is_open = False
        self._network.attach(self._address, None)

    def forked(self) -> Datagrams:
        return Datagrams(self._world, self._network, self._address)


class Client:
    """One life of a program that emits."""

    def __init__(self, world: World, network: Network, address: str, *, buffer_bytes: int) -> None:
        transport = Datagrams(world, network, address)
        self._transport = transport
        with patch.object(tailrace_client._emitter, "parse", lambda *_: transport):
            self.emitter = Emitter("udp://collector:1", buffer_bytes=buffer_bytes)
        self.alive = True
        sender = self.emitter._sender
        assert sender is not None
        self._sender = sender
        tailrace_client._sender._open.discard(sender)  # the interpreter's exit is none of its own
        world.after(ROUND, self._round)
        self._world = world

    def _round(self) -> None:
        if self.alive:
            self._sender._round()
            self._world.after(ROUND, self._round)

    @property
    def discarded(self) -> int:
        return sum(self.emitter.discarded.values())

    def kill(self) -> None:
        """End without a word."""
        self.alive = False
        self._transport.close()

    def close(self, seconds: float) -> bool:
        """End in order; return whether all was delivered."""
        delivered = self.emitter.close(seconds)
        self.kill()
        return delivered


def _no_thread(*_: Any, **__: Any) -> None:
    raise RuntimeError("can't start new thread")


@contextmanager
def clients_in(world: World) -> Iterator[None]:
    """Let clients live in a world: its clock and its chance for theirs, and no thread."""
    time = Time(world)
    chance = world.random("client")
    own_os = SimpleNamespace(urandom=chance.randbytes, getpid=lambda: 1)
    modules = [
        getattr(tailrace_client, name) for name in ("_recorder", "_sender", "_turn", "_emitter")
    ]
    patches = [patch.object(module, "time", time) for module in modules]
    patches += [
        patch.object(tailrace_client._sender, "threading", SimpleNamespace(Thread=_no_thread)),
        patch.object(tailrace_client._emitter, "Recorder", Recorder),
        patch.object(tailrace_client._sender, "Link", partial(Link, clock=time.monotonic)),
        patch.object(tailrace_client._session, "os", own_os),
        patch.object(tailrace_client._backoff, "os", own_os),
    ]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in reversed(patches):
            each.stop()
