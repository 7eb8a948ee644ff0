"""Measure where the CPU time goes: each of the daemon's stages together with all stages before it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.contest import contest, ours, reference, scratch
from benchmarks.inputs.trace import Trace, trace
from benchmarks.options import Options
from benchmarks.processes import apart
from benchmarks.results import Case, Run
from benchmarks.suite.benchmark import Benchmark
from benchmarks.suite.into_table import IntoTable

OVER_TCP = ("heph", "jets")
FOLLOWED = ("dftracer", "ovni", "et3")
MANY = 5000
"""Number of streams of the trace that shows what many streams cost."""


def cases(options: Options) -> list[Case]:
    """Measure each format, or only one that is sent over a connection and one that is followed."""
    some = slice(None if options.varieties else 1)
    found = []
    for format_ in (*OVER_TCP[some], *FOLLOWED[some]):
        with scratch() as home:
            found.append(_case(format_, trace(format_, options.events), home, options))
    if options.varieties:
        with scratch() as home:
            made = trace("heph", options.events, streams=MANY)
            found.append(_case(f"heph, {MANY} streams", made, home, options))
    return found


def _case(label: str, made: Trace, home: Path, options: Options) -> Case:
    table = IntoTable(home, options)
    whole: Callable[[Trace], Run] = table.streamed if made.format in OVER_TCP else table.followed
    sides = [
        reference("decoded", "bytes in memory to blocks of columns", partial(_stage, "decoded", made)),
        reference("ingested", "these blocks counted, and begins matched with ends", partial(_stage, "ingested", made)),
        reference("written", "these rows to durable Parquet files", partial(_stage, "written", made, str(home / "files"))),
        ours("all of it, and receiving, the spool, commits, metrics and answers", partial(whole, made)),
    ]  # fmt: skip
    return contest(label, sides, options.runs)


def _stage(stage: str, made: Trace, *more: object) -> Run:
    paths = [str(path) for path in made.paths]
    done = apart.run(f"benchmarks.processes.stages:{stage}", made.format, paths, *more)
    return {"rate": made.events / done.seconds, "cpu": done.usage.cpu / made.events}


BENCHMARKS = {
    "stages": Benchmark(
        "Where the CPU goes",
        "The daemon's stages in one process, each with all stages before it, of bytes that are in memory. The difference between two lines is the cost of a stage.",
        cases,
    ),
}
