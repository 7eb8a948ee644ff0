"""Connections that the collector cuts itself, with bytes in the kernel: what may be missing is named.

A process that is stopped (SIGSTOP) reads nothing, so what is sent then lies in the kernel's receive buffer.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
from pathlib import Path

import pytest

from tests import program
from tests.forms import in_turn
from tests.ingest.log import heph_epoch, heph_event, heph_goodbye, heph_session
from tests.ingest.test_cut_connections import lines
from tests.system.collector import until
from tests.system.test_reload import reload, source

EPOCH = heph_epoch(10**18)
HEAD = {"jets": lines("header"), "tcp": EPOCH, "unix": EPOCH}
"""The first words of a producer, by source."""
END = {
    "jets": lambda count: (
        json.dumps({"type": "footer", "capture_end_clk": 9, "total_records": count}).encode()
        + b"\n"
    ),
    "tcp": lambda count: heph_goodbye({"1": count}),
    "unix": lambda count: heph_goodbye({"1": count}),
}


def some(name, first, count):
    """Events of a producer, from a number on."""
    if name == "jets":
        return lines(*["record"] * count, ids=range(first + 1, 99))
    return b"".join(heph_event(1, n) for n in range(first, first + count))


@pytest.fixture
def collector(collectors, tmp_path):
    sources = (
        source("tcp")
        + source("jets", format_="jets")
        + source("unix", "unix", str(tmp_path / "events.sock"))
        + source("stays")
    )
    return collectors(sources=sources).start()


class Producer:
    """A plain producer of one source, of which three events are on the collector's disk."""

    def __init__(self, collector, name, first=0):
        self.collector, self.name = collector, name
        kind = socket.AF_UNIX if name == "unix" else socket.AF_INET
        self.sock = socket.socket(kind)
        at = collector.ports["sources"][name]
        self.sock.connect(at.removeprefix("unix://") if name == "unix" else collector.address(name))
        self.sock.sendall(HEAD[name] + some(name, first, 3))
        until(lambda: self.seen == first + 3, "the first events")

    @property
    def seen(self):
        return self.collector.status()["sources"][self.name]["seen_events"]


PRODUCERS = ["tcp", "jets", "unix"]


@pytest.fixture(params=PRODUCERS)
def producer(request, collector):
    producer = Producer(collector, request.param)
    yield producer
    producer.sock.close()


def halt(collector):
    """Let the process read nothing any more."""
    collector.process.send_signal(signal.SIGSTOP)
    stat = Path(f"/proc/{collector.process.pid}/stat")

    def stopped():
        return stat.read_text().rpartition(")")[2].split()[0] == "T"

    until(stopped, "the process to stand still")


def gaps(collector, name):
    done = collector.cli("gaps", "--json", "--source", name)
    found = map(json.loads, done.stdout.splitlines())
    return [(gap["reason"], gap["detail"], gap["remaining"]) for gap in found]


def complete(collector, name):
    """Whether readers call the source complete."""
    done = collector.cli("streams", "--complete-only", "--source", name)
    assert done.returncode in (0, 3), done.stderr
    return done.returncode == 0


CUT = [("truncated", "cut", None)]


def live(collector, name):
    """The figures of the running collector: gaps of unknown size, and whether `top` knows how many events are missing."""
    top = json.loads(collector.cli("top", "--json", "--count", "1").stdout)
    (known,) = [each["missing_is_known"] for each in top["sources"] if each["source"] == name]
    return collector.status()["sources"][name]["unknown_gaps"], known


@pytest.mark.parametrize(
    ("producer", "said"), in_turn(PRODUCERS, [False, True]), indirect=["producer"]
)
def test_what_a_killed_collector_had_not_read_is_not_called_complete(collector, producer, said):
    """A producer that had said its end, and whose end was read, has said everything."""
    name = producer.name
    if said:
        producer.sock.sendall(END[name](3))
        until(lambda: end_came(collector, name), "the end")
        collector.settle()
    halt(collector)
    if not said:
        producer.sock.sendall(some(name, 3, 20))
    collector.kill()
    collector.start()
    until(lambda: collector.status()["sources"][name]["sessions_closed"] == 1, "its end")
    collector.settle()
    assert gaps(collector, name) == ([] if said else CUT)
    assert complete(collector, name) is said
    collector.stop()
    assert gaps(collector, name) == ([] if said else CUT)
    assert complete(collector, name) is said


def end_came(collector, name):
    names = {"footer", "tailrace.goodbye"}
    return any(row["name"] in names for row in collector.rows(source=name, kind="session"))


@pytest.mark.parametrize(
    ("producer", "ends"), in_turn(PRODUCERS, [False, True]), indirect=["producer"]
)
def test_a_collector_that_is_stopped_reads_what_the_kernel_has(collector, producer, ends):
    """All of it is stored. A producer that has not ended may have more."""
    name = producer.name
    halt(collector)
    producer.sock.sendall(some(name, 3, 20))
    if ends:
        producer.sock.close()
    collector.process.send_signal(signal.SIGTERM)
    collector.process.send_signal(signal.SIGCONT)
    collector.process.wait(timeout=180)
    assert len(events(collector, name)) == 23
    assert gaps(collector, name) == ([] if ends else CUT)
    assert complete(collector, name) is ends


def events(collector, name):
    rows = collector.rows(["kind", "source"], source=name)
    return [row for row in rows if row["kind"] in ("span", "begin")]


def test_a_source_that_is_removed_cuts_its_connections(collector, producer):
    name = producer.name
    producer.sock.sendall(some(name, 3, 20))
    reload(collector, source("stays"))
    collector.settle()
    assert len(events(collector, name)) == 23
    assert gaps(collector, name) == CUT
    assert not complete(collector, name)


@pytest.mark.parametrize("limit", ["idle_timeout", "record_timeout", "garbage_max", "pending_max"])
def test_a_limit_that_cuts_a_connection_is_no_end(collectors, limit):
    """The producer may have more, whatever was wrong with it."""
    value = {"idle_timeout": '"1 s"', "record_timeout": '"1 s"'}.get(limit, '"8 KiB"')
    more = {"pending_max": {"record_max": '"8 KiB"'}}.get(limit, {})
    collector = collectors(sources=source("tcp", **{limit: value}, **more)).start()
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(Producer(collector, "tcp").sock)
        if limit == "record_timeout":
            sock.sendall(heph_event(1, 3)[:20])
        elif limit == "pending_max":
            sock.sendall(heph_event(1, 3, name=b"x" * 8000)[:-1])
            other = stack.enter_context(socket.create_connection(collector.address("tcp")))
            other.sendall(heph_event(1, 0, name=b"y" * 4000)[:-1])

        def is_cut():
            with contextlib.suppress(OSError):
                sock.sendall(b"no event " * 1000 if limit == "garbage_max" else b"")
            return collector.status()["sources"]["tcp"]["sessions_closed"] >= 1

        until(is_cut, "the cut")
    collector.settle()
    assert CUT[0] in gaps(collector, "tcp")
    assert not complete(collector, "tcp")


@pytest.mark.parametrize("lost", [0, 5])
def test_a_producer_that_comes_back_shows_by_its_numbers_what_is_missing(collector, lost):
    """The gap of unknown size heals; what the kernel had is a gap of so many events."""
    first = Producer(collector, "tcp")
    halt(collector)
    first.sock.sendall(some("tcp", 3, lost))
    collector.kill()
    first.sock.close()
    collector.start()
    until(lambda: gaps(collector, "tcp") == CUT, "the gap")
    assert live(collector, "tcp") == (1, False)
    sock = socket.create_connection(collector.address("tcp"))
    with contextlib.closing(sock):
        sock.sendall(EPOCH + some("tcp", 3 + lost, 4))
    until(lambda: collector.status()["sources"]["tcp"]["seen_events"] == 7, "the rest")
    until(lambda: not collector.status()["sources"]["tcp"]["open_windows"], "the hole to close")
    collector.settle()
    assert gaps(collector, "tcp") == ([("network", None, lost)] if lost else [])
    assert complete(collector, "tcp") == (not lost)
    assert live(collector, "tcp") == (0, True)
    collector.kill()
    collector.start()
    assert live(collector, "tcp") == (0, True)
    assert "gaps of unknown size" not in collector.stop()


def test_the_last_words_count_the_gaps_that_did_not_heal(collector):
    """A kill cuts two producers, and one of them comes back."""
    for name in ("tcp", "jets"):
        with contextlib.closing(Producer(collector, name).sock):
            collector.kill()
        collector.start()
    for name in ("tcp", "jets"):
        until(lambda name=name: live(collector, name) == (1, False), "the gap")
    with socket.create_connection(collector.address("tcp")) as sock:
        sock.sendall(EPOCH + some("tcp", 3, 4))
    until(lambda: live(collector, "tcp") == (0, True), "the heal")
    assert collector.stop().count("gaps of unknown size: 1") == 1


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_serve_rest_ends_without_a_followed_file_and_settles_all_sessions(collector, how):
    """A connection that the collector's end cut has a gap, and so has a client that said no goodbye."""
    client = socket.create_connection(collector.address("stays"))
    client.sendall(EPOCH + heph_session(7) + heph_event(1, 0))
    plain, said = Producer(collector, "tcp"), Producer(collector, "jets")
    said.sock.sendall(END["jets"](3))
    until(lambda: end_came(collector, "jets"), "the footer")
    until(lambda: collector.status()["sources"]["stays"]["seen_events"] == 1, "the event")
    collector.settle()
    collector.kill() if how == "kill" else collector.stop()
    for each in (client, plain.sock, said.sock):
        each.close()
    done = program.run(
        [*collector.command(), "--rest"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    ledger = dict(re.findall(r"^  (\w+): (\d+) bytes", done.stdout, re.MULTILINE))
    assert ledger.keys() >= {"tcp", "stays", "jets"}
    assert all(int(ledger[name]) > 0 for name in ("tcp", "stays", "jets"))
    again = program.run(
        [*collector.command(), "--rest", "--json"], capture_output=True, check=True, timeout=120
    )
    (line,) = again.stdout.splitlines()
    assert {name: each["received_bytes"] for name, each in json.loads(line)["sources"].items()} == {
        name: int(size) for name, size in ledger.items()
    }
    assert gaps(collector, "tcp") == CUT
    assert gaps(collector, "stays") == [("truncated", "no_goodbye", None)]
    assert gaps(collector, "jets") == []
    sql = "SELECT source FROM sessions WHERE closed IS NULL AND source <> 'tailrace'"
    assert collector.cli("query", "--json", sql).stdout == ""


@pytest.mark.parametrize("name", ["tcp", "unix"])
def test_clients_that_come_and_go_while_the_collector_stands_still_are_all_taken_in(
    collector, name
):
    """As in a storm of programs that end before the collector has accepted their connections."""
    kind = socket.AF_UNIX if name == "unix" else socket.AF_INET
    at = collector.ports["sources"][name].removeprefix("unix://")
    halt(collector)
    for _ in range(1000):
        with socket.socket(kind) as sock:
            sock.settimeout(5)
            sock.connect(at if name == "unix" else collector.address(name))
            sock.sendall(EPOCH + some(name, 0, 3) + END[name](3))
    collector.process.send_signal(signal.SIGCONT)
    until(lambda: collector.status()["sources"][name]["sessions_closed"] == 1000, "all sessions")
    collector.settle()
    figures = collector.status()["sources"][name]
    assert (figures["seen_events"], figures["refused"]) == (3000, {})
    assert complete(collector, name)
