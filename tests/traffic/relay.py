"""A UDP relay that is a bad network, and knows exactly what it did.

    async with open_relay(collector_address, seed, Chances(drop=0.01)) as relay:
        ...  # send to relay.address
    relay.counters(DROPPED)

Each peer has a socket of its own on the far side, so that the collector tells peers apart, and a
`Mangler` of its own (`mangler`; the pure form is `mangle`). Datagrams that are held
back leave after `QUIET` seconds without traffic, and when the relay closes. By then all that the kernel had
for the relay has gone through it.

`Cutter` is a TCP relay whose connections each carry so many bytes to the collector, and are then cut.
"""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress

import trio

from tests.traffic.mangler import Chances, Deed, Mangler

QUIET = 0.2
RECEIVE_BUFFER = 2**22


class Relay:
    def __init__(self, target: tuple[str, int], seed: int, chances: Chances) -> None:
        self.received = 0
        """Number of received datagrams.

        If it is less than the number that was sent to the relay, the kernel dropped some on the way.
        """
        self._target = target
        self._seed = seed
        self._chances = chances
        self._peers: dict[tuple[str, int], tuple[Mangler, socket.socket]] = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0)
        self.address: tuple[str, int] = self._socket.getsockname()

    @property
    def log(self) -> list[Deed]:
        """Return the log of all faults, peer after peer in the order of their arrival."""
        return [deed for mangler, _ in self._peers.values() for deed in mangler.log]

    def counters(self, action: str) -> dict[int, list[int]]:
        """Return the counters, by stream, of the events of the only peer to which `action` was done."""
        assert len(self._peers) <= 1, "several peers: their streams may have the same numbers"
        for mangler, _ in self._peers.values():
            return mangler.counters(action)
        return {}

    async def run(self) -> None:
        while True:
            with trio.move_on_after(QUIET) as quiet:
                await trio.lowlevel.wait_readable(self._socket)
            if quiet.cancelled_caught:
                self._release()
            self._drain()

    def close(self) -> None:
        self._drain()
        self._release()
        self._socket.close()
        for _, out in self._peers.values():
            out.close()

    def _drain(self) -> None:
        while True:
            try:
                datagram, peer = self._socket.recvfrom(65_536)
            except BlockingIOError:
                return
            self.received += 1
            if peer not in self._peers:
                mangler = Mangler(self._seed + len(self._peers), self._chances)
                self._peers[peer] = (mangler, socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            mangler, out = self._peers[peer]
            for leaving in mangler.push(datagram):
                out.sendto(leaving, self._target)

    def _release(self) -> None:
        for mangler, out in self._peers.values():
            for datagram in mangler.finish():
                out.sendto(datagram, self._target)


@asynccontextmanager
async def open_relay(target: tuple[str, int], seed: int, chances: Chances) -> AsyncIterator[Relay]:
    """Run a relay on a port of its own during the `with` block."""
    relay = Relay(target, seed, chances)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(relay.run)
            yield relay
            nursery.cancel_scope.cancel()
    finally:
        relay.close()


class Cutter(threading.Thread):
    """Cuts each connection to `target` after a number of bytes between two bounds.

    `cuts` is the number of cut connections.
    """

    def __init__(self, target: tuple[str, int], seed: int, bounds: tuple[int, int]) -> None:
        super().__init__(daemon=True)
        self.cuts = 0
        self._target = target
        self._rng = random.Random(seed)
        self._bounds = bounds
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()

    def run(self) -> None:
        with suppress(OSError):  # The relay is closed.
            while True:
                near, _ = self._listening.accept()
                size = self._rng.randint(*self._bounds)
                threading.Thread(target=self._carry, args=(near, size), daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.join()

    def _carry(self, near: socket.socket, left: int) -> None:
        with closing(near), suppress(OSError), socket.create_connection(self._target) as far:
            back = threading.Thread(target=_carry_all, args=(far, near), daemon=True)
            back.start()
            while left and (data := near.recv(min(left, 65_536))):
                far.sendall(data)
                left -= len(data)
            self.cuts += not left
            for sock in (near, far):
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
            back.join()


def _carry_all(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
