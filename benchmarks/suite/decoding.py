"""Decoding alone: what a record costs with a kernel, in Python, and in the shortest loop."""

from __future__ import annotations

import platform
from functools import partial

from benchmarks.contest import Contender, beside, contest, ours
from benchmarks.inputs.trace import Trace, trace
from benchmarks.options import Options
from benchmarks.peers import loops
from benchmarks.peers.peer import Peer
from benchmarks.processes import apart
from benchmarks.results import Case, Run
from benchmarks.suite.benchmark import Benchmark
from tailrace import kernels

FORMATS = ("heph",)
"""Formats that have a kernel."""
COMPILER = "a C compiler, and then `make dev`"


def cases(options: Options) -> list[Case]:
    """Measure each format that has a kernel."""
    return [
        contest(format_, _sides(format_, trace(format_, options.events)), options.runs)
        for format_ in FORMATS
    ]


def _sides(format_: str, made: Trace) -> list[Contender]:
    kernel = ours("bytes to blocks of columns", partial(_run, "benchmarks.processes.decoding:blocks", made), name="kernel")  # fmt: skip
    if not kernels.active():
        kernel.side.absent = COMPILER
    python = Peer("decoder in Python", platform.python_version(), "", "the same bytes to a record an event")  # fmt: skip
    return [
        beside(loops.peer(), partial(_run, f"benchmarks.peers.loops:{format_}", made, named=False)),
        kernel,
        beside(python, partial(_run, "benchmarks.processes.decoding:records", made)),
    ]


def _run(work: str, made: Trace, *, named: bool = True) -> Run:
    paths = [str(path) for path in made.paths]
    done = apart.run(work, *([made.format] if named else []), paths)
    if done.value < made.events:
        raise RuntimeError(f"{work} read {done.value} of {made.events} events")
    return {"rate": made.events / done.seconds, "cpu": done.usage.cpu / made.events}


BENCHMARKS = {
    "decoding": Benchmark(
        "Cost of decoding",
        "Decoding alone, of bytes that are in memory, in chunks of 256 KiB on one thread. Nothing is counted, matched or stored.",
        cases,
    ),
}
