"""Measure a table of many rows, which our table writer makes in minutes: questions before and after upkeep, and a
daemon that adds rows to it.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from benchmarks.contest import contest, ours, reference, scratch
from benchmarks.inputs import heph, stored
from benchmarks.inputs.trace import trace
from benchmarks.options import Options
from benchmarks.processes import apart, sending
from benchmarks.processes.daemon import SOCKETS, daemon
from benchmarks.processes.usage import Watch
from benchmarks.results import Case, Role, Run, Side
from benchmarks.suite.benchmark import Benchmark
from benchmarks.suite.into_table import configuration

WINDOW_NS = 2_000_000
"""Length (ns) of the range of time in the questions. It has about 1,000 events."""
MOST_ADDED = 1_000_000
"""Maximum number of events that a daemon adds."""
_OURS = "questions to the views, each by `tailrace.open` on a store that was just opened"
_BARE = "the same questions by DuckDB over the bare Parquet files, without names, clocks and gaps"
_TAKEN = "a daemon that starts on the table and takes more events over one connection"


def cases(options: Options) -> list[Case]:
    """Measure a table of each size, as the collector leaves it and after upkeep."""
    found = []
    for rows in options.stored:
        with scratch() as home:
            made = stored.write(str(home / "store"), rows, begins=True)
            least = heph.EPOCH + made.seconds * stored.SECOND // 2
            asked = [str(home / "store"), least, least + WINDOW_NS]
            found.append(_asked(f"{rows} rows, as written", asked, options))
            apart.run("benchmarks.references.asking:upkeep", str(home / "store"))
            found.append(_asked(f"{rows} rows, after upkeep", asked, options))
    return found


def taking(options: Options) -> list[Case]:
    """Measure a daemon on a table of each size."""
    found = []
    for rows in options.stored:
        with scratch() as home:
            stored.write(str(home / "store"), rows, begins=True)
            found.append(_taken(f"{rows} rows", home, options))
    return found


def _asked(label: str, asked: list[object], options: Options) -> Case:
    def run(who: str) -> Run:
        done = apart.run(f"benchmarks.references.asking:{who}", *asked)
        answers: Run = done.value
        return answers | {"asking": done.usage.resident}

    sides = [
        reference("DuckDB on the files", _BARE, lambda: run("bare_then")),
        ours(_OURS, lambda: run("ours_then")),
    ]
    return contest(label, sides, options.runs)


def _taken(label: str, home: Path, options: Options) -> Case:
    """Measure a daemon on the table and on an empty one, in turns."""
    empty = Side(name="an empty table", role=Role.REFERENCE, does=_TAKEN, runs=[])
    full = Side(name="Tailrace", role=Role.OURS, does=_TAKEN, runs=[])
    for number in range(options.runs):
        for side, where in ((empty, home / "empty"), (full, home)):
            print(f"  {label}: {side.name}, {number + 1} of {options.runs}", flush=True)
            side.runs = [*(side.runs or []), _add(where, number, options)]
            shutil.rmtree(home / "empty", ignore_errors=True)
    return Case(label=label, sides=[empty, full])


def _add(home: Path, number: int, options: Options) -> Run:
    """Let a daemon receive the events of a producer, and wait until they are committed and durable."""
    events = min(options.events // 2, MOST_ADDED)
    made = trace("heph", events)
    with daemon(home, SOCKETS, configuration(options)) as running:
        running.collector.settle()
        before = running.status()["commit_seconds"]
        path = home / "trace"
        epoch = heph.epoch_packet(heph.EPOCH + 1 + number)
        path.write_bytes(epoch + made.path.read_bytes()[len(epoch) :])
        begun = time.monotonic()
        with Watch(running.process) as watch:
            sending.stream(running.address("heph"), path)
            running.await_committed("heph", made.content)
        seconds = time.monotonic() - begun
        after = running.status()["commit_seconds"]
    commits = after["count"] - before["count"]
    return {
        "rate": events / seconds,
        "cpu": watch.usage.cpu / events,
        "commit": (after["sum"] - before["sum"]) / commits,
        "resident": watch.usage.resident,
        "private": watch.usage.private,
    }


BENCHMARKS = {
    "large": Benchmark(
        "A large table",
        "Rows of ten Heph producers with gaps and open spans, written by the store's own writer: a file for each 500,000, as a daemon leaves them. A new process asks how many events "
        f"there are, for spans of {WINDOW_NS / 1e6:.0f} ms, for all streams, for gaps and for the statistics of these spans; then again after upkeep has merged the files.",
        cases,
    ),
    "taking": Benchmark(
        "Taking more into a large table",
        "A daemon starts on the table of `large`, and another one on an empty table; each takes the same Heph events over one connection.",
        taking,
    ),
}
