"""`python -m benchmarks.noise`: how often `tailrace diff` alarms for equal runs, and how often it finds 3 %.

A small traced program runs again and again, alternately with 33 and with 34 units of work in each span. A second process
takes the cores at random. Random samples of these runs are then compared as `tailrace diff` compares them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import NamedTuple

WORK = {"equal": 33, "slower": 34}
"""Units of work in a span, for each kind of run."""

SPANS = 300
"""Number of spans of each name in a run."""

FIGURES = ("min", "p50", "p95", "total")
SIDE = 5
"""Number of repeated runs on each side."""


def program(path: str, units: int, seed: int) -> None:
    """Trace six kinds of work, in random order, into a file."""
    import tailrace_client as trace

    order = random.Random(seed)
    text = json.dumps({"list": list(range(20)), "object": {"key": "value" * 4}})
    block, numbers = order.randbytes(1500), [order.random() for _ in range(40)]
    work = {
        "parse": lambda: json.loads(text),
        "digest": lambda: hashlib.sha256(block).digest(),
        "sort": lambda: sorted(numbers),
        "sum": lambda: sum(i * i for i in range(40)),
        "table": lambda: {str(i): i for i in range(15)},
        "checksum": lambda: zlib.crc32(block),
    }
    trace.connect(f"file://{path}")
    for name in [name for _ in range(SPANS) for name in order.sample(sorted(work), len(work))]:
        call = work[name]
        with trace.span(name):
            for _ in range(units):
                call()
    trace.close()


def compete(seed: int) -> None:
    """Take one core for random times, 50 ms on average, and leave it for as long, until a signal."""
    times = random.Random(seed)
    while True:
        end = time.monotonic() + times.expovariate(20)
        while time.monotonic() < end:
            sorted(times.random() for _ in range(500))
        time.sleep(times.expovariate(20))


class MeasuredRun(NamedTuple):
    """One run: its statistics, and for each figure what its blocks of time show."""

    statistics: list
    evidence: dict


def record(folder: Path, runs: int) -> None:
    """Run the program, alternately with each kind of work, beside a process that competes."""
    here = [sys.executable, "-m", "benchmarks.noise"]
    rival = subprocess.Popen([*here, "--compete", "1"])
    try:
        for i in range(runs):
            for kind, units in WORK.items():
                path = folder / f"{kind}-{i:03}.heph"
                subprocess.run([*here, "--program", path, str(units), str(i)], check=True)
    finally:
        rival.send_signal(signal.SIGTERM)
        rival.wait()


def measure(folder: Path) -> dict[str, list[MeasuredRun]]:
    """Import the traces, and read the statistics of each run. Return the runs of each kind in their order."""
    from tailrace.analysis import blocks, statistics as of_spans
    from tailrace.query.completeness import completeness
    from tailrace.query.engine import Engine
    from tailrace.query.live import NOBODY
    from tailrace.reading.question import Filters

    store, tailrace = folder / "store", [sys.executable, "-m", "tailrace"]
    done = subprocess.run(
        [*tailrace, "import", "--json", "--store", store, folder], check=True, capture_output=True
    )
    engine, found = Engine(str(store)), {kind: [] for kind in WORK}
    for file in sorted(json.loads(done.stdout)["files"], key=lambda file: file["path"]):
        window = Filters(session=(file["session"],)).window
        whole = completeness(engine, window.scope, NOBODY)
        groups = of_spans.statistics(engine, window, whole, self_time=False)
        evidence = {
            figure: blocks.MeasuredRun.read(
                engine, window, of_spans.BY_NAME, figure, whole
            ).evidence()
            for figure in FIGURES
        }
        kind = Path(file["path"]).name.partition("-")[0]
        found[kind].append(MeasuredRun(groups, evidence))
    return found


def verdicts(a: list[MeasuredRun], b: list[MeasuredRun], figure: str, threshold: float) -> set[str]:
    """Return the verdicts of all names, as `tailrace diff` gives them."""
    from tailrace.analysis.noise import RepeatedRuns, judged, judged_by_runs, repeated_changes

    sides = [
        RepeatedRuns([run.statistics for run in side], [lambda *_: False] * len(side))
        for side in (a, b)
    ]
    found = repeated_changes(*sides, figure)
    if len(a) == 1:
        found = judged(found, a[0].evidence[figure], b[0].evidence[figure])
    else:
        found = judged_by_runs(found, *sides, figure)
    return {each.verdict(threshold).value for each in found}


ALARMS = {"grew", "shrank"}


def contest(runs: dict[str, list[MeasuredRun]], pairs: int) -> None:
    """Print how many comparisons of random runs have an alarm, and how many find the slower runs."""
    from tailrace.analysis.statistics import FIGURES as FIELDS

    chance = random.Random(1)
    equal, slower = runs["equal"], runs["slower"]
    print(
        "figure | sd of runs | 5 and 5 equal: alarms | 5 and 5, 3 % slower: found | 1 and 1 equal: alarms, beyond 10 %"
    )
    for figure in FIGURES:
        logs: dict[object, list[float]] = {}
        for run in equal:
            for group in run.statistics:
                logs.setdefault(group.group, []).append(math.log(getattr(group, FIELDS[figure])))
        spread = statistics.median(statistics.stdev(each) for each in logs.values())
        alarms = found = single = beyond = 0
        for _ in range(pairs):
            drawn = chance.sample(range(len(equal)), 2 * SIDE)
            a, b = drawn[:SIDE], drawn[SIDE:]
            alarms += bool(
                ALARMS & verdicts([equal[i] for i in a], [equal[i] for i in b], figure, 0)
            )
            found += "grew" in verdicts([equal[i] for i in a], [slower[i] for i in b], figure, 0)
            one = chance.randrange(len(equal) - 1)
            single += bool(ALARMS & verdicts([equal[one]], [equal[one + 1]], figure, 0))
            beyond += bool(ALARMS & verdicts([equal[one]], [equal[one + 1]], figure, 0.1))
        print(f"{figure} | {spread:.1%} | {alarms} | {found} | {single}, {beyond} of {pairs}")


def simulated(pairs: int) -> None:
    """Print how many comparisons find 3 % by the spread of the runs, of which half is common to all six names."""
    from tailrace.analysis.bounds import Interval
    from tailrace.analysis.statistics import FIGURES as FIELDS, SpanStatistics

    def run(spread: float, factor: float) -> MeasuredRun:
        common, groups = chance.gauss(0, spread), []
        for name in "abcdef":
            noise = (common + chance.gauss(0, spread)) / math.sqrt(2)
            value = round(1e7 * factor * math.exp(noise))
            bounds = dict.fromkeys(FIELDS, Interval(value, value))
            groups.append(SpanStatistics((name,), "ns", value, 0, *[value] * 8, bounds))
        return MeasuredRun(groups, {})

    chance = random.Random(2)
    for spread in (0.0025, 0.005, 0.0075, 0.01, 0.02):
        line = []
        for side in (3, 5, 10, 20):
            found = sum(
                "grew" in verdicts(*([run(spread, by) for _ in range(side)] for by in (1, 1.03)), "p50", 0)
                for _ in range(pairs)
            )  # fmt: skip
            line.append(f"{side} runs: {found}")
        print(f"simulated sd {spread:.2%}, 3 % found of {pairs} | {' | '.join(line)}", flush=True)


def main() -> None:
    """Run the experiment, or one of its processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40, help="runs of each kind (default: 40)")
    parser.add_argument("--pairs", type=int, default=100, help="comparisons (default: 100)")
    parser.add_argument("--program", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--compete", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.program:
        path, units, seed = given.program
        program(path, int(units), int(seed))
    elif given.compete:
        compete(given.compete)
    else:
        simulated(given.pairs)
        with tempfile.TemporaryDirectory() as folder:
            record(Path(folder), max(given.runs, 2 * SIDE))
            print(f"load average {os.getloadavg()[0]:.1f}, {given.runs} runs of each kind")
            contest(measure(Path(folder)), given.pairs)


if __name__ == "__main__":
    main()
