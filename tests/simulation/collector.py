"""A collector of datagrams: the real ingest, behind a spool in memory that a kill can cut."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.machine import Ingest
from tailrace.spool.entry import LAST, EntryKind
from tests.ingest.log import Log, heph_event, rows
from tests.simulation.network import Network
from tests.simulation.world import MS, World

ADDRESS = "collector:1"

DRAIN, SYNC, ANSWER, TICK = 2 * MS, 50 * MS, 100 * MS, 250 * MS

STRANGERS, STRANGE = 4, 10**6
"""Peers that want all places for streams, and the first of their streams."""


class Collector:
    def __init__(
        self, world: World, network: Network, limits: LedgerConfig, *, crowded: bool
    ) -> None:
        """`crowded`: strangers want more streams than there are places, again and again."""
        self.rows: list[dict[str, Any]] = []
        self.ingest = Ingest()
        self._world = world
        self._network = network
        self._limits = limits
        self._next = STRANGE
        if crowded:
            world.every(300 * MS, self._strangers_come)
        self._random = world.random("collector")
        self._log = Log()
        self._durable = self._applied = 0
        self._checkpoint = (self.ingest.snapshot(), 0, 0)
        self._queue: list[tuple[str, bytes]] = []
        self._numbers: dict[str, int] = {}
        self._allowance: dict[int, int] = defaultdict(int)
        self.alive = self._stopped = False
        world.every(DRAIN, self._drain)
        world.every(SYNC, self._sync)
        world.every(ANSWER, self._answer)
        world.every(TICK, self._tick)

    def start(self) -> None:
        """Go on from the last checkpoint and what the disk has."""
        snapshot, self._applied, kept = self._checkpoint
        del self.rows[kept:]
        self.ingest = Ingest.restore(snapshot)
        self.alive = True
        self._add(EntryKind.START)
        self._durable = len(self._log.entries)
        self._decode()
        sessions = self.ingest.open_sessions().items()
        self._numbers = {info.peer: number for number, info in sessions}
        self._network.attach(ADDRESS, lambda source, data: self._queue.append((source, data)))

    def kill(self) -> None:
        """Lose what is not on disk, of which the disk may have some."""
        kept = self._random.randint(self._durable, len(self._log.entries))
        del self._log.entries[kept:]
        self._network.attach(ADDRESS, None)
        self._queue.clear()
        self._allowance.clear()
        self.alive = self._stopped = False

    def stop(self) -> None:
        """Do nothing from now on (SIGSTOP), while the kernel goes on receiving."""
        self._stopped = self.alive

    def go_on(self) -> None:
        """Take up the work again (SIGCONT)."""
        self._stopped = False

    @property
    def _works(self) -> bool:
        return self.alive and not self._stopped

    def end(self) -> None:
        """Stop for good: nobody comes back."""
        self._drain()
        self._log.now = self._world.now
        self._log.stop(LAST)
        self._durable = len(self._log.entries)
        self._decode()

    def _add(self, kind: EntryKind) -> None:
        self._log.now = self._world.now
        self._log.add(kind)

    def _drain(self) -> None:
        if not (self._works and self._queue):
            return
        self._log.now = self._world.now
        received: dict[str, list[bytes]] = defaultdict(list)
        for source, datagram in self._queue:
            received[source].append(datagram)
        self._queue.clear()
        for source, datagrams in received.items():
            if source not in self._numbers:
                self._numbers[source] = self._log.open(
                    transport="udp", peer=source, limits=self._limits
                )
            number = self._numbers[source]
            self._log.datagrams(number, datagrams)
            self._allowance[number] += sum(map(len, datagrams))

    def _strangers_come(self) -> None:
        if self._works:
            streams = range(self._next, self._next + self._limits.source_streams_max // STRANGERS)
            self._next = streams.stop
            for number in range(STRANGERS):
                self._queue += [(f"stranger:{number}", heph_event(s, 0)) for s in streams]

    def _sync(self) -> None:
        if self._works:
            self._durable = len(self._log.entries)
            self._decode()
            if self._random.random() < 0.05:
                self._checkpoint = (self.ingest.snapshot(), self._applied, len(self.rows))

    def _decode(self) -> None:
        for entry in self._log.entries[self._applied : self._durable]:
            self.ingest.apply(entry)
        self._applied = self._durable
        self.rows += rows(self.ingest.take()[0])

    def _answer(self) -> None:
        if not self._works:
            return
        addresses = {number: address for address, number in self._numbers.items()}
        for answer in self.ingest.acknowledgements(lambda number: self._allowance[number] > 0):
            answer.taken = len(answer.data) <= self._allowance[answer.number]
            if answer.taken:
                self._allowance[answer.number] -= len(answer.data)
                self._network.send(ADDRESS, addresses[answer.number], answer.data)

    def _tick(self) -> None:
        if self._works and self.ingest.waiting:
            self._add(EntryKind.TICK)
