"""Measure the cost of a collector to which no program sends anything."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from benchmarks.contest import beside, contest, ours, reference, scratch
from benchmarks.options import Options
from benchmarks.peers import rsyslog
from benchmarks.processes import apart
from benchmarks.processes.daemon import FILES, SOCKETS, daemon
from benchmarks.processes.usage import Watch
from benchmarks.references import libraries
from benchmarks.results import Case, Run
from benchmarks.suite.benchmark import Benchmark
from tests.system.collector import until

_HEADER = '{"type":"header","version":"2.0","metadata":{}}\n'
_DATAGRAMS, _FOLLOWED = "rsyslog-datagrams.conf", "rsyslog-files.conf"


def cases(options: Options) -> list[Case]:
    """Measure three sockets without a sender, and files that no program writes."""
    return [_sockets(options), *(_files(count, options) for count in options.files)]


def _sockets(options: Options) -> Case:
    with scratch() as home:

        def ours_run() -> Run:
            shutil.rmtree(home / "ours", ignore_errors=True)
            with daemon(home / "ours", SOCKETS) as running:
                running.collector.settle()
                return _watched(running.process, options)

        def run() -> Run:
            with rsyslog.rsyslog(home / "rsyslog", _DATAGRAMS) as running:
                return _watched(running.process, options)

        sides = [
            beside(rsyslog.peer(_DATAGRAMS, "a datagram socket to a file"), run),
            ours("a datagram socket and two listeners", ours_run),
            reference("libraries", f"a Python that has imported {', '.join(libraries.NAMES)}, and waits", lambda: _libraries(options)),
        ]  # fmt: skip
        return contest("no sender", sides, options.runs)


def _libraries(options: Options) -> Run:
    done = apart.run("benchmarks.references.libraries:imported", options.seconds)
    return {"resident": done.usage.resident, "private": done.usage.private}


def _files(count: int, options: Options) -> Case:
    with scratch() as home:
        runs = home / "runs"
        runs.mkdir()
        for number in range(count):
            (runs / f"{number}.jets").write_text(_HEADER)
        sides = [
            beside(
                rsyslog.peer(_FOLLOWED, "files followed by inotify, their lines to a file"),
                lambda: _by_rsyslog(home / "rsyslog", runs, count, options),
            ),
            ours("files followed", lambda: _by_us(home / "ours", runs, count, options)),
        ]
        return contest(f"{count} idle files", sides, options.runs)


def _by_us(home: Path, runs: Path, count: int, options: Options) -> Run:
    shutil.rmtree(home, ignore_errors=True)
    with daemon(home, FILES.format(format="jets", runs=runs)) as running:
        until(lambda: running.source("files")["open"] == count, "all files", seconds=300)
        running.collector.settle()
        return _watched(running.process, options)


def _by_rsyslog(home: Path, runs: Path, count: int, options: Options) -> Run:
    (home / "output").unlink(missing_ok=True)
    for state in home.glob("imfile-state*"):
        state.unlink()
    with rsyslog.rsyslog(home, _FOLLOWED, files=f"{runs}/*.jets") as running:
        running.await_written(b"\n", count)
        return _watched(running.process, options)


def _watched(process: int, options: Options) -> Run:
    # Wait until the daemon checks the files as rarely as it ever does
    time.sleep(options.seconds / 2)
    with Watch(process) as watch:
        time.sleep(options.seconds)
    usage = watch.usage
    return {"idle": usage.cpu / options.seconds, "resident": usage.resident, "private": usage.private}  # fmt: skip


BENCHMARKS = {
    "idle": Benchmark(
        "Idle",
        "CPU and memory of a collector to which nothing comes: with sockets only, and with followed files that nobody writes.",
        cases,
    ),
}
