"""Test what a daemon still waits for: whoever reads its store is told, and nothing is called complete."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest

import tailrace
from tests import program, toml
from tests.cli.command import COMMAND
from tests.ingest.log import heph_event
from tests.system.collector import Collector, until

LONG = toml.section("ledger", reorder_time="1h")
NOT_YET = "no gaps: 3 still awaited"


def send(collector, stream, *numbers):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.connect(collector.address("udp"))
        for number in numbers:
            sock.send(heph_event(stream, number))
        return sock.getsockname()


def status_of(collector, source="udp"):
    return collector.status()["sources"][source]


@pytest.fixture(scope="module")
def _waiting(tmp_path_factory):
    collector = Collector(tmp_path_factory.mktemp("waiting"), more=LONG).start()
    send(collector, 5, 0, 1, 2, 6, 7)
    send(collector, 9, 0, 1)
    with socket.create_connection(collector.address("tcp")) as sock:
        sock.sendall(heph_event(1, 0))
    until(lambda: status_of(collector)["seen_events"] == 7, "the datagrams")
    until(lambda: status_of(collector, "tcp")["seen_events"] == 1, "the connection")
    collector.settle()
    yield collector
    collector.stop()
    collector.end()


@pytest.fixture
def waiting(_waiting):
    """A daemon that waits for three events of one stream, and has those of others."""
    return _waiting


def session_of(collector, stream):
    sql = f"SELECT DISTINCT session FROM spans WHERE stream = '{stream}'"  # noqa: S608 - ours
    return json.loads(collector.cli("query", "--json", sql).stdout)["session"]


def test_the_status_says_of_which_stream(waiting):
    figures = status_of(waiting)
    mine = {"session": session_of(waiting, 5), "stream": "5", "events": 3}
    assert (figures["awaited_events"], figures["awaited"]) == (3, [mine])
    assert 'tailrace_ledger_awaited_events{source="udp"} 3' in waiting.metrics()


def test_gaps_say_so(waiting):
    done = waiting.cli("gaps")
    assert (done.returncode, done.stderr) == (0, "")
    heading, line, last = done.stdout.splitlines()
    assert heading.split()[3:] == [
        "reason",
        "detail",
        "first",
        "last",
        "count",
        "remaining",
        "id",
        "peer",
    ]
    session = session_of(waiting, 5)
    assert line.split() == ["udp", session, "5", "awaited", "-", "-", "-", "3", "3", "-", "-"]
    assert last == NOT_YET
    (row,) = map(json.loads, waiting.cli("gaps", "--json").stdout.splitlines())
    assert {key: value for key, value in row.items() if value is not None} == {
        "source": "udp", "format": "heph", "session": session, "stream": "5",
        "reason": "awaited", "count": 3, "healed": 0, "remaining": 3,
    }  # fmt: skip


def test_only_of_what_was_asked_for(waiting):
    ours, other = session_of(waiting, 5), session_of(waiting, 9)
    for options in (["--source", "udp"], ["--session", ours]):
        assert waiting.cli("gaps", *options).stdout.splitlines()[-1] == NOT_YET
        assert waiting.cli("streams", *options, "--complete-only").returncode == 3
    for options in (["--source", "tcp"], ["--session", other]):
        assert waiting.cli("gaps", *options).stdout == "no gaps: nothing is known to be missing\n"
        assert waiting.cli("streams", *options, "--complete-only").returncode == 0


def test_other_commands_say_so_and_call_nothing_complete(waiting):
    note = "tailrace: 3 still awaited; `tailrace gaps` says which\n"
    for command in (["query", "SELECT 1"], ["query", "SELECT 1", "--json"], ["streams", "--json"]):
        assert waiting.cli(*command).stderr == note
    for command in (["query", "SELECT 1"], ["streams"]):
        done = waiting.cli(*command, "--complete-only")
        assert (done.returncode, done.stdout, done.stderr) == (3, "", note)
    last = waiting.cli("streams", "--source", "udp").stdout.splitlines()[-1]
    assert (
        last == "2 streams: 7 events, 0 missing, 3 still awaited, 70.0000 % complete, 0 open spans"
    )


def test_python_says_so(waiting):
    with tailrace.open(waiting.store, complete_only=True) as store:
        whole = store.completeness
        assert (whole.complete, whole.awaited, whole.text) == (False, 3, "3 still awaited")
        with pytest.raises(tailrace.IncompleteError, match="3 still awaited"):
            store.spans().count()
        assert store.spans(stream=9).completeness.complete
        assert not store.spans(stream=5).completeness.complete
        assert store.spans(source="tcp").count() == 1


def test_a_source_of_the_daemon_is_known_before_it_has_rows(waiting):
    assert waiting.cli("gaps", "--source", "jets").stdout.startswith("no gaps: no event matches")
    assert waiting.cli("streams", "--source", "jets", "--complete-only").returncode == 3
    done = waiting.cli("follow", "--source", "nope")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("there is no source 'nope'; known: jets, tailrace, tcp, udp\n")
    follower = program.start(
        [*COMMAND, "follow", "--store", waiting.store, "--source", "jets", "--from-start"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        with socket.create_connection(waiting.address("jets")) as sock:
            sock.sendall(b"{}\n")
            assert follower.stdout.readline().split()[-1:]
            assert follower.poll() is None
    finally:
        follower.kill()
        follower.communicate()


def test_from_a_hole_to_its_gap_the_sum_never_falls(collector_of):
    """Neither while the window is open, nor while the gap that was found is being committed."""
    more = toml.section("ledger", reorder_time="1h", reorder_events=16) + toml.section(
        "store", commit_interval="2s"
    )
    collector = collector_of(more=more)
    said = []
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
        tailrace.open(collector.store) as store,
    ):
        sock.connect(collector.address("udp"))

        def look():
            store.refresh()
            whole = store.completeness
            said.append((whole.awaited, sum(whole.missing.values())))
            return said[-1]

        for number in (0, 1, 2, 6, 7):
            sock.send(heph_event(5, number))
        until(lambda: status_of(collector)["seen_events"] == 5, "the events")
        assert look() == (3, 0)
        for number in range(8, 40):  # later events enough: the hole is given up
            sock.send(heph_event(5, number))
        until(lambda: look() == (0, 3), "the gap", pause=0)
    assert all(awaited + missing >= 3 for awaited, missing in said), said


def test_what_comes_after_all_is_awaited_no_more(collector_of):
    collector = collector_of(more=LONG)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for numbers, awaited in (((0, 4), 3), ((2,), 2), ((1, 3), 0)):
            for number in numbers:
                sock.sendto(heph_event(5, number), collector.address("udp"))
            until(lambda: status_of(collector)["awaited_events"] == awaited, "it")  # noqa: B023 - at once
    collector.settle()
    assert collector.cli("gaps").stdout == "no gaps: nothing is known to be missing\n"


@pytest.fixture
def silent(tmp_path):
    """A daemon that speaks to those who have a token."""
    tokens = tmp_path / "tokens"
    tokens.write_text("0123456789abcdef-scraper")
    tokens.chmod(0o600)
    collector = Collector(tmp_path, more=f"tokens = '{tokens}'").start()
    yield collector
    collector.stop()
    collector.end()


def test_a_daemon_that_does_not_say_leaves_nothing_complete(silent):
    collector = silent
    with socket.create_connection(collector.address("tcp")) as sock:
        sock.sendall(heph_event(1, 0))
    until(lambda: "tcp" in collector.cli("streams").stdout, "its row")
    done = collector.cli("gaps")
    assert (
        "pending events cannot be determined: the collector that runs on this store" in done.stdout
    )
    assert "HTTP Error 401" in done.stdout
    (row,) = map(json.loads, collector.cli("gaps", "--json").stdout.splitlines())
    assert (row["reason"], row["remaining"], "401" in row["detail"]) == ("awaited", None, True)
    assert collector.cli("streams", "--complete-only").returncode == 3
    assert "perhaps more" in collector.cli("follow", "--source", "udp").stderr
    told = collector.cli("gaps", "--config", collector.config)
    assert told.stdout == "no gaps: nothing is known to be missing\n"
    assert collector.cli("streams", "--complete-only", "--config", collector.config).returncode == 0


def test_what_a_killed_daemon_had_is_not_forgotten(collectors):
    """Its holes are in the spool alone; a start and an end in order bring them into the table."""
    collector = collectors(more=LONG).start()
    send(collector, 5, 0, 4)
    until(lambda: status_of(collector)["awaited_events"] == 3, "the datagrams")
    collector.settle()
    collector.kill()
    assert "the last collector of this store was killed" in collector.cli("gaps").stdout
    assert collector.cli("streams", "--complete-only").returncode == 3
    collector.start()
    assert collector.cli("gaps").stdout.splitlines()[-1] == NOT_YET
    collector.stop()
    assert (
        collector.cli("gaps").stdout.splitlines()[-1] == "1 gap: 3 events are missing (network 3)"
    )


def test_so_does_a_process_that_writes_and_has_no_endpoint(tmp_path):
    program = (
        "import os, socket, pathlib, sys, time\n"
        "host, _, port = os.environ['TAILRACE_HEPH_TCP'].rpartition(':')\n"
        "sock = socket.create_connection((host, int(port)))\n"
        f"sock.sendall({heph_event(1, 0)!r})\n"
        "pathlib.Path('sent').touch()\n"
        "while not pathlib.Path('over').exists(): time.sleep(0.01)\n"
    )
    run = [*COMMAND, "run", "--store", "store", "--", sys.executable, "-c", program]
    process = subprocess.Popen(run, cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        until((tmp_path / "sent").exists, "the program")
        with tailrace.open(tmp_path / "store") as store:

            def has_row():
                store.refresh()
                return store.completeness.selected

            until(has_row, "its row")
            assert not store.completeness.complete
            assert "has no admin endpoint" in store.completeness.text
    finally:
        (tmp_path / "over").touch()
        process.wait(60)
    with tailrace.open(tmp_path / "store") as store:
        assert "has no admin endpoint" not in store.completeness.text
