"""Streams of programs that were killed: nobody is told that they are whole, whoever has the store."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest

from tests import toml
from tests.decoding import dftracer_lines
from tests.decoding.ovni_bytes import HEADER, ends, starts
from tests.decoding.test_conformance import VECTORS
from tests.ingest.log import heph_event
from tests.ingest.test_dftracer_pieces import traced
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


UNFINISHED, ENDED, UNWATCHED = ("unfinished?", None), ("ended", 1.0), ("unwatched", 1.0)


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
    """Its program lives, and may go on or not: nobody will know."""
    getattr(collector, how)()
    assert streams(collector) == [UNFINISHED, ENDED if how == "stop" else UNWATCHED]
    collector.start()
    assert streams(collector)[0] == ("open", 1.0)
    collector.stop()


WRITER = """
import sys
with open(sys.argv[1], "wb", buffering=0) as file:
    for data in sys.stdin:
        file.write(bytes.fromhex(data))
        print("written", flush=True)
"""

JETS = (VECTORS / "jets/dialect_a.in").read_bytes()
FOOTER = JETS.rindex(b"\n", 0, -1) + 1
SERVICE = dftracer_lines.event(1, ph='"C"', pid=0).encode() + b"\n"
FIRST, SECOND = (traced(range(1, 4), pid=pid, last=3, host="") for pid in (7, 9))

WRITTEN = {
    # Each case: format, the parts of a file as they are written, and the states of its sessions after a kill of the
    # collector.
    "jets": ("jets", [JETS[:FOOTER]], [UNFINISHED]),
    "jets, ended": ("jets", [JETS[:FOOTER], JETS[FOOTER:]], [UNWATCHED]),
    "jets, ended at once": ("jets", [JETS], [UNWATCHED]),
    "jets, two": ("jets", [JETS, JETS[:FOOTER]], [ENDED, UNFINISHED]),
    "jets, two at once": ("jets", [JETS + JETS[:FOOTER]], [ENDED, UNFINISHED]),
    "dftracer": ("dftracer", FIRST[:2], [UNFINISHED]),
    "dftracer, ended": ("dftracer", FIRST, [UNWATCHED]),
    "dftracer, two": (
        "dftracer",
        [FIRST[0], b"".join(FIRST[1:] + SECOND[:2])],
        [UNWATCHED, UNFINISHED],
    ),
    "dftracer, mixed": ("dftracer", [FIRST[0], *SECOND], [UNFINISHED, UNWATCHED]),
    "dftracer's service": ("dftracer", [SERVICE], [UNWATCHED]),
    "heph": ("heph", [heph_event(0, 0)], [UNWATCHED]),
}


@pytest.mark.parametrize(("format_", "parts", "states"), WRITTEN.values(), ids=WRITTEN)
def test_the_table_alone_shows_after_a_kill_of_the_collector_which_ends_are_missing(
    collectors, tmp_path, format_, parts, states
):
    """No table has what the program writes after the kill. A release that writes no end mark, or a format without
    one, shows nothing."""
    (tmp_path / "runs").mkdir()
    source = toml.source("runs", "tail", format_, paths=[tmp_path / "runs"])
    collector = collectors(sources=source).start()
    command = [sys.executable, "-c", WRITER, tmp_path / "runs/a.trace"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as writer:
        for number, part in enumerate(parts, 1):
            writer.stdin.write(part.hex().encode() + b"\n")
            writer.stdin.flush()
            assert writer.stdout.readline() == b"written\n"
            size = sum(map(len, parts[:number]))
            until(lambda size=size: received(collector) == size, "the bytes")
        collector.settle()
        collector.kill()
        told = ask(collector, "FROM sessions WHERE source = 'runs' ORDER BY session")
        assert [(each["state"], None if each["unknown"] else 1.0) for each in told] == states
        assert {each["missing"] for each in told} == {0}
        missing = {each["session"] for each in told if each["unknown"]}
        found = ask(collector, "FROM streams WHERE source = 'runs'")
        gaps = ask(collector, "FROM gaps WHERE source = 'runs'")
        assert {each["session"] for each in found if each["completeness"] is None} == missing
        assert {each["session"] for each in gaps} == missing
        collector.start()
        until(lambda: {state for state, _ in streams(collector)} <= {"open", "ended"}, "the start")
        writer.stdin.close()


def received(collector):
    return collector.status()["sources"]["runs"]["received_bytes"]


def ask(collector, sql):
    done = collector.cli("query", sql, "--json")
    assert done.returncode == 0, done.stderr
    return list(map(json.loads, done.stdout.splitlines()))
