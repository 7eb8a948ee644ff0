"""A program without a client: it sends Heph events in datagrams, and nobody tells it anything."""

from __future__ import annotations

from tests.ingest.log import heph_epoch, heph_event
from tests.simulation.network import COLLECTOR, Network
from tests.simulation.world import World

EPOCH_EVERY = 20
"""Datagrams from one with the epoch to the next."""


class Raw:
    def __init__(self, world: World, network: Network, address: str) -> None:
        self._world = world
        self._network = network
        self._address = address
        self._epoch = world.now
        self._sent = 0

    def event(self, stream: int, number: int, name: str) -> None:
        """Send an event; its clock began with the program."""
        now = self._world.now - self._epoch
        data = heph_event(stream, number, start=max(0, now - 1000), end=now, name=name.encode())
        if self._sent % EPOCH_EVERY == 0:
            data = heph_epoch(self._epoch) + data
        self._sent += 1
        self._network.send(self._address, COLLECTOR, data)
