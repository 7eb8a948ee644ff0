"""Measure the time from the sending of an event until a reader can see it, at a steady rate."""

from __future__ import annotations

import json
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote

import msgspec
from pyarrow import parquet

from benchmarks.contest import beside, contest, ours, scratch
from benchmarks.inputs.heph import packets
from benchmarks.inputs.trace import trace
from benchmarks.options import Options
from benchmarks.peers import rsyslog
from benchmarks.peers.output import Output
from benchmarks.processes.daemon import daemon
from benchmarks.processes.sending import Address
from benchmarks.results import Case, Run
from benchmarks.suite.benchmark import Benchmark
from benchmarks.suite.datagrams import ESCAPED_MAGIC
from benchmarks.suite.into_table import configuration
from tests.system.collector import until

RATE = 1000
"""Number of events sent in a second."""
SHORT = "250 ms"
WARM_UP = 20
"""Number of events that are sent before the measured ones, because the first commit of a new store takes longer."""
_LATEST_SECONDS = 60.0
_PAUSE_SECONDS = 0.0005
_CONFIGURATION = "rsyslog-datagrams.conf"

Visible = Callable[[], Iterable[int]]
"""Function that returns the numbers of the events that have become visible since its last call."""


class TableReader:
    """Reads what each new version of a Delta table adds, from the table's log and files alone."""

    def __init__(self, events: Path, source: str) -> None:
        self._events = events
        self._source = source
        self._version = 0

    def __call__(self) -> list[int]:
        found: list[int] = []
        while (log := self._events / "_delta_log" / f"{self._version:020}.json").exists():
            actions = map(json.loads, log.read_text().splitlines())
            paths = [unquote(action["add"]["path"]) for action in actions if "add" in action]
            for path in paths:
                rows = parquet.read_table(self._events / path, columns=["source", "seq"], partitioning=None)  # fmt: skip
                of_source = zip(*(column.to_pylist() for column in rows.columns), strict=True)
                found += (n for source, n in of_source if source == self._source and n is not None)
            self._version += 1
        return found


def latencies(address: Address, events: Sequence[bytes], visible: Visible) -> list[float]:
    """Send events at a rate. Return for each event after the warm-up how long it took until it was visible."""
    sent: list[float] = []
    found: list[float] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(address)
        _warm_up(sock, events[:WARM_UP], visible)
        events = events[WARM_UP:]
        begun = time.monotonic()
        latest = begun + len(events) / RATE + _LATEST_SECONDS
        while len(found) < len(events) and time.monotonic() < latest:
            due = min(int((time.monotonic() - begun) * RATE) + 1, len(events))
            while len(sent) < due:
                sock.send(events[len(sent)])
                sent.append(time.monotonic())
            numbers, now = list(visible()), time.monotonic()
            found += (now - sent[number - WARM_UP] for number in numbers)
            time.sleep(_PAUSE_SECONDS)
    return sorted(found)


def _warm_up(sock: socket.socket, events: Sequence[bytes], visible: Visible) -> None:
    """Send the first events, and wait until all of them are visible."""
    unseen = set(range(len(events)))
    for event in events:
        sock.send(event)

    def seen() -> bool:
        unseen.difference_update(visible())
        return not unseen

    until(seen, "the first events to be visible")


def cases(options: Options) -> list[Case]:
    """Measure with the usual interval of commits, and with a short one."""
    count = WARM_UP + max(int(options.seconds * RATE), 10)
    # Leave out the packet with the epoch: it is no event, and may become visible later than the events.
    _, *events = packets(trace("heph", count, streams=1).path.read_bytes())
    intervals = dict.fromkeys((options.commit_interval, SHORT))
    return [_case(events, msgspec.structs.replace(options, commit_interval=i)) for i in intervals]


def _case(events: list[bytes], options: Options) -> Case:
    with scratch() as home:
        does = "a datagram to a line of a file, unsynced"
        sides = [
            beside(rsyslog.peer(_CONFIGURATION, does), lambda: _by_rsyslog(home / "rsyslog", events)),
            ours("a datagram to a row in a version of the table that readers see", lambda: _by_us(home / "ours", events, options)),
        ]  # fmt: skip
        return contest(f"a commit every {options.commit_interval}", sides, options.runs)


def _by_us(home: Path, events: list[bytes], options: Options) -> Run:
    shutil.rmtree(home, ignore_errors=True)
    with daemon(home, more=configuration(options)) as running:
        return _run(latencies(running.address("udp"), events, TableReader(running.events, "udp")), events)  # fmt: skip


def _by_rsyslog(home: Path, events: list[bytes]) -> Run:
    (home / "output").unlink(missing_ok=True)
    with rsyslog.rsyslog(home, _CONFIGURATION) as running:
        return _run(
            latencies(running.address, events, Output(running.output, ESCAPED_MAGIC).look), events
        )


def _run(found: list[float], events: list[bytes]) -> Run:
    lost = 1 - len(found) / (len(events) - WARM_UP)
    last = len(found) - 1
    return {"p50": found[last // 2], "p99": found[last * 99 // 100], "slowest": found[last], "lost": lost}  # fmt: skip


BENCHMARKS = {
    "latency": Benchmark(
        "Latency until visible",
        f"Heph datagrams at {RATE} a second. For each, the time from its sending until a reader of the table can see its row.",
        cases,
    ),
}
