"""Measure datagrams beside a backlog of files.

None of them must be lost, or become visible much later than without the files.
"""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Self
from urllib.parse import unquote

import pyarrow.compute as pc
from pyarrow import parquet

from benchmarks.contest import Contender, contest, ours, scratch
from benchmarks.inputs.heph import packets
from benchmarks.inputs.trace import trace
from benchmarks.options import Options
from benchmarks.processes import sending
from benchmarks.processes.daemon import daemon
from benchmarks.results import Case, Role, Run, Side
from benchmarks.suite.benchmark import Benchmark
from benchmarks.suite.into_table import configuration, lost

SOURCES = """
[sources.udp]
type = "udp"
format = "heph"
listen = "127.0.0.1:0"

[sources.files]
type = "tail"
format = "jets"
paths = ["{runs}/*.jets"]
"""
LINES = 500_000
"""Number of lines of each file of the backlog."""
_LOOK_SECONDS = 0.01


class VisibleRows:
    """Records, within a `with` block, when each version of the table added which event numbers of a source."""

    def __init__(self, events: Path, source: str) -> None:
        self.seen: list[tuple[float, int, int]] = []
        """For each version that added rows of the source: the time of the version, and its lowest and highest event
        number.
        """
        self._events = events
        self._source = source
        self._ended = Event()
        self._thread = Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        version = 0
        while not self._ended.wait(_LOOK_SECONDS):
            while (log := self._events / "_delta_log" / f"{version:020}.json").exists():
                when = time.monotonic()
                version += 1
                for path in added(log):
                    rows = parquet.read_table(self._events / path, columns=["source", "seq"], partitioning=None)  # fmt: skip
                    numbers = rows.filter(pc.equal(rows.column("source"), self._source)).column(
                        "seq"
                    )
                    least, greatest = pc.min_max(numbers).as_py().values()
                    if least is not None:
                        self.seen.append((when, least, greatest))


def added(log: Path) -> list[str]:
    """Return the files that an entry of a Delta log adds to the table."""
    actions = map(json.loads, log.read_text().splitlines())
    return [unquote(action["add"]["path"]) for action in actions if "add" in action]


def cases(options: Options) -> list[Case]:
    """Measure datagrams alone, and beside files that exist when the daemon starts."""
    rate = options.backlog_rate
    made = trace("heph", max(round(rate * options.seconds), 1), streams=1)
    datagrams = list(packets(made.path.read_bytes()))
    file = trace("jets", min(LINES, options.events)).path
    with scratch() as home:

        def run(copies: int) -> Run:
            return _run(home, datagrams, made.events, [file] * copies, options)

        copies = -(-options.backlog // file.stat().st_size)
        alone = Side(
            name="Tailrace alone", role=Role.BASE, does="datagrams to committed, durable rows"
        )
        sides = [
            Contender(alone, lambda: run(0)),
            ours(f"the same beside {options.backlog / 1e9:g} GB of JETS files", lambda: run(copies)),
        ]  # fmt: skip
        return [contest(f"{rate} datagrams a second", sides, options.runs, at=rate)]


def _run(
    home: Path, datagrams: Sequence[bytes], events: int, files: Sequence[Path], options: Options
) -> Run:
    runs = home / "runs"
    shutil.rmtree(home / "ours", ignore_errors=True)
    shutil.rmtree(runs, ignore_errors=True)
    runs.mkdir()
    for number, file in enumerate(files):
        shutil.copyfile(file, runs / f"{number}.jets")
    sources = SOURCES.format(runs=runs)
    with daemon(home / "ours", sources, configuration(options)) as running:
        with VisibleRows(running.events, "udp") as rows:
            begun = time.monotonic()
            seconds = sending.datagrams(running.address("udp"), datagrams, options.backlog_rate)
            running.await_quiet("udp")
        gone = lost(running, "udp", events)
    each = seconds / events
    newest = [when - begun - greatest * each for when, _, greatest in rows.seen]
    oldest = [when - begun - least * each for when, least, _ in rows.seen]
    middle = statistics.median(map(statistics.mean, zip(newest, oldest, strict=True)))
    return {"sent": len(datagrams) / seconds, "p50": middle, "slowest": max(oldest), "lost": gone}


BENCHMARKS = {
    "backlog": Benchmark(
        "Datagrams beside a backlog",
        "Heph datagrams, one event each, at half of the rate that the collector takes alone, while it reads files that were there before. Whatever comes is decoded in its order, so files that wait to be decoded would delay the rows of datagrams; how many there are makes no difference as long as they last longer than the sending. A row's time is that of the version of the table that has it.",
        cases,
    ),
}
