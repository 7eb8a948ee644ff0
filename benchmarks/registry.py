"""List all benchmarks by their names, in the order of the page."""

from __future__ import annotations

from benchmarks.suite import (
    datagrams,
    decoding,
    emitting,
    fairness,
    growth,
    idle,
    large,
    latency,
    looking,
    many,
    stages,
    throughput,
    trickle,
    zoom,
)
from benchmarks.suite.benchmark import Benchmark

BENCHMARKS: dict[str, Benchmark] = {
    name: benchmark
    for module in (
        throughput,
        datagrams,
        trickle,
        latency,
        fairness,
        idle,
        stages,
        decoding,
        emitting,
        many,
        growth,
        zoom,
        looking,
        large,
    )
    for name, benchmark in module.BENCHMARKS.items()
}
