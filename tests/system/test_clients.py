"""Real client processes and the real daemon, either of which ends as it does in life: nothing that
fits the client's buffers is missing, and nothing is in the table twice."""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict

import pytest

import tailrace_client
from tailrace_client import _sockets
from tests.system.producers import free_ports
from tests.traffic.both_ways import BothWays

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
sys.stdin.readline()
over.set()
for thread in threads: thread.join()
emitter = trace._process.current
delivered = trace.close(30)
print(*emitted, delivered, sum(emitter.discarded.values()))
"""


class Program:
    """A client in a process of its own, that emits until told to end."""

    def __init__(self, address, name, source=EMITTING, pause=0.01):
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
        self.process.stdin.write("end\n")
        self.process.stdin.flush()

    def end(self):
        """Return what it says: events of each stream, whether they were delivered, how many it discarded."""
        output, _ = self.process.communicate(timeout=180)
        assert self.process.returncode == 0
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
        program.process.kill()
        program.process.communicate()


def lost(row):
    """How many events a gap or heal row is about."""
    return json.loads(row["attributes"])["count"]


def table(collector):
    """The stored numbers by stream, by the name of the events, which is the client's; and how many
    events are missing, by session."""
    stored = defaultdict(lambda: defaultdict(list))
    missing = defaultdict(int)
    for row in collector.rows(["session", "stream", "seq", "kind", "name", "attributes"]):
        if row["kind"] == "span":
            stored[row["name"]][int(row["stream"])].append(row["seq"])
        elif row["kind"] in {"gap", "heal"}:
            missing[row["session"]] += lost(row) if row["kind"] == "gap" else -lost(row)
    return stored, missing


def check_whole(collector, programs):
    """Every event of every program is in the table once, and nothing is said to be missing."""
    said = {program.name: program.end() for program in programs}
    collector.settle()
    collector.stop()
    stored, missing = table(collector)
    for name, (emitted, delivered, discarded) in said.items():
        assert delivered, name
        assert discarded == 0, name
        for stream, count in enumerate(emitted):
            assert sorted(stored[name][stream]) == list(range(count)), (name, stream)
    assert not any(missing.values())


def test_a_daemon_that_is_killed_again_and_again_has_all_events_once(collector, start):
    killed_and_started(collector, start, seed=1, times=3, clients=2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
def test_it_is_so_for_many_more_kills(collector, start, seed):
    killed_and_started(collector, start, seed, times=6, clients=4)


def killed_and_started(collector, start, seed, times, clients):
    """`clients` is how many there are on each transport."""
    rng = random.Random(seed)
    collector.start()
    programs = [start(t, f"{t}{number}") for t in TRANSPORTS for number in range(clients)]
    for _ in range(times):
        time.sleep(rng.uniform(0.3, 1.5))
        collector.kill()
        time.sleep(rng.uniform(0, 0.7))
        collector.start()
    time.sleep(0.5)
    for program in programs:
        program.tell()
    check_whole(collector, programs)


def test_a_daemon_that_comes_late_has_all_events(collector, start):
    programs = [start(transport, transport) for transport in TRANSPORTS]
    time.sleep(1)
    collector.start()
    for program in programs:
        program.tell()
    check_whole(collector, programs)


def test_a_daemon_that_is_stopped_and_started_in_order_has_all_events(collector, start):
    collector.start()
    programs = [start(transport, transport) for transport in TRANSPORTS]
    time.sleep(0.5)
    collector.stop()
    collector.start()
    for program in programs:
        program.tell()
    check_whole(collector, programs)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_stopped_daemon_has_delivered_nothing_until_it_goes_on(collector, place, transport):
    """SIGSTOP: its sockets accept and receive, and nobody reads."""
    collector.start()
    collector.process.send_signal(signal.SIGSTOP)
    try:
        doomed, patient = (
            tailrace_client.Emitter(f"{transport}://{place[transport]}") for _ in range(2)
        )
        for emitter in (doomed, patient):
            for number in range(100):
                emitter.event("x", n=number)
            assert not emitter.flush(0.8)
        assert not doomed.close(0.1)
        assert doomed.discarded["closed"] == 100
        collector.kill()
    finally:
        if collector.running:
            collector.process.send_signal(signal.SIGCONT)
    collector.start()
    assert patient.close(30)
    collector.stop()
    stored = [row["seq"] for row in collector.rows(["seq", "kind"]) if row["kind"] == "span"]
    assert sorted(stored) == list(range(100))
    assert not any(patient.discarded.values())


def test_more_than_the_buffers_hold_is_named_to_the_event_with_its_reason(collector, place):
    """Nobody listens for longer than there is room for: the client says what it threw away."""
    emitters = {
        transport: tailrace_client.Emitter(f"{transport}://{where}", buffer_bytes=100_000)
        for transport, where in place.items()
        if transport
        != "udp"  # nobody tells a datagram client that nobody is there, before the first answer
    }
    for emitter in emitters.values():
        for _ in range(5000):
            emitter.event("x")
    collector.start()
    for emitter in emitters.values():
        assert emitter.flush(20)
        emitter.event("x")
        assert emitter.close(20)
    collector.settle()
    collector.stop()
    rows = collector.rows()
    for transport, emitter in emitters.items():
        stored = [r["seq"] for r in rows if r["source"] == transport and r["kind"] == "span"]
        gaps = [r for r in rows if r["source"] == transport and r["kind"] == "gap"]
        numbered = [r for r in gaps if r["seq"] is not None]
        named = [n for r in numbered for n in range(r["seq"], r["seq"] + lost(r))]
        assert sorted(stored + named) == list(range(5001))
        # The sum of the discards may come before the numbers that show them, and is healed then.
        heals = [r for r in rows if r["source"] == transport and r["kind"] == "heal"]
        early = [r for r in gaps if r["seq"] is None]
        assert sum(map(lost, early)) == sum(lost(r) for r in heals if r["seq"] is None)
        assert {row["name"] for row in gaps} == {"sender"}
        assert len(named) == emitter.discarded["full"] > 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_program_that_ends_right_after_its_last_event_is_whole(collector, start, transport):
    program = """
import sys, tailrace_client as trace
trace.connect()
for n in range(1000): trace.event(sys.argv[1], n=n)
print(0, 1000, True, 0)
"""
    collector.start()
    whole = [start(transport, f"{transport}{n}", program) for n in range(5)]
    check_whole(collector, whole)
    ends = [row for row in collector.rows() if row["name"] == "tailrace.goodbye"]
    assert len({row["session"] for row in ends}) == 5


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_program_that_is_killed_has_what_it_flushed_and_no_event_twice(
    collector, start, transport
):
    program = """
import os, sys, tailrace_client as trace
trace.connect()
for n in range(1000): trace.event(sys.argv[1], n=n)
assert trace.flush(20)
for n in range(1000): trace.event(sys.argv[1], n=n)
os.kill(os.getpid(), 9)
"""
    collector.start()
    killed = start(transport, "killed", program).process
    assert killed.wait(60) == -9
    collector.settle()
    collector.stop()
    stored, missing = table(collector)
    numbers = sorted(stored["killed"][1])
    assert numbers[:1000] == list(range(1000))
    assert numbers == list(range(len(numbers)))
    assert not any(missing.values())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_children_are_sessions_of_their_own_and_whole(collector, start, transport):
    program = """
import os, sys, tailrace_client as trace
trace.connect()
name = sys.argv[1]
for n in range(500): trace.event(name, n=n)
children = []
for child in range(6):
    pid = os.fork()
    if pid == 0:
        for n in range(300): trace.event(f"{name} child {child}", n=n)
        os._exit(not trace.close(20))
    children.append(pid)
for pid in children: assert os.waitpid(pid, 0)[1] == 0
for n in range(500): trace.event(name, n=n)
assert trace.close(20)
print(0, 1000, True, 0)
"""
    collector.start()
    check_whole(collector, [start(transport, "parent", program)])
    rows = [row for row in collector.rows() if row["kind"] == "span"]
    found = defaultdict(list)
    for row in rows:
        found[row["name"], row["session"]].append(row["seq"])
    assert len(found) == len({session for _, session in found}) == 7
    for (name, _), numbers in found.items():
        assert sorted(numbers) == list(range(300 if "child" in name else 1000))


@pytest.mark.parametrize("buffer_bytes", [2**24, 2**16])
def test_a_network_that_is_bad_in_both_directions_and_a_daemon_that_is_killed_deliver_no_lost_event(
    collector, place, buffer_bytes, monkeypatch
):
    """Answers get lost and overtake one another, too. Events that are not stored are discarded and counted."""
    monkeypatch.setattr(_sockets, "LOCAL_DATAGRAM_BYTES", _sockets.DATAGRAM_BYTES)
    collector.start()
    host, _, port = place["udp"].rpartition(":")
    with BothWays((host, int(port)), 1, loss=0.1, delay=0.3) as relay:
        emitter = tailrace_client.Emitter(
            f"udp://{relay.address[0]}:{relay.address[1]}", buffer_bytes=buffer_bytes
        )
        answers = []
        for number in range(20_000):
            emitter.event("x", n=number)
            if number % 100 == 0:
                time.sleep(0.003)
            if number in {3000, 9000, 15_000}:
                collector.kill()
                collector.start()
            if number % 5000 == 4999:
                answers.append((number + 1, emitter.flush(30)))
        answers.append((20_000, emitter.close(30)))
    collector.settle()
    collector.stop()
    assert relay.lost[0]  # and one in ten answers, of which a slow machine sends few
    stored = set(table(collector)[0]["x"][1])
    for count, delivered in answers:
        assert not delivered or stored >= set(range(count))
    assert 20_000 - len(stored) <= sum(emitter.discarded.values())
    assert answers[-1][1] == (buffer_bytes == 2**24)


BEHIND_THE_EXIT = {
    "an exit function": """
import atexit, sys
atexit.register(lambda: [trace.event(sys.argv[1]) for _ in range(int(sys.argv[2]))])
import tailrace_client as trace
""",
    "destructors": """
import sys, tailrace_client as trace
class Destroyed:
    def __del__(self, event=trace.event, name=sys.argv[1]): event(name)
destroyed = [Destroyed() for _ in range(int(sys.argv[2]))]
""",
}


@pytest.mark.parametrize(
    ("events", "is_stopped"), [(300, False), (50, True)], ids=["daemon answers", "daemon stopped"]
)
@pytest.mark.parametrize("program", BEHIND_THE_EXIT.values(), ids=BEHIND_THE_EXIT)
def test_events_behind_the_clients_exit_are_all_there(
    collector, start, program, events, is_stopped
):
    """A daemon answers after its commit, so the client can wait for the answers to a few of them only. A daemon that is
    stopped answers none of them. It reads later what the kernel holds: of a unix socket, some 140 events."""
    program += """
trace.connect(); trace.event(sys.argv[1]); print(trace.flush(30), flush=True)
sys.stdin.readline()
print(0, 1 + int(sys.argv[2]), True, 0)
"""
    collector.start()
    programs = [start(transport, transport, program, events) for transport in TRANSPORTS]
    for each in programs:
        assert each.process.stdout.readline() == "True\n"
    if is_stopped:
        collector.process.send_signal(signal.SIGSTOP)
    try:
        for each in programs:
            each.tell()
        for each in programs:
            each.process.wait(60)
    finally:
        collector.process.send_signal(signal.SIGCONT)
    check_whole(collector, programs)
    goodbyes = defaultdict(list)
    for row in collector.rows(["source", "name", "attributes"]):
        if row["name"] == "tailrace.goodbye":
            goodbyes[row["source"]].append(json.loads(row["attributes"])["streams"]["1"])
    assert {source: max(numbers) for source, numbers in goodbyes.items()} == dict.fromkeys(
        TRANSPORTS, 1 + events
    )
