"""Run ranks of a job on one node, started as a launcher starts them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import NamedTuple

from tailrace.query.engine import Engine
from tailrace.run import ranks
from tests import program
from tests.system.collector import until

RANK = """
import os, pathlib, time
import tailrace_client as trace
number = os.environ["SLURM_PROCID"]
for cell in range(10):
    with trace.span("step", cell=cell):
        pass
trace.flush(10)
pathlib.Path("here", number).touch()
while not pathlib.Path("go", number).exists():
    time.sleep(0.01)
trace.close()
"""
"""The program of each rank: it reports that it runs, and ends when told to."""


class Job:
    """Ranks of one job on a node, in a directory."""

    def __init__(self, directory, size, *options, python=RANK, **environ):
        for name in ("here", "go"):
            (directory / name).mkdir()
        self.directory = directory
        self.size = size
        self.options = [*program.COMMAND, "run", *map(str, options), "--"]
        self.python = python
        self.environ = os.environ | {
            "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": str(size), "SLURMD_NODENAME": "n1",
        } | environ  # fmt: skip
        self.ranks = {}

    def start(self, *numbers):
        for number in numbers:
            self.ranks[number] = program.start(
                [*self.options, sys.executable, "-c", self.python], cwd=self.directory,
                env=self.environ | {"SLURM_PROCID": str(number)}, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, start_new_session=True,
            )  # fmt: skip
        for number in numbers:
            until((self.directory / "here" / str(number)).exists, f"rank {number} to be there")

    def kill(self, *numbers, number=signal.SIGKILL):
        """Kill ranks with their programs, as launchers do."""
        for each in numbers:
            os.killpg(self.ranks[each].pid, number)

    def end(self, *numbers):
        """Let ranks end. Return their exit statuses and their output."""
        for number in numbers:
            (self.directory / "go" / str(number)).touch()
        return [self.wait(number) for number in numbers]

    def wait(self, number):
        _, said = self.ranks[number].communicate(timeout=120)
        return Ended(self.ranks[number].returncode, said)

    def over(self, store="tailrace-job-17.0/n1"):
        """Wait for the collector's end. Return its store."""
        path = self.directory / store
        lines = lambda: ranks.read(path)  # noqa: E731
        until(lambda: isinstance((lines() or [None])[-1], ranks.NodeEnded), "the collector to end")
        return Node(path)

    def close(self):
        for process in self.ranks.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


class Ended(NamedTuple):
    status: int
    said: str


class Node:
    """The store of a node."""

    def __init__(self, path):
        self.path = path
        self.lines = ranks.read(path)

    @property
    def statuses(self):
        """Return the exit status of each rank, None if it vanished. Fail if a rank has left more than once."""
        left = [line for line in self.lines if isinstance(line, ranks.RankLeft)]
        assert len({line.rank for line in left}) == len(left)
        return {line.rank: line.exit_status for line in left}

    @property
    def collectors(self):
        return sum(isinstance(line, ranks.NodeBegan) for line in self.lines)

    @property
    def events(self):
        asked = "SELECT rank, sum(events)::INT FROM sessions WHERE events > 0 GROUP BY rank ORDER BY rank"
        return dict(Engine(str(self.path)).rows(asked))

    def certificate(self):
        return json.loads((self.path / "certificate.json").read_bytes())
