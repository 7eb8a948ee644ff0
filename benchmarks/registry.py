"""All benchmarks by their names, in the order of the page."""

from __future__ import annotations

from benchmarks.suite import (
    datagrams,
    decoding,
    emitting,
    growth,
    idle,
    latency,
    many,
    stages,
    throughput,
)
from benchmarks.suite.benchmark import Benchmark

BENCHMARKS: dict[str, Benchmark] = {
    name: benchmark
    for module in (throughput, datagrams, latency, idle, stages, decoding, emitting, many, growth)
    for name, benchmark in module.BENCHMARKS.items()
}
