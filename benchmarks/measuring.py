"""Run a benchmark, and describe the machine on which it ran."""

from __future__ import annotations

from benchmarks.machine import described
from benchmarks.options import Options
from benchmarks.results import Result
from benchmarks.suite.benchmark import Benchmark


def measure(benchmark: Benchmark, options: Options, kernels: str) -> Result:
    """Return what a benchmark finds now."""
    with described(kernels) as machine:
        cases = benchmark.cases(options)
    return Result(
        title=benchmark.title, about=benchmark.about, machine=machine, cases=cases,
        axis=benchmark.axis, plotted=list(benchmark.plotted), quick=options.quick,
    )  # fmt: skip
