"""Two real collectors on one table in an object store whose answers get lost: each event once, and one upkeep at a time."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tailrace.clock import SystemClock
from tailrace.store.turn import turn
from tailrace.store.upkeep import CROWDED
from tests import program
from tests.ingest.log import heph_event
from tests.query.tables import make, row
from tests.store.s3_server import RunningS3
from tests.system.collector import until

URL = "s3://bucket/many"
QUICK = '[store]\npath = "{url}"\ncommit_interval = "500 ms"\n[store.options]\n{options}\n[heartbeat]\ninterval = "200 ms"\n'


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """A local table of so many files that whoever looks finds an upkeep due.

    In a bucket, each commit would read the log of all former ones.
    """
    commits = [[row(seq=seq, stream="old", offset=seq)] for seq in range(CROWDED)]
    return make(tmp_path_factory.mktemp("crowded"), *commits)


@pytest.fixture
def bucket(crowded):
    with RunningS3() as server:
        server.upload(crowded, URL)
        yield server


@pytest.fixture
def both(bucket, collectors, tmp_path_factory):
    """Two collectors as on two hosts: each with a data directory of its own, and the same name."""
    options = "\n".join(f'"{key}" = "{value}"' for key, value in bucket.options.items())
    more = QUICK.format(url=URL, options=options)
    homes = [tmp_path_factory.mktemp("home") for _ in range(2)]
    made = [collectors(more=more, environ={"XDG_DATA_HOME": str(home)}) for home in homes]
    for collector, home in zip(made, homes, strict=True):
        start(collector, home)
    return made


def start(collector, home):
    """Its directory is that of its spool, whose name tells the URL."""
    collector.command = lambda: [*program.COMMAND, "serve", "--config", collector.config]
    collector.start(wait=False)
    until(lambda: any(home.glob("tailrace/spool-*/ports.json")), "the daemon to listen")
    [ports] = home.glob("tailrace/spool-*/ports.json")
    collector.ports = json.loads(ports.read_text())
    assert collector.ports["pid"] == collector.process.pid


def table(bucket):
    return DeltaTable(f"{URL}/events", storage_options=bucket.options)


def merges(bucket):
    """The operations of the log's versions, and the files that merges removed."""
    return Counter(entry["operation"] for entry in table(bucket).history())


def listed(collector):
    done = program.run(
        [*program.COMMAND, "collectors", "--json", "--config", collector.config],
        stdout=subprocess.PIPE, env=collector.environ, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_two_collectors_and_their_upkeeps_share_a_table_whose_answers_get_lost(both, bucket):
    sent = [0, 0]
    socks = [socket.create_connection(collector.address("tcp")) for collector in both]

    command = [
        *program.COMMAND,
        "upkeep",
        "--all",
        "--json",
        "--if-free",
        "--config",
        both[0].config,
    ]
    upkeeps = [program.start(command, stdout=subprocess.PIPE) for _ in range(2)]
    for number in range(10):
        if number % 3 == 0:
            bucket.misbehave(drop=1)
        for each, sock in enumerate(socks):
            sock.sendall(heph_event(each, number))
            sent[each] += 1
        time.sleep(0.2)
    bucket.misbehave()
    for sock in socks:
        sock.close()
    said = [each.communicate()[0].decode() for each in upkeeps]
    assert [each.returncode for each in upkeeps] == [0, 0], said
    assert merges(bucket)["OPTIMIZE"] > 0
    for number, collector in enumerate(both):
        until(lambda one=collector, least=sent[number]: seen(one) >= least, "all events")
    until(lambda: len(listed(both[0])) >= 2, "both collectors to be in the table")
    for collector in both:
        assert "upkeep" not in collector.status()["conditions"]
        collector.stop()
    rows = table(bucket).to_pyarrow_table(columns=["stream", "seq", "kind"]).to_pylist()
    events = Counter((row["stream"], row["seq"]) for row in rows if row["kind"] == "span")
    expected = {"old": CROWDED, "0": sent[0], "1": sent[1]}
    assert events == Counter((name, seq) for name, most in expected.items() for seq in range(most))
    assert [each["health"] for each in listed(both[0])] == ["stopped", "stopped"]


def seen(collector):
    return collector.status()["sources"]["tcp"]["seen_events"]


@pytest.fixture
def merging(bucket, collectors, tmp_path_factory):
    """A collector whose upkeep is at work, and will be for long."""
    bucket.misbehave(delay=3.0)
    home = tmp_path_factory.mktemp("home")
    options = "\n".join(f'"{key}" = "{value}"' for key, value in bucket.options.items())
    more = QUICK.format(url=URL, options=options)
    collector = collectors(more=more, environ={"XDG_DATA_HOME": str(home)})
    start(collector, home)

    def begun():
        collector.hurry()
        return is_taken(bucket)

    until(begun, "its upkeep to begin", seconds=300)
    return collector


def is_taken(bucket):
    return turn(f"{URL}/events", bucket.options, SystemClock()).is_taken()


def upkeep_of(collector):
    """The pid of its upkeep."""
    found = []
    for path in Path(f"/proc/{collector.process.pid}/task").glob("*/children"):
        found += [pid for pid in path.read_text().split() if b"upkeep" in cmdline(pid)]
    [pid] = found
    return int(pid)


def cmdline(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_a_collector_that_stops_gives_the_turn_of_its_upkeep_back(merging, bucket):
    """Its upkeep ends with it, in the middle of a merge."""
    merging.stop()
    bucket.misbehave()
    assert not is_taken(bucket)


def test_a_collector_whose_upkeep_is_killed_gives_its_turn_back(merging, bucket):
    os.kill(upkeep_of(merging), signal.SIGKILL)
    until(lambda: not is_taken(bucket), "the turn to end", seconds=300)
    assert "upkeep" in merging.status()["conditions"]


def test_one_that_is_stopped_by_a_signal_is_silent_never_healthy(both, bucket):
    """Beside that, their own upkeep merges what it found at the start."""

    def merged():
        for collector in both:
            collector.hurry()
        return merges(bucket)["OPTIMIZE"]

    until(merged, "a merge", seconds=180, pause=1.0)
    until(lambda: len(listed(both[0])) >= 2, "heartbeats of both")
    mine = both[1].status()["spool"]["identity"]
    both[1].process.send_signal(signal.SIGSTOP)

    def silent():
        return [each["health"] for each in listed(both[0]) if each["identity"] == mine] == [
            "silent"
        ]

    until(silent, "the silence", pause=1.0)
    both[1].process.send_signal(signal.SIGCONT)
    until(lambda: not silent(), "a heartbeat", pause=0.5)
