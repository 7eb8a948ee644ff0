"""Measure what each test costs, with the processes that it starts, by folder and by file.

    make test-all ARGS=--costs

CPU is what a busy machine changes least. Time is what a file takes alone, CPU and waiting together: the files that take
longest belong into `order.py`. The time for collecting the tests is not in these figures.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from typing import NamedTuple

import pytest

FILES_MAX = 60
"""Maximum number of files that are listed, with the longest first."""
_NAME = "cost"


class Cost(NamedTuple):
    """CPU seconds of this process and of its children that have ended, and the elapsed time in seconds."""

    cpu: float
    seconds: float

    @classmethod
    def now(cls):
        return cls(sum(os.times()[:4]), time.monotonic())

    def __sub__(self, other):
        return Cost(self.cpu - other.cpu, self.seconds - other.seconds)

    def __add__(self, other):
        return Cost(self.cpu + other.cpu, self.seconds + other.seconds)


class Costs:
    """A plugin of pytest. It measures in the process that runs a test, and adds up in the first process."""

    def __init__(self):
        self._begun = Cost.now()
        self.by_file = defaultdict(lambda: Cost(0.0, 0.0))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self):
        self._begun = Cost.now()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call):
        report = yield
        if call.when == "teardown":
            report.user_properties.append((_NAME, [*(Cost.now() - self._begun)]))
        return report

    def pytest_runtest_logreport(self, report):
        for name, cost in report.user_properties:
            if name == _NAME and report.when == "teardown":
                self.by_file[report.nodeid.partition("::")[0]] += Cost(*cost)

    def pytest_terminal_summary(self, terminalreporter):
        if not self.by_file:
            return
        by_folder = defaultdict(lambda: Cost(0.0, 0.0))
        for file, cost in self.by_file.items():
            by_folder[file.rpartition("/")[0]] += cost
        terminalreporter.section("where the time goes")
        whole = sum(by_folder.values(), Cost(0.0, 0.0)).cpu
        terminalreporter.line(f"{whole:.0f} s of CPU: each folder's, and the time it takes alone")
        for line in lines(by_folder, key=lambda cost: cost.cpu):
            terminalreporter.line(line)
        terminalreporter.line("files, by the time that each takes alone")
        for line in lines(self.by_file, key=lambda cost: cost.seconds)[:FILES_MAX]:
            terminalreporter.line(line)


def lines(costs, key):
    """Return a line for each name, with its CPU and its time, the largest first."""
    ordered = sorted(costs.items(), key=lambda each: key(each[1]), reverse=True)
    return [f"{cost.cpu:8.1f} {cost.seconds:8.1f}  {name}" for name, cost in ordered]
