"""A store that ended in order: it is as large as what is in it, whatever its collectors did before, and has no other files than these."""

from __future__ import annotations

import gzip
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import program, toml
from tests.ingest.log import heph_event
from tests.query.asking import ask
from tests.system.collector import Collector, until
from tests.system.test_import import ids, jets

MUCH = 150_000
"""Events whose entries in the log are larger than what may stay: 7 MB."""
REST_MAX = 2**20
"""Bytes on disk besides the table. Names, locks and two checkpoints take some 60 KB."""

STAYS = re.compile(
    r"""(collectors/\w+/)?(
      lock | collector\.json | ports\.json | upkeep\.json
    | spool/(lock | identity | \d{20}\.segment | \d{20}\.checkpoint)
    | quarantine/.+\.frames
    ) | (log|writers|journal|start|upkeep|turn)\.lock
    | certificate\.json
    | events/(_journal | _delta_log/.+ | day=\S+/[^/]+\.parquet)""",
    re.VERBOSE,
)
"""The files of a store without a process. Locks stay: to remove a lock's file would let two processes hold it."""


def held(directory: Path) -> int:
    """Return the bytes that the files of a directory take on disk, or say they have, whichever is more."""
    found = [path.stat() for path in directory.rglob("*") if path.is_file()]
    return sum(max(status.st_blocks * 512, status.st_size) for status in found)


def check(store: Path) -> None:
    assert held(store) - held(store / "events") < REST_MAX
    names = [str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()]
    assert [name for name in names if not STAYS.fullmatch(name)] == []


def events(count: int, stream: int = 1) -> bytes:
    return b"".join(heph_event(stream, number) for number in range(count))


def receive(collector: Collector, count: int, stream: int) -> None:
    before = collector.status()["sources"]["tcp"]["seen_events"]
    with socket.create_connection(collector.address("tcp")) as peer:
        peer.sendall(events(count, stream))
    until(
        lambda: collector.status()["sources"]["tcp"]["seen_events"] == before + count, "the events"
    )


def stored(store: Path) -> int:
    return ask(store, "SELECT count(*) FROM spans")[0][0]


@pytest.mark.parametrize("count", [3, MUCH])
def test_after_an_import(tmp_path, count):
    trace, store = tmp_path / "trace.heph", tmp_path / "store"
    trace.write_bytes(events(count))
    command = [*program.COMMAND, "import", "--store", store, "--format", "heph", trace]
    program.run(command, check=True, capture_output=True)
    check(store)
    assert stored(store) == count


@pytest.mark.parametrize("count", [0, MUCH])
def test_after_a_run(tmp_path, count):
    store = tmp_path / "store"
    (tmp_path / "trace").write_bytes(events(count))
    traced = (
        "import os, socket;"
        "host, port = os.environ['TAILRACE_HEPH_TCP'].rsplit(':', 1);"
        "socket.create_connection((host, int(port))).sendall(open('trace', 'rb').read())"
    )
    command = [*program.COMMAND, "run", "--store", store, "--", sys.executable, "-c", traced]
    program.run(command, check=True, capture_output=True, cwd=tmp_path)
    check(store)
    assert stored(store) == count


def test_after_a_stop_in_order_and_after_the_next_one(collectors):
    collector = collectors()
    for life, count in enumerate((MUCH, 3, 0, MUCH), 1):
        collector.start()
        receive(collector, count, life)
        collector.stop()
        assert collector.process.returncode == 0
        check(collector.store)
    assert stored(collector.store) == 2 * MUCH + 3


def test_after_kills_and_a_stop_in_order(collectors):
    collector = collectors()
    for life in range(3):
        collector.start()
        receive(collector, MUCH if life else 3, life)
        if life:
            collector.settle()
        collector.kill()
    collector.start().stop()
    check(collector.store)
    assert stored(collector.store) == 2 * MUCH + 3


def test_a_killed_collector_has_taken_little_ahead(collectors):
    collector = collectors().start()
    receive(collector, 3, 1)
    collector.kill()
    assert held(collector.store) < 5 * 2**20


def test_after_several_collectors_on_one_store(tmp_path, collectors):
    """One was killed, so the start that is alone opens its spool, too."""
    store = tmp_path / "store"
    main, other, third = (collectors(store=store, name=name) for name in ("main", "a", "b"))
    main.start()
    receive(main, 3, 1)
    main.kill()
    for collector in (other, third):
        collector.start()
        receive(collector, MUCH, 2)
    third.stop()
    other.stop()
    main.start().stop()
    check(store)
    assert stored(store) == 2 * MUCH + 3


def test_what_a_stopped_collector_needs_is_there(collectors):
    """Its counters go on, and a damaged checkpoint costs nothing."""
    collector = collectors(more=toml.section("heartbeat", interval="1 h")).start()

    def send(numbers):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.bind(("127.0.0.1", port[0]))
            port[0] = peer.getsockname()[1]
            for number in numbers:
                peer.sendto(heph_event(9, number), collector.address("udp"))

    port = [0]
    receive(collector, MUCH, 1)
    send(range(5))
    until(lambda: collector.status()["sources"]["udp"]["seen_events"] == 5, "the datagrams")
    collector.stop()
    newest = max(collector.store.glob("spool/*.checkpoint"))
    newest.write_bytes(newest.read_bytes()[:-7])
    collector.start()
    send(range(6, 9))
    until(lambda: collector.status()["sources"]["udp"]["seen_events"] == 8, "the datagrams")
    collector.stop()
    gaps = ask(collector.store, "SELECT stream, first, count FROM gaps")
    assert gaps == [("9", 5, 1)]
    check(collector.store)


@pytest.mark.parametrize("killed", [False, True])
def test_a_repeated_last_reading_stores_no_event_twice(killed, tmp_path):
    """A batch system repeats an epilog that was killed. A user repeats the command once a file has grown."""
    (tmp_path / "runs").mkdir()
    names = (b"a", b"b \xff", b"c.gz")
    paths = [tmp_path / "runs" / os.fsdecode(name) for name in names[: 1 if killed else 3]]
    for path in paths:
        write(path)
    source = toml.source("runs", "tail", "jets", paths=[tmp_path / "runs"])
    collector = Collector(tmp_path, sources=source)
    command = [*collector.command(), "--rest"]
    if killed:
        reading = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: any(collector.store.glob("spool/*.segment")), "a log")
        reading.kill()
        reading.wait()
        for name in names[1:]:
            write(tmp_path / "runs" / os.fsdecode(name))
    for _ in range(2):
        program.run(command, capture_output=True, check=True)
        assert len(ids(collector.store)) == 3 * 5
    with paths[0].open("ab") as file:
        file.write(jets(4, first=6))
    done = program.run(command, capture_output=True, check=True, text=True)
    assert "left out: 2" in done.stderr
    assert len(ids(collector.store)) == 3 * 5 + 4


def test_a_repeated_last_reading_reads_no_copy_again(tmp_path):
    """Queries hide the session of a copy, but the command must find the session."""
    (tmp_path / "runs").mkdir()
    for name in ("a", "b"):
        (tmp_path / "runs" / name).write_bytes(jets(5, footer=False))
    source = toml.source("runs", "tail", "jets", paths=[tmp_path / "runs"])
    collector = Collector(tmp_path, sources=source)
    for _ in range(2):
        program.run([*collector.command(), "--rest"], capture_output=True, check=True)
        assert len(ids(collector.store)) == 5
        (stored,) = ask(collector.store, "SELECT count(DISTINCT session) AS n FROM stored")
        assert stored == (2,)


def write(path):
    lines = jets(5, footer=False).replace(b'"r"', b'"r%d"' % len(path.name))
    path.write_bytes(gzip.compress(lines) if path.suffix else lines)
