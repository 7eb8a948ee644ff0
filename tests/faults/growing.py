"""Traces that grow below a daemon that follows them, and is killed at random moments."""

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
"""So many answers of the daemon, and ten times as long, and it has looked at documents in between."""
PATIENT = {"TAILRACE_LEDGER_REORDER_TIME": "1 h", "TAILRACE_HEARTBEAT_INTERVAL": "none"}
"""An event that is awaited too long becomes a gap, and is healed when it comes, and a daemon that lives
long enough has heartbeats: on a busy machine both would depend on how fast a trace grew."""
OFTEN = toml.section("store", commit_interval="100 ms")
"""So of a short life, too, a part is in the table when it is killed."""


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
        """The content in the end."""
        self.read_at = None
        """Since when all is read, while documents are waited for."""
        self.answers = 0
        """How often the daemon has said so: a daemon that a busy machine does not let run answers nothing."""
        self.looks_at = 0.0
        """When the daemon is asked again: to ask it costs more than what it does meanwhile."""
        self.looked_at = {}
        """Documents that have been looked at since they were written."""

    @property
    def status(self):
        return self.life.collector.status()["sources"][self.name]

    def is_stream(self, path):
        return FORMATS[self.case.format].files.stream(f"/{path}")

    def size(self, incarnations):
        """Bytes of those that are streams; others may be documents that tell of them."""
        return sum(len(i.data) for i in incarnations if self.is_stream(i.names[-1]))

    def seen(self, incarnations):
        """Whether all that was written to streams so far is read, and documents, of which no figure
        tells, have been looked at since."""
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
        """Whether there is nothing on disk that is not read."""
        status = self.status
        streams = [data for path, data in tree(self.directory).items() if self.is_stream(path)]
        known = status["files"] == len(streams)
        waiting = sum(status["waiting_files"].values()) - streams.count(b"")
        # How far a torn member goes may be known only when nothing can follow it any more.
        torn = self.case.style is Style.EXECUTED_MEMBERS
        whole = torn or status["received_bytes"] >= self.size(self.growth.expected())
        return known and not waiting and whole and not status["behind_bytes"]

    def remove_streams(self):
        """So their sessions end; documents stay, as they are looked at a last time then."""
        self.final = tree(self.directory)
        for path in filter(self.is_stream, self.final):
            (self.directory / path).unlink()

    def check_balance(self):
        status = self.status
        assert (status["imbalance_bytes"], status["imbalance_events"]) == (0, 0)
        expected = self.size(self.growth.expected())
        assert status["received_bytes"] == expected, (self.name, status["received_bytes"], expected)


class Life:
    """A daemon that follows traces and is killed and started again."""

    def __init__(self, collectors, seed, traces):
        self.random = random.Random(seed)
        self.traces = traces
        config = "".join(trace.config for trace in traces)
        self.collector = collectors(sources=config, environ=PATIENT, more=OFTEN).start()
        for trace in traces:
            trace.life = self

    def grow(self):
        """Let all traces grow side by side, and wait until all is read."""
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
        # While documents are waited for there is no kill: it would begin the wait again.
        if chance < 0.02 and all(trace.read_at is None for trace in self.traces):
            self.collector.kill()
            if self.random.random() < 0.5:
                return  # the traces grow on while nobody looks
            self.start()
        elif chance < 0.1:
            time.sleep(self.random.random() * 0.1)

    def start(self):
        if self.collector.process.poll() is not None:
            self.collector.start()
            for trace in self.traces:
                trace.read_at = None

    def end(self):
        """Stop it when all sessions have ended with their files; its store."""
        for trace in self.traces:
            until(lambda trace=trace: not trace.status["open"], f"{trace.name}'s sessions to end")
        self.collector.settle()
        for trace in self.traces:
            trace.check_balance()
        self.collector.stop()
        return self.collector.store
