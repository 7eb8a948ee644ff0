"""Streams of programs that were killed: nobody is told that they are whole, whoever has the store."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest

from tests.decoding.ovni_bytes import HEADER, ends, starts
from tests.system.collector import until

HOST = socket.gethostname().partition(".")[0]

SOURCE = """
[sources.runs]
type = "tail"
format = "ovni"
paths = ["{paths}"]
"""

PROGRAM = """
import os, sys
for thread, data in enumerate(sys.argv[2:]):
    directory = f"{sys.argv[1]}/proc.{os.getpid()}/thread.{thread}"
    os.makedirs(directory)
    globals()[f"file{thread}"] = file = open(f"{directory}/stream.obs", "wb", buffering=0)
    file.write(bytes.fromhex(data))
print("written", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def program(tmp_path):
    """A process with two threads' streams, of which the second has said its end."""
    threads = [HEADER + starts(5), HEADER + starts(5) + ends(9)]
    command = [sys.executable, "-c", PROGRAM, tmp_path / f"ovni/loom.{HOST}.1"]
    process = subprocess.Popen(
        [*command, *(data.hex() for data in threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"written\n"
    yield process
    process.stdin.close()
    process.stdout.close()
    process.kill()
    process.wait()


@pytest.fixture
def collector(collectors, tmp_path, program):
    collector = collectors(sources=SOURCE.format(paths=tmp_path)).start()
    until(lambda: collector.status()["sources"]["runs"]["seen_events"] == 3, "the events")
    collector.settle()
    return collector


def streams(collector):
    """State and completeness of each thread's stream, the one that has not said its end first."""
    done = collector.cli("streams", "--json")
    assert done.returncode == 0, done.stderr
    found = sorted(map(json.loads, done.stdout.splitlines()), key=lambda s: s["stream"])
    return [(s["state"], s["completeness"]) for s in found if s["source"] == "runs"]


UNFINISHED, ENDED = ("unfinished?", None), ("ended", 1.0)


def test_a_killed_program_is_unfinished_while_the_daemon_runs_and_after_it(collector, program):
    assert streams(collector) == [("open", 1.0), ("open", 1.0)]
    program.kill()
    program.wait()
    until(lambda: streams(collector) == [UNFINISHED, ENDED], "the process to be missed", pause=0.2)
    assert "unfinished?" in collector.cli("streams").stdout
    assert collector.cli("streams", "--complete-only").returncode == 3
    rests = [row for row in collector.rows() if row["name"] == "rest"]
    collector.stop()
    assert streams(collector) == [UNFINISHED, ENDED]
    collector.start()
    assert streams(collector) == [UNFINISHED, ENDED]
    collector.stop()
    assert [row for row in collector.rows() if row["name"] == "rest"] == rests, "said once"


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_nobody_watches_after_the_daemon(collector, how):
    """Its program lives, and may go on or not: nobody will know. After a kill nobody has said either
    what had ended by then."""
    getattr(collector, how)()
    assert streams(collector) == [UNFINISHED, ENDED if how == "stop" else UNFINISHED]
    collector.start()
    assert streams(collector)[0] == ("open", 1.0)
    collector.stop()
