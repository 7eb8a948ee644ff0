"""A limit of threads and processes is reached while a daemon runs, as `prlimit --nproc` and pids.max set it.

The kernel holds root to no such limit, so the daemon runs as another user."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.system.collector import SOURCES, Collector, until
from tests.system.test_unread_output import send

USER = 100_000 + os.getpid()
"""A user of this process alone: the kernel counts the threads of all processes of a user."""
AS_USER = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]

EAGER = """
import sys
from tailrace.daemon.loops import upkeep
upkeep.LOOK_COMMITS, upkeep.WAKE_SECONDS, upkeep.RETRY_SECONDS = 1, 0.2, 0.2
upkeep._is_due = lambda store, context: True
upkeep.COMMAND = ("true",)  # the user need not reach our interpreter
from tailrace.cli import main
main()
"""
"""A daemon that wants an upkeep after each commit."""

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NPROC, (int(sys.argv.pop(1)),) * 2)
from tailrace.cli import main
main()
"""

LIBRARY_IDLE_SECONDS = 10
"""After which trio and the library that writes the table end a thread."""


class OfUser(Collector):
    """A daemon of another user, which a test may limit."""

    code = EAGER
    arguments = ()

    def command(self):
        python = [*AS_USER, sys.executable, "-c", self.code, *self.arguments]
        return [*python, *super().command()[3:]]

    def limit(self, threads):
        """Let its user have so many threads and processes."""
        subprocess.run(
            [*AS_USER, "prlimit", f"--pid={self.process.pid}", f"--nproc={threads}:"], check=True
        )

    def commits(self):
        return self.status()["commits"]


@pytest.fixture
def place():
    """A directory of the user, where the user can run our program."""
    if os.geteuid() or not shutil.which("setpriv"):
        pytest.skip("needs root and setpriv to be another user")
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    os.chown(directory, USER, USER)
    runs = subprocess.run(
        [*AS_USER, sys.executable, "-c", "import tailrace.cli.commands"], cwd=directory, check=False
    )
    if runs.returncode:
        shutil.rmtree(directory)
        pytest.skip("another user cannot read this installation")
    yield directory
    shutil.rmtree(directory)


def test_a_daemon_without_another_thread_goes_on_and_starts_its_upkeep_later(place):
    collector = OfUser(place, sources=SOURCES).start()
    try:
        send(collector, 0, 1)
        until(lambda: collector.status()["upkeeps"]["done"] > 0, "an upkeep")
        collector.limit(1)
        time.sleep(LIBRARY_IDLE_SECONDS + 2)
        before = collector.commits()
        for number in range(5):
            send(collector, number)
            until(lambda: collector.commits() > before, "a commit")  # noqa: B023 - used at once
            before = collector.commits()
            collector.process.send_signal(signal.SIGHUP)
            assert "tailrace_" in collector.metrics()
        until(lambda: "upkeep" in collector.status()["conditions"], "the condition")
        assert "cannot be started" in collector.status()["conditions"]["upkeep"]
        done = collector.status()["upkeeps"]["done"]
        collector.limit(1000)
        until(lambda: collector.status()["upkeeps"]["done"] > done, "an upkeep")
        until(lambda: "upkeep" not in collector.status()["conditions"], "the end of the condition")
        collector.process.send_signal(signal.SIGTERM)
        assert collector.process.wait(timeout=180) == 0
    finally:
        collector.end()
    assert "Traceback" not in collector.log()
    assert re.search(r"events: \d+ expected", collector.log())


@pytest.mark.parametrize("threads", [3, 8, 10, 14, 18, 22])
def test_a_start_without_threads_is_an_error_in_words(place, threads):
    collector = OfUser(place, sources=SOURCES)
    collector.code, collector.arguments = LIMITED, (str(threads),)
    collector.start(wait=False)
    assert collector.process.wait(timeout=180) == 1
    assert "raise the limit of processes (ulimit -u, TasksMax=)" in collector.log()
    assert "Traceback" not in collector.log()


def test_a_program_is_run_though_its_collector_gets_no_threads(place):
    command = ["run", "--store", place / "store", "--", "sh", "-c", "exit 7"]
    done = subprocess.run(
        [*AS_USER, sys.executable, "-c", LIMITED, "4", *command],
        cwd=place, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 7, done.stderr
    assert "Traceback" not in done.stderr
