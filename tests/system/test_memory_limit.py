"""A daemon with less memory than its log needs: it says so, receives, and is not killed for ever."""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import socket

import pytest

from tests import toml
from tests.ingest.log import heph_event
from tests.system.collector import Collector, until
from tests.system.memory_limit import MemoryLimit
from tests.system.test_noise import of_process, resident
from tests.system.test_pending import OFTEN, checkpoints

MIB = 2**20
TCP = toml.source("tcp", "tcp", pending_max="1 GiB")
SELDOM = toml.section("spool", checkpoint_interval="1 h", checkpoint_bytes="4 GiB")
UNFINISHED = heph_event(7, 0, attributes=bytes(MIB - 100))[:-1]


@pytest.fixture
def limit():
    limit = MemoryLimit()
    yield limit
    limit.close()


@pytest.fixture
def make(tmp_path, limit):
    """A function that makes a collector in the limited group; it is gone at the end."""
    made = []

    def make(**options):
        made.append(Collector(tmp_path, before=limit.enter, **options))
        return made[-1]

    yield make
    for collector in made:
        collector.end()


def fill(collector, stack, records):
    """Send so many unfinished records of 1 MiB, a connection each, or until the daemon dies."""
    with contextlib.suppress(OSError):
        for _ in range(records):
            sock = stack.enter_context(socket.create_connection(collector.address("tcp")))
            sock.sendall(UNFINISHED)


def events(collector):
    return sorted(row["seq"] for row in collector.rows(["kind", "seq"]) if row["kind"] == "span")


def starts_in_vain(collector):
    """Start it until a start is not killed; return how many were."""
    for killed in range(6):
        with contextlib.suppress(AssertionError):  # it ended before it listened
            collector.start()
        until(lambda: settled(collector), "a start to be killed, to end or to wait")
        if collector.process.poll() != -signal.SIGKILL:
            return killed
    raise AssertionError("it is killed again and again")


def settled(collector):
    """Whether a start was killed or has ended, or says that it waits."""
    if not collector.running:
        return True
    with contextlib.suppress(OSError):
        return "memory" in collector.status()["conditions"]
    return False


def test_a_log_that_does_not_fit_is_received_and_not_decoded(make, limit):
    """Killed by the kernel as it decodes, it goes on receiving at the third start. With the memory it
    wants, it has every event.

    120 MiB of unfinished records fit into no limit that is 16 MiB above what the process takes without them:
    less than 80 MiB of that are pages of files, which the kernel can drop."""
    collector = make(sources=TCP, more=SELDOM).start()
    with socket.create_connection(collector.address("tcp")) as honest:
        honest.sendall(b"".join(heph_event(1, n) for n in range(100)))
        until(lambda: collector.status()["rows_committed"] >= 100, "the first events")
    before = resident(collector.process.pid)
    with contextlib.ExitStack() as stack:
        fill(collector, stack, 120)
        until(lambda: collector.status()["sources"]["tcp"]["pending_bytes"] > 119 * MIB, "them all")
        collector.kill()
    limit.set(before + 16 * MIB)
    assert starts_in_vain(collector) == 3
    status = collector.status()
    assert "3 starts in a row were killed" in status["conditions"]["memory"]
    assert (status["state"], status["killed_starts"]) == ("degraded", 3)
    assert "tailrace_killed_starts 3.0" in collector.metrics()
    assert collector.get("/healthz")[0] == collector.get("/readyz")[0] == 200
    with socket.create_connection(collector.address("tcp")) as honest:
        honest.sendall(b"".join(heph_event(2, n) for n in range(100, 200)))
        until(lambda: collector.status()["spool"]["buffered_bytes"] == 0, "them on disk")
        until(
            lambda: collector.status()["sources"]["tcp"]["taken_bytes"] >= 4400, "the second events"
        )
    assert "nothing was decoded" in collector.stop()
    assert collector.process.returncode == 0
    limit.set(2**40)
    collector.start()
    collector.settle()
    assert events(collector) == list(range(200))
    assert collector.status()["killed_starts"] == 0
    assert "memory" not in collector.status()["conditions"]
    collector.check_balance()
    collector.stop()


@pytest.mark.slow
def test_a_checkpoint_that_does_not_fit_is_refused_in_a_sentence(make, limit):
    small = OFTEN + 'max_size = "192 MiB"\nsegment_size = "16 MiB"\n'
    collector = make(sources=TCP, more=small).start()
    with contextlib.ExitStack() as stack:
        before = resident(collector.process.pid)
        fill(collector, stack, 110)
        until(lambda: collector.status()["sources"]["tcp"]["pending_bytes"] > 109 * MIB, "them all")
        honest = stack.enter_context(socket.create_connection(collector.address("tcp")))
        numbers = iter(range(10**6))

        def large():
            """Each event is a commit, after which there is a checkpoint."""
            honest.sendall(heph_event(1, next(numbers)))
            return all(path.stat().st_size > 80 * MIB for path in checkpoints(collector)[-2:])

        until(large, "checkpoints with what is too old for the spool", pause=0.2)
        sent = next(numbers)
        collector.settle()
        collector.kill()
    limit.set(before + 8 * MIB)
    collector.start(wait=False)
    until(lambda: not collector.running, f"it to refuse:\n{collector.log()}")
    assert collector.process.returncode == 1
    (message,) = [line for line in collector.log().splitlines() if "do not fit" in line]
    assert "MemoryMax=" in message
    assert "Traceback" not in collector.log()
    limit.set(2**40)
    collector.start()
    collector.settle()
    assert events(collector) == list(range(sent))
    collector.check_balance()
    collector.stop()


def test_a_start_that_is_refused_memory_ends_with_one_message(tmp_path):
    """As under `ulimit -v`, where memory is refused and nobody is killed.

    Libraries in C++ end the process where they are: Arrow aborts, or uses the memory that it did not get.
    It is no worse than a kill."""
    collector = Collector(tmp_path, sources=TCP, executable=True).start()
    addresses = of_process(collector.process.pid, "VmPeak")
    collector.stop()
    limited = Collector(
        tmp_path, sources=TCP,
        before=lambda: resource.setrlimit(resource.RLIMIT_AS, (addresses + 48 * MIB,) * 2),
    ).start()  # fmt: skip
    try:
        with contextlib.ExitStack() as stack:
            fill(limited, stack, 200)
            until(lambda: not limited.running, "it to end")
        assert limited.process.returncode in {1, -signal.SIGABRT, -signal.SIGSEGV}
        if limited.process.returncode == 1:
            assert "out of memory; raise RLIMIT_AS" in limited.log()
    finally:
        limited.end()


def test_starts_that_are_killed_for_other_reasons_are_not_counted(tmp_path):
    collector = Collector(tmp_path, sources=TCP, executable=True)
    for _ in range(4):
        collector.start(wait=False)
        until((collector.store / "spool" / "starting").exists, "the start to be noted", pause=0.001)
        collector.kill()
    note = json.loads((collector.store / "spool" / "starting").read_text())
    assert note["killed"] == 0
    collector.start()
    try:
        until(lambda: not (collector.store / "spool" / "starting").exists(), "it to come through")
        assert collector.status()["conditions"] == {}
    finally:
        collector.end()
