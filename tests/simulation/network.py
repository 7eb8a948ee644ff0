"""A network that loses, doubles, delays and reorders datagrams in both directions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.world import MS, SECOND, World

Receive = Callable[[str, bytes], None]
"""Takes the sender's address and a datagram."""


@dataclass(frozen=True)
class Faults:
    """Shares of all datagrams."""

    loss: float = 0.0
    doubling: float = 0.0
    late: float = 0.0
    """Up to 0.3 s."""
    very_late: float = 0.0
    """Up to `very_late_seconds`."""
    very_late_seconds: float = 4.0
    """Longer than the collector waits, by default."""


class Network:
    def __init__(self, world: World, faults: Faults) -> None:
        self._world = world
        self._faults = faults
        self._random = world.random("network")
        self._hosts: dict[str, Receive] = {}

    def attach(self, address: str, receive: Receive | None) -> None:
        """Give an address to a host, or to nobody."""
        if receive is None:
            self._hosts.pop(address, None)
        else:
            self._hosts[address] = receive

    def send(self, source: str, target: str, datagram: bytes) -> bool:
        """Carry a datagram; return whether somebody was at the address when it was sent."""
        random, faults = self._random, self._faults
        copies = 0 if random.random() < faults.loss else 1
        copies += random.random() < faults.doubling
        for _ in range(copies):
            self._world.after(self._delay(), lambda: self._arrive(source, target, datagram))
        return target in self._hosts

    def _delay(self) -> int:
        random, faults = self._random, self._faults
        delay = random.randrange(MS // 10, MS)
        if random.random() < faults.late:
            delay += random.randrange(SECOND * 3 // 10)
        if random.random() < faults.very_late:
            delay += random.randrange(round(faults.very_late_seconds * SECOND))
        return delay

    def _arrive(self, source: str, target: str, datagram: bytes) -> None:
        if target in self._hosts:
            self._hosts[target](source, datagram)
