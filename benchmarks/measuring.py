"""Run a benchmark, and describe the machine on which it ran."""

from __future__ import annotations

from benchmarks.machine import dated
from benchmarks.options import Options
from benchmarks.results import Machine, Result
from benchmarks.suite.benchmark import Benchmark


def measure(benchmark: Benchmark, options: Options, machine: Machine) -> Result:
    """Run a benchmark. Return its result, with the description of the machine."""
    with dated(machine) as now:
        cases = benchmark.cases(options)
    return Result(
        title=benchmark.title, about=benchmark.about, machine=now, cases=cases,
        axis=benchmark.axis, plotted=list(benchmark.plotted), quick=options.quick,
    )  # fmt: skip
