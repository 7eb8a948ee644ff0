"""Measure lines that a producer sends one by one at a rate, as simulators do that flush each event."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import NamedTuple

from benchmarks.contest import Contender, beside, contest, ours, reference, scratch
from benchmarks.inputs.trace import trace
from benchmarks.options import Options
from benchmarks.peers import rsyslog
from benchmarks.processes import apart, sending
from benchmarks.processes.daemon import SOCKETS, daemon
from benchmarks.processes.usage import Usage, Watch
from benchmarks.results import Case, Run
from benchmarks.suite.benchmark import Benchmark
from benchmarks.suite.into_table import chunk, configuration, lost

_CONFIGURATION = "rsyslog-json.conf"


class Lines(NamedTuple):
    """The lines of a trace, including header and footer, and the number of events among them."""

    lines: list[bytes]
    events: int
    rate: int


def cases(options: Options) -> list[Case]:
    """Measure each rate."""
    return [_case(rate, options) for rate in options.line_rates]


def _case(rate: int, options: Options) -> Case:
    made = trace("jets", max(round(rate * options.seconds / 2), 100))
    sent = Lines(made.path.read_bytes().splitlines(keepends=True), made.events, rate)
    with scratch() as home:
        does = "lines parsed, their fields to a file, unsynced"
        sides: list[Contender] = [
            beside(rsyslog.peer(_CONFIGURATION, does), lambda: _by_rsyslog(home / "rsyslog", sent)),
            ours("lines to committed, durable rows", lambda: _by_us(home / "ours", sent, options)),
            reference("socket drained", "the same lines from a socket into nothing, one loop in Python", lambda: _drained(sent)),
        ]  # fmt: skip
        return contest(f"{rate} lines a second", sides, options.runs, at=rate)


def _by_us(home: Path, sent: Lines, options: Options) -> Run:
    shutil.rmtree(home, ignore_errors=True)
    with daemon(home, SOCKETS, configuration(options)) as running:
        with Watch(running.process) as watch:
            seconds = sending.one_by_one(running.address("jets"), sent.lines, sent.rate)
            running.await_committed("jets", sum(map(len, sent.lines)))
        gone = lost(running, "jets", sent.events)
        return _figures(sent, seconds, watch.usage, gone) | {"chunk": chunk(running, "jets")}


def _by_rsyslog(home: Path, sent: Lines) -> Run:
    (home / "output").unlink(missing_ok=True)
    with rsyslog.rsyslog(home, _CONFIGURATION) as running, Watch(running.process) as watch:
        seconds = sending.one_by_one(running.address, sent.lines, sent.rate)
        arrived, _ = running.await_written(b"\n", len(sent.lines))
    return _figures(sent, seconds, watch.usage, 1 - arrived / len(sent.lines))


def _drained(sent: Lines) -> Run:
    seconds = 0.0
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def send() -> None:
            nonlocal seconds
            seconds = sending.one_by_one(listener.getsockname(), sent.lines, sent.rate)

        done = apart.run(
            "benchmarks.references.drain:connection", listener.fileno(), descriptors=(listener.fileno(),),
            beside=send,
        )  # fmt: skip
    return _figures(sent, seconds, done.usage, 1 - done.value / sum(map(len, sent.lines)))


def _figures(sent: Lines, seconds: float, usage: Usage, gone: float) -> Run:
    return {
        "sent_lines": len(sent.lines) / seconds, "lost": gone, "cpu": usage.cpu / sent.events,
        "resident": usage.resident, "private": usage.private,
    }  # fmt: skip


BENCHMARKS = {
    "trickle": Benchmark(
        "Lines one by one",
        "Lines of JETS over one connection at a rate, each sent alone, as simulators do that flush every event. The collector rests up to 20 ms between two looks, so that lines come together.",
        cases,
        axis="lines a second",
        plotted=("cpu",),
    ),
}
