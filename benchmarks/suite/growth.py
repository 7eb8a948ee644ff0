"""Measure a growing table: the cost of commits, starts and questions when it is large."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from benchmarks.contest import scratch
from benchmarks.inputs import heph
from benchmarks.inputs.trace import trace
from benchmarks.options import Options
from benchmarks.processes import apart, sending
from benchmarks.processes.daemon import SOCKETS, Daemon, daemon
from benchmarks.processes.usage import Watch
from benchmarks.results import Case, Role, Run, Side
from benchmarks.suite.benchmark import Benchmark
from benchmarks.suite.into_table import configuration

PIECE = 1_000_000
"""Maximum number of events that one producer adds."""
MOST_ADDED = 50_000
"""Maximum number of events that are added for one measurement. At most half of `events` are added."""
RANGE_NS = (1_000_000, 1_200_000)
"""Length (ns) of the range of time in the questions. Each producer has some 900 events in it."""
_OURS = "the daemon on the table, and questions to its views by `tailrace.open`"
_BARE = "the same questions by DuckDB over the table's bare Parquet files, without names, clocks and gaps"


class Table:
    """A table that grows to given numbers of rows, and is measured at each."""

    def __init__(self, home: Path, options: Options) -> None:
        self._home = home
        self._options = options
        self._events = 0
        self._producers = 0

    def grow(self, rows: int) -> None:
        """Add events until the table has the given number of rows."""
        with daemon(self._home, SOCKETS, configuration(self._options)) as running:
            while self._events < rows:
                self._add(running, min(rows - self._events, PIECE))

    def written(self) -> Run:
        """Measure a start of the daemon, and the receipt of some more events."""
        begun = time.monotonic()
        with daemon(self._home, SOCKETS, configuration(self._options)) as running:
            found: Run = {"listening": time.monotonic() - begun}
            running.collector.settle()
            events = min(self._options.events // 2, MOST_ADDED)
            before = running.status()["commit_seconds"]
            with Watch(running.process) as watch:
                self._add(running, events)
            after = running.status()["commit_seconds"]
        commits = after["count"] - before["count"]
        found["commit"] = (after["sum"] - before["sum"]) / commits
        return found | {"cpu": watch.usage.cpu / events, "resident": watch.usage.resident}

    def asked(self, who: str) -> Run:
        """Measure three questions in a new process, and the memory that it needs."""
        store = str(self._home / "store")
        done = apart.run(f"benchmarks.references.asking:{who}", store, *RANGE_NS)
        found: Run = done.value
        return found | {"asking": done.usage.resident}

    def _add(self, running: Daemon, events: int) -> None:
        """Add the events of a producer, and wait until they are committed and durable."""
        made = trace("heph", events)
        epoch = heph.epoch_packet(heph.EPOCH + self._producers)
        path = self._home / "trace"
        with path.open("wb") as file, made.path.open("rb") as source:
            file.write(epoch)
            source.seek(len(epoch))
            shutil.copyfileobj(source, file, 2**20)
        before = running.source("heph")["decoded_bytes"]
        sending.stream(running.address("heph"), path)
        running.await_committed("heph", before + made.content)
        self._events += events
        self._producers += 1


def cases(options: Options) -> list[Case]:
    """Measure the table at each size while it grows. Each run begins with an empty table."""
    found = [_case(rows) for rows in options.rows]
    for number in range(options.runs):
        with scratch() as home:
            table = Table(home, options)
            for rows, case in zip(options.rows, found, strict=True):
                print(f"  {rows} rows, {number + 1} of {options.runs}", flush=True)
                table.grow(rows)
                bare, ours = case.sides
                bare.runs.append(table.asked("bare"))
                asked = table.asked("ours")
                ours.runs.append(table.written() | asked)
    return found


def _case(rows: int) -> Case:
    bare = Side(name="DuckDB on the files", role=Role.REFERENCE, does=_BARE, runs=[])
    return Case(label=f"{rows} rows", at=rows, sides=[bare, Side(name="Tailrace", role=Role.OURS, does=_OURS, runs=[])])  # fmt: skip


BENCHMARKS = {
    "rows": Benchmark(
        "A table that grows",
        "Heph events, added until the table has so many rows. Then the daemon starts on it and takes more, and three questions are asked in a new process. "
        "A producer adds up to a million events, of which the narrow range has 900.",
        cases,
        axis="rows",
        plotted=("cpu", "commit", "count", "range", "streams", "asking"),
    ),
}
