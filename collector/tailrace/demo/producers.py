"""Define the producers of the demonstration (`PRODUCERS`).

The function of a producer generates its events from a seed, without I/O, and leaves some of them out on purpose. To
add a producer, write a function that returns `Traffic` for a seed and an epoch, and add an entry to `PRODUCERS`. A
new transport also needs a function in `traffic.SENDERS`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from tailrace.demo import binary, lines as text_lines
from tailrace.demo.binary import datagrams, epoch, heph_events, numbers
from tailrace.demo.lines import jets_trace
from tailrace.demo.traffic import Traffic, Write

ITERATIONS = 60
BUFFER_BYTES = 16_384
"""Size (bytes) of the buffer of an ovni thread. With libovni's own 2 MiB, a thread would write only at its end."""

STEPS = 150
"""Number of training steps of each DFTracer process."""
LINES_LEFT_OUT = 5
"""Number of lines that are left out of each DFTracer file on purpose."""

TURNS = 12_000
"""Number of simulated steps (calls, returns, allocations, …) of the Java program in an ET3 trace."""
CALLS_LEFT_OUT = 9
"""Number of entries and exits that are left out of an ET3 trace on purpose."""

_SPARED_LINES = 100
"""Number of lines at the start of each trace that are never left out: their loss would look like a late start."""


def ovni_tail(seed: int, _epoch_ns: int) -> Traffic:
    """Return the writes of an ovni trace of two nodes, with nothing left out."""
    random = Random(f"turns/{seed}")  # noqa: S311 - traffic, not secrets
    threads = binary.ovni_trace(seed, iterations=ITERATIONS)
    chunks = _in_turns(random, [binary.ovni_writes(thread, BUFFER_BYTES) for thread in threads])
    chunks.append(Write("clock-offsets.txt", binary.ovni_offsets(threads)))
    events = sum(binary.ovni_event_count(thread, BUFFER_BYTES) for thread in threads)
    about = f"{events} events of {len(threads)} threads on 2 nodes, none missing"
    return Traffic(chunks, events, {}, set(), about)


def dftracer_tail(seed: int, epoch_ns: int) -> Traffic:
    """Return the writes of the DFTracer files of three processes, one compressed. A few lines are left out."""
    random = Random(f"lines/{seed}")  # noqa: S311 - traffic, not secrets
    traces = text_lines.dftracer_trace(seed, epoch_ns // 1000, steps=STEPS)
    numbers = sorted({line.id for line in traces[0].lines if line.id is not None})
    # Leave different event numbers out of each file. All files have the same numbers, so that the number of a missing
    # event shows from which file it was left out.
    chosen = random.sample(numbers[_SPARED_LINES:-_SPARED_LINES], LINES_LEFT_OUT * len(traces))
    writers = []
    events = 0
    for place, file in enumerate(traces):
        left_out = set(chosen[place :: len(traces)])
        lines = [line for line in file.lines if line.id not in left_out]
        events += sum(line.id is not None for line in lines) - len(("start", "end"))
        write = text_lines.gzip_writes if place == 1 else text_lines.plain_writes
        writers.append(write(file.name, lines))
    return Traffic(
        _in_turns(random, writers),
        events,
        {"": len(chosen)},
        {("", number) for number in chosen},
        f"3 processes, {events} events in a compressed and two plain files, "
        f"{len(chosen)} lines left out",
    )


def et3_tail(seed: int, _epoch_ns: int) -> Traffic:
    """Return the writes of two ET3 traces: a complete one as the Java agents write it, and one as the specification
    defines it, which lacks some entries to methods and exits from methods."""
    random = Random(f"lines/{seed}")  # noqa: S311 - traffic, not secrets
    whole = text_lines.et3_agent_form(seed, TURNS)
    lines = text_lines.et3_specification_form(seed + 1, TURNS)
    ticks = [line for line in lines[_SPARED_LINES:] if line.letter in "ME"]
    left_out = set(random.sample(ticks[:-1], CALLS_LEFT_OUT))
    lines = [line for line in lines if line not in left_out]
    chunks = _in_turns(
        random,
        [
            text_lines.plain_writes("agent/trace", whole, text_lines.PIECE_BYTES),
            text_lines.plain_writes("specification/trace.et3", lines, text_lines.PIECE_BYTES),
        ],
    )
    for directory, maps in (
        ("agent", text_lines.et3_agent_maps()),
        ("specification", text_lines.et3_specification_maps()),
    ):
        chunks += [Write(f"{directory}/{name}", data) for name, data in maps.items()]
    events = sum(line.letter != "E" for line in [*whole, *lines])
    return Traffic(
        chunks,
        events,
        {"": len(left_out)},
        {("", line.clock) for line in left_out},
        f"{len(whole) + len(lines)} lines in two forms, "
        f"{len(left_out)} entries and exits left out of one",
    )


def _in_turns(random: Random, writers: list[Iterator[Write]]) -> list[Write]:
    """Return the writes of several writers, interleaved at random. The writes of each writer stay in order."""
    chunks = []
    while writers:
        writer = random.choice(writers)
        write = next(writer, None)
        if write is None:
            writers.remove(writer)
        else:
            chunks.append(write)
    return chunks


EVENTS = 20_000
STREAMS = (0, 1, 2, 3)
PIECE_BYTES = 16_384

_SPARED_HEAD = 32
"""Number of events at the start of each stream that are never left out: their loss would look like a late start."""


DROPPED = REORDERED = 0.02
"""Probability that the simulated network drops a datagram, and that it delays one."""
LATER_MAX = 4
"""Maximum number of later datagrams that the simulated network delivers before a delayed one."""


class Producer(NamedTuple):
    source: str
    """Name of the producer's source in the demonstration's configuration."""
    transport: str
    format: str
    rate: float
    """Number of chunks (datagrams, parts of a byte stream, or writes to files) that the producer sends a second."""
    traffic: Callable[[int, int], Traffic]
    """Function that returns the traffic for a seed and an epoch (Unix ns)."""


def heph_udp(seed: int, epoch_ns: int) -> Traffic:
    """Return Heph datagrams as a bad network delivers them: it drops some datagrams and delays others."""
    packets = list(heph_events(seed, EVENTS, STREAMS))
    last = {packet.stream: packet.counter for packet in packets}

    def spare(datagram: bytes) -> bool:
        # Never drop the last event of a stream, because no later event would reveal its loss.
        return any(n < _SPARED_HEAD or n == last[stream] for stream, n in numbers(datagram))

    random = Random(f"network/{seed}")  # noqa: S311 - traffic, not secrets
    kept: list[tuple[float, bytes]] = []
    dropped: list[tuple[int, int]] = []
    moved = 0
    for at, datagram in enumerate(datagrams(packet.data for packet in packets)):
        chance = 1.0 if spare(datagram) else random.random()
        if chance < DROPPED:
            dropped += numbers(datagram)
            continue
        late = DROPPED <= chance < DROPPED + REORDERED
        moved += len(numbers(datagram)) if late else 0
        kept.append((at + random.randint(1, LATER_MAX) + 0.5 if late else at, datagram))
    chunks = [epoch(epoch_ns), *(datagram for _, datagram in sorted(kept))]
    lost = Counter(str(stream) for stream, _ in dropped)
    missing = len(dropped)
    return Traffic(
        chunks,
        EVENTS - missing,
        dict(lost),
        {(str(stream), counter) for stream, counter in dropped},
        f"{EVENTS} events, {missing} of them dropped on the way, {moved} out of order",
    )


def heph_tcp(seed: int, epoch_ns: int) -> Traffic:
    data = epoch(epoch_ns) + b"".join(
        packet.data for packet in heph_events(seed + 1, EVENTS, STREAMS)
    )
    return Traffic(_pieces(data), EVENTS, {}, set(), f"{EVENTS} events, none missing")


def jets_tcp(seed: int, _epoch_ns: int) -> Traffic:
    """Return a JETS trace for one connection. Some event lines are left out, which the footer still counts."""
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
    """Divide the bytes of a stream into chunks of equal size. As in a network, a chunk may end anywhere within a
    record."""
    return [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
