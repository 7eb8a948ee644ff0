"""Real client processes and the real daemon, either of which ends as it does in life: nothing that
fits the client's buffers is missing, and nothing is in the table twice."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import time
from collections import defaultdict

import pytest

from tests.system.collector import until
from tests.system.producers import free_ports

TRANSPORTS = ["udp", "tcp", "unix"]

EMITTING = """
import sys, time, threading
import tailrace_client as trace
name, pause = sys.argv[1], float(sys.argv[2])
trace.connect(process=name)
over = threading.Event()
emitted = [0, 0]

def emit(stream):
    trace.use_stream(stream)
    while not over.wait(pause):
        for _ in range(10):
            trace.event(name, n=emitted[stream])
            emitted[stream] += 1

threads = [threading.Thread(target=emit, args=(stream,)) for stream in (0, 1)]
for thread in threads: thread.start()
sys.stdin.read()
over.set()
for thread in threads: thread.join()
emitter = trace._process.current
delivered = trace.close(30)
print(*emitted, delivered, sum(emitter.discarded.values()))
"""


class Program:
    """A client in a process of its own, that emits until told to end."""

    def __init__(self, address, name, source=EMITTING, pause=0.004):
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-c", source, name, str(pause)],
            env={"PYTHONPATH": ":".join(sys.path), "TAILRACE_ADDRESS": address},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self):
        """It is to end."""
        self.process.stdin.close()

    def end(self):
        """What it says: events of each stream, whether they were delivered, how many it discarded."""
        output = self.process.stdout.read()
        assert self.process.wait(60) == 0
        self.process.stdout.close()
        *emitted, delivered, discarded = output.split()
        return [int(n) for n in emitted], delivered == "True", int(discarded)


@pytest.fixture
def place(tmp_path):
    """Addresses that stay the same from one life of the daemon to the next."""
    (udp,) = free_ports(socket.SOCK_DGRAM, 1)
    (tcp,) = free_ports(socket.SOCK_STREAM, 1)
    return {
        "udp": f"127.0.0.1:{udp}",
        "tcp": f"127.0.0.1:{tcp}",
        "unix": str(tmp_path / "heph.sock"),
    }


@pytest.fixture
def collector(collectors, place):
    """One with a source of each transport, not started."""
    sources = "".join(
        f'[sources.{name}]\ntype = "{name}"\nformat = "heph"\nlisten = "{where}"\n'
        for name, where in place.items()
    )
    return collectors(sources=sources)


@pytest.fixture
def start(place):
    """A function that starts a program on a transport."""
    started = []

    def make(transport, name, *arguments):
        program = Program(f"{transport}://{place[transport]}", name, *arguments)
        started.append(program)
        return program

    yield make
    for program in started:
        if program.process.poll() is None:
            program.process.kill()
            program.process.wait()


def table(collector):
    """By the name of the events, which is the client's: stored numbers by stream, and gaps by
    stream of sessions with that process name."""
    stored = defaultdict(lambda: defaultdict(list))
    gaps = defaultdict(list)
    sessions = {}
    for row in collector.rows():
        if row["kind"] == "span":
            stored[row["name"]][int(row["stream"])].append(row["seq"])
            sessions[row["session"]] = row["name"]
        elif row["kind"] in {"gap", "heal"}:
            gaps[row["session"]].append(row)
    return stored, {sessions.get(session, session): rows for session, rows in gaps.items()}


def check_whole(collector, programs):
    """Every event of every program is in the table once, and nothing is said to be missing."""
    said = {program.name: program.end() for program in programs}
    collector.settle()
    collector.stop()
    stored, gaps = table(collector)
    for name, (emitted, delivered, discarded) in said.items():
        assert delivered, name
        assert discarded == 0, name
        for stream, count in enumerate(emitted):
            assert sorted(stored[name][stream]) == list(range(count)), (name, stream)
    missing = {
        name: sum(json.loads(row["attributes"])["count"] * (1 if row["kind"] == "gap" else -1) for row in rows)
        for name, rows in gaps.items()
    }
    assert not any(missing.values())


@pytest.mark.parametrize("seed", [1])
def test_a_daemon_that_is_killed_again_and_again_has_all_events_once(collector, start, seed):
    rng = random.Random(seed)
    collector.start()
    programs = [start(t, f"{t}{number}") for t in TRANSPORTS for number in range(4)]
    for _ in range(3):
        time.sleep(rng.uniform(0.3, 1.5))
        collector.kill()
        time.sleep(rng.uniform(0, 0.7))
        collector.start()
    time.sleep(0.5)
    for program in programs:
        program.tell()
    check_whole(collector, programs)
