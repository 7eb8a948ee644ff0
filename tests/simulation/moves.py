"""Simulate clients that a load balancer moves between collectors of one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from random import Random

from tests.simulation import facts
from tests.simulation.budgets import limits_of
from tests.simulation.collector import Collector
from tests.simulation.facts import Scenario
from tests.simulation.network import COLLECTOR, Connection, Network, Road
from tests.simulation.play import Play
from tests.simulation.watch import Watch

SECOND_NAME = "a"
"""The name of the second collector; that of the first is `main`."""


class Balancer:
    """The load balancer of one client. The client gets answers from each collector to which it has sent."""

    def __init__(self, networks: Sequence[Network], random: Random) -> None:
        self.to: int | None = 0
        """The collector that gets the client's bytes; None: either of them."""
        self._networks = networks
        self._random = random

    @property
    def parted(self) -> bool:
        return all(network.parted for network in self._choice)

    @property
    def _choice(self) -> Sequence[Network]:
        return self._networks if self.to is None else [self._networks[self.to]]

    def attach(self, address: str, receive: Callable[[str, bytes], None] | None) -> None:
        for network in self._networks:
            network.attach(address, receive)

    def send(self, source: str, target: str, datagram: bytes) -> bool:
        return self._random.choice(self._choice).send(source, target, datagram)

    def connect(self, source: str, target: str = COLLECTOR) -> Connection:
        for network in self._random.sample(self._choice, len(self._choice)):
            if not network.parted:
                with suppress(ConnectionRefusedError):
                    return network.connect(source, target)
        raise ConnectionRefusedError(111, "Connection refused")


class Moves(Play):
    """A play with two collectors. Each has its own disk, network and watch."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        name = SECOND_NAME
        network = Network(self.world, scenario.fates, scenario.segment, f"{name}/")
        watch = Watch(scenario)
        collector = Collector(
            self.world,
            network,
            scenario.queue,
            limits_of(scenario),
            watch,
            scenario.spool,
            batch=scenario.batch,
            stalls=scenario.stalls,
            name=name,
            store=self.collector.table.store,
        )
        self.networks.append(network)
        self.watches.append(watch)
        self.collectors.append(collector)
        self._balancers: dict[int, Balancer] = {}

    def alone(self) -> Iterator[Play]:
        """Yield the play as each collector sees it. The clients' own knowledge of deliveries and ends is left out."""
        for network, watch, collector in zip(
            self.networks, self.watches, self.collectors, strict=True
        ):
            seen = copy(self)
            seen.network, seen.watch, seen.collector = network, watch, collector
            seen.programs = {
                number: replace(program, delivered=0, excused=0, ended=False)
                for number, program in self.programs.items()
            }
            yield seen

    def _road(self, program: int) -> Road:
        return self._balancers.setdefault(
            program, Balancer(self.networks, self.world.random(f"balancer/{program}"))
        )

    def _happen(self, fact: facts.Fact) -> None:
        super()._happen(fact)
        if isinstance(fact, facts.Move):
            self._road(fact.program).to = fact.to
            connection = self._connection(fact.program)
            if fact.cut is not None and connection is not None:
                connection.tear(fact.cut)
