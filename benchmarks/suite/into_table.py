"""Run our side of a contest: from bytes to rows that are committed and durable. Each run has a new daemon."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.inputs.trace import Trace
from benchmarks.options import Options
from benchmarks.processes import apart, sending
from benchmarks.processes.daemon import FILES, SOCKETS, Daemon, daemon
from benchmarks.processes.usage import Usage, Watch
from benchmarks.results import Run

_NO_EVENTS = ("session", "gap", "heal")
"""Kinds of records that are no events of the producer."""
_STORE = "store/events"


def figures(events: int, seconds: float, usage: Usage) -> Run:
    """Return the figures of a run over the given number of events."""
    found = {"rate": events / seconds, "cpu": usage.cpu / events, "resident": usage.resident}
    return found | {"private": usage.private} if usage.private else found


def lost(running: Daemon, source: str, events: int) -> float:
    """Return the share of the events that the daemon did not receive."""
    records: dict[str, int] = running.source(source)["records"]
    counted = sum(number for kind, number in records.items() if kind not in _NO_EVENTS)
    return 1 - counted / events


def chunk(running: Daemon, source: str) -> float:
    """Return the average size (bytes) of a chunk. Each chunk costs every stage some time."""
    seen = running.source(source)
    return float(seen["received_bytes"] / seen["chunks"])


def configuration(options: Options) -> str:
    """Return the part of the daemon's configuration that depends on the options."""
    return f'[store]\ncommit_interval = "{options.commit_interval}"\n'


class IntoTable:
    """Makes runs that each begin with an empty store. The rows of a run stay until the next run begins."""

    def __init__(self, home: Path, options: Options) -> None:
        self.home = home / "ours"
        self.options = options

    def sent(self, source: str, events: int, content: int, send: Callable[[sending.Address], object]) -> Run:  # fmt: skip
        """Send data to a socket, as fast as the daemon reads it."""
        shutil.rmtree(self.home, ignore_errors=True)
        with daemon(self.home, SOCKETS, configuration(self.options)) as running:
            with Watch(running.process) as watch:
                begun = time.monotonic()
                send(running.address(source))
                running.await_committed(source, content)
                seconds = time.monotonic() - begun
            found = {"lost": lost(running, source, events), "chunk": chunk(running, source)}
        return figures(events, seconds, watch.usage) | found

    def streamed(self, trace: Trace) -> Run:
        """Send a trace over one connection."""
        return self.sent(trace.format, trace.events, trace.content, lambda address: sending.stream(address, trace.path))  # fmt: skip

    def followed(self, trace: Trace) -> Run:
        """Move a complete trace into a directory that the daemon follows."""
        shutil.rmtree(self.home, ignore_errors=True)
        runs = self.home / "runs"
        runs.mkdir(parents=True)
        sources = FILES.format(format=trace.format, runs=runs)
        with daemon(self.home, sources, configuration(self.options)) as running:
            with Watch(running.process) as watch:
                begun = time.monotonic()
                shutil.copytree(trace.home, runs / "trace", copy_function=os.link)
                running.await_committed("files", trace.content)
                seconds = time.monotonic() - begun
            found = {"lost": lost(running, "files", trace.events), "chunk": chunk(running, "files")}
        return figures(trace.events, seconds, watch.usage) | found

    def rewritten(self) -> Run:
        """Write the rows of the last run again, as the reference does."""
        done = apart.run("benchmarks.references.rows:write", str(self.home / _STORE), str(self.home / "rows"))  # fmt: skip
        return figures(done.value, done.seconds, done.usage)
