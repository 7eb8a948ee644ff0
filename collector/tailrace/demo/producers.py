"""The producers of the demonstration: `PRODUCERS` has one entry each. Pure, given a seed.

To add a producer, write a function from seed and epoch to `Traffic`, and add an entry. A new transport
also needs a sender in `sending`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tailrace.demo.files import dftracer_tail, et3_tail, ovni_tail
from tailrace.demo.heph import datagrams, epoch, heph_events, numbers
from tailrace.demo.jets import jets_trace
from tailrace.demo.mangle import DROPPED, REORDERED, Chances, Mangler
from tailrace.demo.traffic import Traffic

EVENTS = 20_000
STREAMS = (0, 1, 2, 3)
PIECE_BYTES = 16_384

_SPARED_HEAD = 32
"""First events of a stream to leave alone, because a loss there could also be a late join."""


class Producer(NamedTuple):
    source: str
    """The name of the producer's source in the configuration."""
    transport: str
    format: str
    rate: float
    """Chunks a second."""
    traffic: Callable[[int, int], Traffic]
    """Returns the traffic for a seed and an epoch in Unix nanoseconds."""


def heph_udp(seed: int, epoch_ns: int) -> Traffic:
    """Return full datagrams from a network that drops and reorders."""
    packets = list(heph_events(seed, EVENTS, STREAMS))
    last = {packet.stream: packet.counter for packet in packets}

    def spare(datagram: bytes) -> bool:
        # No later event shows that a stream's last event is missing.
        return any(n < _SPARED_HEAD or n == last[stream] for stream, n in numbers(datagram))

    mangler = Mangler(seed, Chances(drop=0.02, reorder=0.02), spare)
    chunks = [epoch(epoch_ns)]
    for datagram in datagrams(packet.data for packet in packets):
        chunks += mangler.push(datagram)
    chunks += mangler.finish()
    lost = {str(stream): counters for stream, counters in mangler.counters(DROPPED).items()}
    missing = sum(map(len, lost.values()))
    moved = sum(map(len, mangler.counters(REORDERED).values()))
    return Traffic(
        chunks,
        EVENTS - missing,
        {stream: len(counters) for stream, counters in lost.items()},
        {(stream, counter) for stream, counters in lost.items() for counter in counters},
        f"{EVENTS} events, {missing} of them dropped on the way, {moved} out of order",
    )


def heph_tcp(seed: int, epoch_ns: int) -> Traffic:
    """Return the same kind of events for a connection, with none missing."""
    data = epoch(epoch_ns) + b"".join(
        packet.data for packet in heph_events(seed + 1, EVENTS, STREAMS)
    )
    return Traffic(_pieces(data), EVENTS, {}, set(), f"{EVENTS} events, none missing")


def jets_tcp(seed: int, _epoch_ns: int) -> Traffic:
    """Return a trace that lacks a few event lines, which its footer counts."""
    lines = list(jets_trace(seed, cores=2, threads=2, instructions=100))
    places = [place for place, line in enumerate(lines) if line.type == "event"]
    left_out = set(Random(f"lines/{seed}").sample(places, 7))  # noqa: S311 - traffic, not secrets
    kinds = Counter(line.type for line in lines)
    events = kinds["record"] + kinds["annotation"] + kinds["event"] - len(left_out)
    data = b"".join(line.data for place, line in enumerate(lines) if place not in left_out)
    about = f"{len(lines)} lines of a simulated processor, {len(left_out)} of them left out"
    return Traffic(_pieces(data), events, {"": len(left_out)}, set(), about)


PRODUCERS = (
    Producer("heph_udp", "udp", "heph", 500.0, heph_udp),
    Producer("heph_tcp", "tcp", "heph", 200.0, heph_tcp),
    Producer("jets_tcp", "tcp", "jets", 200.0, jets_tcp),
    Producer("ovni_tail", "tail", "ovni", 60.0, ovni_tail),
    Producer("dftracer_tail", "tail", "dftracer", 140.0, dftracer_tail),
    Producer("et3_tail", "tail", "et3", 260.0, et3_tail),
)


def _pieces(data: bytes) -> list[bytes]:
    """Cut a stream at arbitrary places, as networks do."""
    return [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
