"""Measure how fast events reach the table, each format beside its peers and references."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.contest import Contender, beside, contest, ours, reference, scratch
from benchmarks.inputs.trace import Trace, trace
from benchmarks.options import Options
from benchmarks.peers import dftracer_utils, duckdb, loops, rsyslog
from benchmarks.places import CACHE
from benchmarks.processes import apart, sending
from benchmarks.processes.apart import Done
from benchmarks.processes.usage import Watch
from benchmarks.results import Case, Run
from benchmarks.suite.benchmark import Benchmark
from benchmarks.suite.into_table import IntoTable, figures

AROUND = 2
"""Number of JETS lines that are no events: header and footer."""

Others = Callable[[Path, Trace], list[Contender]]


def over_tcp(label: str, format_: str, others: Others, options: Options) -> Case:
    """Measure a format over one TCP connection."""
    made = trace(format_, options.events)
    with scratch() as home:
        table = IntoTable(home, options)
        sides = [
            *others(home, made),
            ours("one connection to committed, durable rows", lambda: table.streamed(made)),
            reference("socket drained", "the same bytes from a socket into nothing, one loop in Python", lambda: drained(made)),
            _rows(table),
        ]  # fmt: skip
        return contest(label, sides, options.runs)


def of_files(label: str, format_: str, others: Others, options: Options, **shape: int) -> Case:
    """Measure complete files that appear in a followed directory."""
    made = trace(format_, options.events, cache=CACHE, **shape)
    with scratch() as home:
        table = IntoTable(home, options)
        sides = [
            *others(home, made),
            ours("files that appear whole to committed, durable rows", lambda: table.followed(made)),
            reference("files read", "the same files read into nothing, and inflated where compressed", lambda: read(made)),
            _rows(table),
        ]  # fmt: skip
        return contest(label, sides, options.runs)


def drained(made: Trace) -> Run:
    """Read the bytes of a trace from a socket without using them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        done = apart.run(
            "benchmarks.references.drain:connection", listener.fileno(),
            descriptors=(listener.fileno(),), beside=lambda: sending.stream(address, made.path),
        )  # fmt: skip
    return _figures(made, done)


def read(made: Trace) -> Run:
    """Read the files of a trace without using them."""
    return _figures(made, apart.run("benchmarks.references.drain:files", list(map(str, made.paths))))  # fmt: skip


def _rows(table: IntoTable) -> Contender:
    does = "the same rows as ready Arrow batches, to durable Parquet files and commits of a Delta table, one thread"
    return reference("rows written", does, table.rewritten)


def _heph(_: Path, made: Trace) -> list[Contender]:
    return [_looped("heph", made)]


def _ovni(_: Path, made: Trace) -> list[Contender]:
    return [_looped("ovni", made)]


def _jets(home: Path, made: Trace) -> list[Contender]:
    return [_parsed_by_rsyslog(home, made), *_converted("jets", home, made)]


def _dftracer(home: Path, made: Trace) -> list[Contender]:
    indexed = beside(dftracer_utils.peer(), lambda: _figures(made, dftracer_utils.index(Path(made.home), home)))  # fmt: skip
    return [*_converted("dftracer", home, made), indexed]


def _et3(home: Path, made: Trace) -> list[Contender]:
    return _converted("et3", home, made)


def _looped(format_: str, made: Trace) -> Contender:
    paths = list(map(str, made.paths))
    return beside(loops.peer(), lambda: _figures(made, apart.run(f"benchmarks.peers.loops:{format_}", paths)))  # fmt: skip


def _converted(format_: str, home: Path, made: Trace) -> list[Contender]:
    """Return DuckDB as two contenders: one parses lines, and the other also joins them."""

    def run(configuration: str) -> Run:
        return _figures(made, apart.run("benchmarks.peers.duckdb:convert", configuration, str(made.path), str(home / "trace.parquet")))  # fmt: skip

    peers = [duckdb.peer(format_, joined=joined) for joined in (False, True)]
    return [beside(peer, partial(run, peer.configuration)) for peer in peers]


def _parsed_by_rsyslog(home: Path, made: Trace) -> Contender:
    configuration = "rsyslog-json.conf"

    def run() -> Run:
        (home / "rsyslog" / "output").unlink(missing_ok=True)
        with (
            rsyslog.rsyslog(home / "rsyslog", configuration) as running,
            Watch(running.process) as watch,
        ):
            begun = time.monotonic()
            sending.stream(running.address, made.path)
            lines, ended = running.await_written(b"\n", made.events + AROUND)
        stored = lines - AROUND
        found = figures(made.events, ended - begun, watch.usage)
        return found | {"lost": 1 - stored / made.events}

    does = "one connection, lines parsed, their fields to a file, unsynced"
    return beside(rsyslog.peer(configuration, does), run)


def _figures(made: Trace, done: Done) -> Run:
    return figures(made.events, done.seconds, done.usage)


def _tcp(label: str, format_: str, others: Others) -> Callable[[Options], list[Case]]:
    return lambda options: [over_tcp(label, format_, others, options)]


def _files(format_: str, others: Others, shapes: dict[str, dict[str, int]]) -> Callable[[Options], list[Case]]:  # fmt: skip
    def cases(options: Options) -> list[Case]:
        chosen = list(shapes.items())[: None if options.varieties else 1]
        return [of_files(label, format_, others, options, **shape) for label, shape in chosen]

    return cases


_DFTRACER: dict[str, dict[str, int]] = {
    "DFTracer, varied calls": {},
    "DFTracer, varied calls, gz": {"gz": 1},
    "DFTracer, one call repeated": {"varied": 0},
}
_ET3: dict[str, dict[str, int]] = {
    "ET3, objects all different": {},
    "ET3, fifty objects": {"varied": 0},
}

BENCHMARKS = {
    "heph-tcp": Benchmark(
        "Heph over TCP",
        "Packets of five streams over one connection, as fast as they are taken, until the last row is committed and durable. No peer stores this format.",
        _tcp("Heph over TCP", "heph", _heph),
    ),
    "jets-tcp": Benchmark(
        "JETS over TCP",
        "Lines of JSON over one connection, as fast as they are taken, until the last row is committed and durable.",
        _tcp("JETS over TCP", "jets", _jets),
    ),
    "dftracer": Benchmark(
        "DFTracer files",
        "A finished file appears; the time runs until its last row is committed and durable.",
        _files("dftracer", _dftracer, _DFTRACER),
    ),
    "ovni": Benchmark(
        "ovni files",
        "The four streams of a process appear; the time runs until the last row is committed and durable. No peer stores this format.",
        _files("ovni", _ovni, {"ovni": {}}),
    ),
    "et3": Benchmark(
        "ET3 files",
        "A finished file appears; the time runs until its last row is committed and durable.",
        _files("et3", _et3, _ET3),
    ),
}
