"""Let traces grow below a daemon that follows them and is killed at random moments."""

from __future__ import annotations

import random
import time
from typing import NamedTuple

from tailrace.decoding.formats import FORMATS
from tests import toml
from tests.system.collector import until
from tests.traffic.grow import Growth, Style, tree

IDLE_SECONDS = 0.1
LOOK_SECONDS = 0.02
LOOKS = 20
"""After this number of answers of the daemon, and ten times as long, it has checked the documents in between."""
PATIENT = {"TAILRACE_LEDGER_REORDER_TIME": "1 h", "TAILRACE_HEARTBEAT_INTERVAL": "none"}
"""Limits that are so long that no awaited event becomes a gap and no heartbeat is sent.

Otherwise both would depend on how fast a trace grows on a busy machine.
"""
OFTEN = toml.section("store", commit_interval="100 ms")
"""Commits are so frequent that even of a short life, a part is in the table when the daemon is killed."""


class Case(NamedTuple):
    format: str
    style: Style

    def __str__(self):
        return f"{self.format}-{self.style}"


class Trace:
    """One trace, and the daemon's source that follows it."""

    def __init__(self, case, directory, seed, source, second):
        self.case = case
        self.directory = directory
        self.name = str(case).replace("-", "_").replace(" ", "_")
        self.config = toml.source(
            self.name,
            "tail",
            case.format,
            paths=[directory],
            poll_interval="10 ms",
            idle_interval=f"{IDLE_SECONDS} s",
        )
        self.life = None
        self.growth = Growth(source, directory, seed, case.style, second=second, seen=self.seen)
        self.final = {}
        """The content at the end."""
        self.read_at = None
        """The time since which everything is read, while documents are waited for."""
        self.answers = 0
        """Number of times that the daemon has confirmed this.

        If a busy machine does not let the daemon run, it answers nothing.
        """
        self.looks_at = 0.0
        """When the daemon is asked again. Asking it costs more than what it does meanwhile."""
        self.looked_at = {}
        """Documents that the daemon has checked since they were written."""

    @property
    def status(self):
        return self.life.collector.status()["sources"][self.name]

    def is_stream(self, path):
        return FORMATS[self.case.format].files.stream(f"/{path}")

    def size(self, incarnations):
        """Return the size (bytes) of the files that are streams. Others may be documents that describe them."""
        return sum(len(i.data) for i in incarnations if self.is_stream(i.names[-1]))

    def seen(self, incarnations):
        """Return whether everything that was written to streams so far is read.

        Documents, which no figure counts, must have been checked since then.
        """
        self.life.start()
        if time.monotonic() < self.looks_at:
            return False
        self.looks_at = time.monotonic() + LOOK_SECONDS
        if self.status["received_bytes"] < self.size(incarnations):
            self.read_at = None
            return False
        documents = incarnations[-1].documents
        if documents != self.looked_at:
            if self.read_at is None:
                self.read_at, self.answers = time.monotonic(), 0
            self.answers += 1
            if time.monotonic() - self.read_at < 10 * IDLE_SECONDS or self.answers < LOOKS:
                return False
            self.looked_at = documents
        self.read_at = None
        return True

    def caught_up(self):
        """Return whether everything on disk is read."""
        status = self.status
        streams = [data for path, data in tree(self.directory).items() if self.is_stream(path)]
        known = status["files"] == len(streams)
        waiting = sum(status["waiting_files"].values()) - streams.count(b"")
        # How far an incomplete member reaches may be known only when nothing can follow it any more.
        torn = self.case.style is Style.EXECUTED_MEMBERS
        whole = torn or status["received_bytes"] >= self.size(self.growth.expected())
        return known and not waiting and whole and not status["behind_bytes"]

    def remove_streams(self):
        """Remove the streams, so that their sessions end.

        Documents stay, because the daemon checks them a last time then.
        """
        self.final = tree(self.directory)
        for path in filter(self.is_stream, self.final):
            (self.directory / path).unlink()

    def check_balance(self):
        status = self.status
        assert (status["imbalance_bytes"], status["imbalance_events"]) == (0, 0)
        expected = self.size(self.growth.expected())
        assert status["received_bytes"] == expected, (self.name, status["received_bytes"], expected)


class Life:
    """A daemon that follows traces, and is killed and started again."""

    def __init__(self, collectors, seed, traces):
        self.random = random.Random(seed)
        self.traces = traces
        config = "".join(trace.config for trace in traces)
        self.collector = collectors(sources=config, environ=PATIENT, more=OFTEN).start()
        for trace in traces:
            trace.life = self

    def grow(self):
        """Let all traces grow in turns, and wait until everything is read."""
        growing = self.traces
        while growing:
            growing = [trace for trace in growing if trace.growth.step()]
            if all(trace.growth.waits for trace in growing):
                time.sleep(LOOK_SECONDS)
            self.pause()
        self.start()
        for trace in self.traces:
            until(trace.caught_up, f"{trace.name} to be read")

    def pause(self):
        chance = self.random.random()
        # Do not kill the daemon while documents are waited for: the wait would begin again.
        if chance < 0.02 and all(trace.read_at is None for trace in self.traces):
            self.collector.kill()
            if self.random.random() < 0.5:
                return  # The traces continue to grow while no test asks.
            self.start()
        elif chance < 0.1:
            time.sleep(self.random.random() * 0.1)

    def start(self):
        if self.collector.process.poll() is not None:
            self.collector.start()
            for trace in self.traces:
                trace.read_at = None

    def end(self):
        """Stop the daemon when all sessions have ended with their files. Return its store."""
        for trace in self.traces:
            until(lambda trace=trace: not trace.status["open"], f"{trace.name}'s sessions to end")
        self.collector.settle()
        for trace in self.traces:
            trace.check_balance()
        self.collector.stop()
        return self.collector.store
