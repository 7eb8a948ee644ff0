"""Return programs without a client, by transport."""

from __future__ import annotations

from tests.simulation.clocks import HostTime
from tests.simulation.facts import Begin
from tests.simulation.heph import Heph
from tests.simulation.jets import Jets
from tests.simulation.network import COLLECTOR, JETS, Network
from tests.simulation.wire import Datagrams, Sent, Stream
from tests.simulation.world import World

TRANSPORTS = ("raw", "heph-tcp", "jets-udp", "jets-tcp")
GARBLES = ("before", "behind", "torn")
"""Ways to send unreadable bytes: noise before an event, noise after an event, or only a piece of the event."""

Producer = Heph | Jets


def producer(world: World, network: Network, sent: Sent, begin: Begin, time: HostTime) -> Producer:
    """Return the producer that acts as a program without a client."""
    jets, stream = begin.transport.startswith("jets"), begin.transport.endswith("tcp")
    where = {"source": begin.address, "target": JETS if jets else COLLECTOR}
    chance = world.random(f"program/{begin.program}")

    def make(greet):
        if stream:
            return Stream(world, network, sent, greet=greet, **where)
        return Datagrams(
            world, network, sent, greet=greet, often=not jets and not begin.alone, **where
        )

    if jets:
        return Jets(make, time, chance, begin.program)
    introduces = begin.first > 0 and not begin.overtaken
    heph = Heph(make, time, chance, begin.first, introduces=introduces)
    if begin.alone:
        heph.sender.send([])
    return heph
