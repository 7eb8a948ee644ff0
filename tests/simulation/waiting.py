"""Check that nothing waits forever: windows close in time, clients get answers, and at the end there is nothing to wait
for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

from tailrace.ingest.incarnation import Incarnation
from tailrace.ingest.machine import Ingest
from tests.simulation.violation import demand
from tests.simulation.watch import SOURCES
from tests.simulation.world import SECOND

if TYPE_CHECKING:
    from tests.simulation.collector import Collector
    from tests.simulation.life import Life
    from tests.simulation.play import Play, Program

HEARD = 12 * 10 * SECOND
"""Maximum time (ns) until a client knows what became of its events, if nothing but single datagrams is lost."""
BETWEEN = 20 * SECOND
"""Time (ns) that is longer than the average time between two answers, if questions are 5 s apart and the network loses
a third of them.
"""
LONG_EVERY = 20
"""One seed in this number is played to its very end."""
FORGOTTEN = 660 * SECOND
"""Time (ns) that is longer than a collector waits for a client that is gone (`ledger.resume_time`), and then saves
checkpoints.
"""


def check_windows(ingest: Ingest, ticked: int) -> None:
    """Raise Violation for a hole that is open although its time was over at the last tick of the log (Unix ns)."""
    for incarnation in _incarnations(ingest):
        if incarnation.counters is None:
            continue
        limits = incarnation.counters._limits
        oldest = ticked - limits.reorder_time.ns
        for name, stream in incarnation.state.counters.streams.items():
            late = [hole for hole in stream.holes if hole.since <= oldest]
            demand(
                not late, "a window that does not close", (incarnation.state.name, name, late[:3])
            )


def _incarnations(ingest: Ingest) -> Iterator[Incarnation]:
    for number in ingest._waiting:
        yield from ingest._sessions[number].generations.awaited
    for source in SOURCES:
        yield from ingest.shared.announced[source].awaited()


def check(play: Play) -> None:
    """Raise Violation for anything that still waits after the last fact.

    First let time pass: as long as a client may wait for an answer, and in some plays as long as a collector waits for
    a client.
    """
    world = play.world
    for collector in play.collectors:
        collector.start()
    lost = max(network.answers_lost_next for network in play.networks)
    until = world.age + HEARD + lost * BETWEEN
    while world.age < until and (
        any(collector.life is None for collector in play.collectors)
        or any(map(_waits, play.programs.values()))
    ):
        world.run(10 * SECOND)
    deaf = [number for number, program in play.programs.items() if _waits(program)]
    demand(not deaf, "a client that waits for ever", deaf)
    lives = [_life(collector) for collector in play.collectors]
    for life, source in product(lives, SOURCES):
        awaited = list(life.ingest.awaited(source))
        demand(not awaited, "events that are awaited for ever", awaited[:9])
        windows = life.ingest.open_windows(source)
        demand(not windows, "a window that stays open", (source, windows))
    if play.scenario.seed % LONG_EVERY == 13:
        world.run(FORGOTTEN)
        for life in lives:
            demand(not life.ingest.waiting, "a collector that waits for ever", world.age)


def _life(collector: Collector) -> Life:
    life = collector.life
    demand(life is not None, "a collector that does not start", collector.failures)
    assert life is not None
    return life


def _waits(program: Program) -> bool:
    """Return whether a program runs and its client does not know yet what became of its events."""
    client = program.client
    if client is None or program.over:
        return False
    queue = client.link.queue
    return not client.link.fate.is_settled(queue.put_bytes)
