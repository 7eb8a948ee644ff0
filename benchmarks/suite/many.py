"""Measure many streams in one connection, and many connections at the same time."""

from __future__ import annotations

from functools import partial

from benchmarks.contest import scratch
from benchmarks.inputs import heph
from benchmarks.inputs.trace import trace
from benchmarks.options import Options
from benchmarks.processes import sending
from benchmarks.results import Case, Run
from benchmarks.suite.benchmark import Benchmark
from benchmarks.suite.into_table import IntoTable
from benchmarks.suite.sweep import sweep


def streams(options: Options) -> list[Case]:
    """Measure the same number of events in more and more streams."""
    with scratch() as home:
        table = IntoTable(home, options)

        def run(count: int) -> Run:
            return table.streamed(trace("heph", options.events, streams=count))

        does = f"{options.events:,} Heph events over one connection"
        return sweep("streams", options.streams, does, run, options.runs)


def connections(options: Options) -> list[Case]:
    """Measure the same number of events over more and more connections, each from a producer of its own."""
    with scratch() as home:
        table = IntoTable(home, options)

        def run(count: int) -> Run:
            made = trace("heph", max(options.events // count, 1))
            traces = [_of_producer(made.path.read_bytes(), number) for number in range(count)]
            send = partial(sending.connections, traces=traces)
            return table.sent("heph", count * made.events, count * made.content, send)

        does = "Heph over as many connections, all open at once"
        return sweep("connections", options.connections, does, run, options.runs)


def _of_producer(data: bytes, number: int) -> bytes:
    """Return a trace as that of another producer, which began at another time."""
    packet = heph.epoch_packet(heph.EPOCH + number)
    return packet + data[len(packet) :]


BENCHMARKS = {
    "streams": Benchmark(
        "Many streams",
        "The same number of Heph events over one connection, spread over more and more streams. Each has a counter that the ledger follows. The spool takes new files until the second checkpoint, with 5,000 streams for nine million events; a longer run shows better what it costs to go on.",
        streams,
        axis="streams",
        plotted=("cpu", "resident"),
    ),
    "connections": Benchmark(
        "Many connections",
        "The same number of Heph events over more and more connections that are open at once. Each is a producer of its own with five streams.",
        connections,
        axis="connections",
        plotted=("cpu", "resident"),
    ),
}
