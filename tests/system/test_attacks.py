"""Floods and growth without end: what it costs is bounded, and an honest peer beside it loses nothing
that is not accounted for. See also test_hostile_peers, test_noise and test_admin."""

from __future__ import annotations

import contextlib
import gzip
import random
import socket
from itertools import count

import pytest

from tailrace.query.engine import Engine
from tests import toml
from tests.ingest.log import heph_event, heph_session
from tests.system.collector import Collector, until
from tests.system.test_import import jets
from tests.system.test_noise import resident

MIB = 2**20
MEMORY = 300 * MIB
"""The memory that the daemon may take, whatever comes."""
honest_streams = count(10**6)
"""One for each honest peer, which nobody else uses."""

SOURCES = (
    toml.source("udp", "udp", peers_max=64)
    + toml.source("tcp", "tcp", connections_max=64, connections_per_peer_max=16)
    + toml.source("jets", "tcp", "jets", record_max="1 MiB")
)
LIMITS = (
    toml.section(
        "ledger",
        streams_max=64,
        source_streams_max=256,
        source_holes_max=1024,
        holes_max=64,
        sessions_max=16,
        references_max=256,
        open_spans_max=256,
    )
    + toml.section("quarantine", max_size="4 MiB", session_size="256 KiB")
    + toml.section("metrics", series_max=50)
)


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    """One daemon for all: what one attack leaves behind is none of the next one's business."""
    collector = Collector(
        tmp_path_factory.mktemp("attacked"), sources=SOURCES, more=LIMITS, executable=True
    ).start()
    try:
        yield collector
        collector.check_balance()
        collector.stop()
        assert collector.process.returncode == 0
        collector.check_final_ledgers()
    finally:
        collector.end()


class Honest:
    """A peer with a stream of its own; `sent` is what it handed to the kernel."""

    def __init__(self, collector, source):
        self.collector, self.source = collector, source
        self.stream = next(honest_streams)
        kind = socket.SOCK_DGRAM if source == "udp" else socket.SOCK_STREAM
        self.sock = socket.socket(socket.AF_INET, kind)
        self.sock.connect(collector.address(source))
        self.sent = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, count=1):
        for _ in range(count):
            self.sock.sendall(heph_event(self.stream, self.sent))
            self.sent += 1

    def check(self):
        """Each event is a row or in a gap, and none is both; after an end that arrived."""

        def last():
            self.send()
            self.collector.settle()
            return self.ask("SELECT seq FROM events WHERE seq = ?", self.sent - 1)

        until(last, "an event of the honest peer after all others", pause=0.1)
        until(lambda: not figures(self.collector, self.source)["open_windows"], "windows")
        self.collector.settle()
        self.sock.close()
        rows = self.ask("SELECT seq FROM events WHERE kind = 'span'")
        seen = {seq for (seq,) in rows}
        assert len(seen) == len(rows)
        gaps = self.ask("SELECT first, remaining FROM gaps WHERE true")
        missing = {n for first, number in gaps for n in range(first, first + number)}
        assert seen | missing == set(range(self.sent))
        return seen, missing

    def ask(self, sql, *values):
        """The rows of its own stream."""
        with contextlib.closing(Engine(str(self.collector.store))) as engine:
            return list(engine.rows(f"{sql} AND stream = ?", [*values, str(self.stream)]))


def figures(collector, source):
    return collector.status()["sources"][source]


@contextlib.contextmanager
def bounded(collector, limit):
    """Meanwhile it takes less than this in more memory (bytes), and it is well after."""
    before = resident(collector.process.pid)
    yield
    after = resident(collector.process.pid)
    assert after - before < limit, f"{(after - before) / MIB:.0f} MiB more"
    assert after < MEMORY
    assert collector.get("/healthz")[0] == 200
    until(lambda: collector.status()["conditions"] == {}, "no condition: streams have their places")


@contextlib.contextmanager
def beside_an_honest_peer(collector, source, *, limit=96 * MIB, may_miss=False):
    """The honest peer, who loses nothing; after that, which takes less than `limit` in more memory,
    all is accounted for. On a datagram socket it `may_miss` events, which then are in gaps."""
    with bounded(collector, limit), Honest(collector, source) as honest:
        honest.send()
        yield honest
        _, missing = honest.check()
        assert may_miss or not missing


def connect(collector, source):
    return socket.create_connection(collector.address(source))


def test_streams_names_and_attributes_without_number(limited):
    rng = random.Random(1)
    before = figures(limited, "tcp")
    with beside_an_honest_peer(limited, "tcp") as honest, connect(limited, "tcp") as attacker:
        for round_ in range(50):
            events = [
                heph_event(1000 + 400 * round_ + n, 7 * n, name=rng.randbytes(60).hex().encode())
                for n in range(400)
            ]
            attacker.sendall(b"".join(events))
            honest.send()
        wanted = before["seen_events"] + 50 * 401
        until(lambda: figures(limited, "tcp")["seen_events"] >= wanted, "all that was sent")
    after = figures(limited, "tcp")
    assert after["followed_streams"] <= 256
    assert after["uncounted_events"] - before["uncounted_events"] >= 50 * 400 - 256
    assert len(limited.get("/metrics")[1]) < 100_000


def test_numbers_that_jump_without_end(limited):
    """Each event is far from the one before: a hole each, remembered up to a limit."""
    rng = random.Random(2)
    rows = len(limited.rows(["kind"]))
    with beside_an_honest_peer(limited, "tcp") as honest, connect(limited, "tcp") as attacker:
        for _ in range(20):
            numbers = [rng.randrange(2**31) for _ in range(500)]
            attacker.sendall(b"".join(heph_event(1, n) for n in numbers))
            honest.send()
    assert figures(limited, "tcp")["remembered_gaps"] <= 1024 + 64
    assert len(limited.rows(["kind"])) - rows < 20 * 500 + 2000


def test_sessions_that_are_announced_without_number(limited):
    wanted = figures(limited, "tcp")["seen_events"] + 600
    with beside_an_honest_peer(limited, "tcp") as honest:
        for number in range(300):
            with connect(limited, "tcp") as attacker:
                attacker.sendall(heph_session(number, turn=0) + heph_event(1, 0))
            honest.send()
        until(lambda: figures(limited, "tcp")["seen_events"] >= wanted, "all that was sent")


def test_connections_from_all_of_loopback(limited):
    """Any user of this host may use 127.0.0.0/8: the limit for all holds; who is connected stays."""
    before = figures(limited, "tcp")["refused"].get("too many connections", 0)
    with beside_an_honest_peer(limited, "tcp") as honest, contextlib.ExitStack() as stack:
        for number in range(600):
            sock = stack.enter_context(socket.socket())
            sock.bind((f"127.1.{number // 250}.{1 + number % 250}", 0))
            sock.settimeout(10)
            with contextlib.suppress(OSError):
                sock.connect(limited.address("tcp"))
            if number % 50 == 0:
                honest.send()

        def refused():
            return figures(limited, "tcp")["refused"].get("too many connections", 0) - before

        until(lambda: refused() >= 600 - 63, "those past the limit to be refused")
        assert figures(limited, "tcp")["open"] == 64


def test_datagrams_from_one_peer_without_end(limited):
    check_datagram_flood(limited, 10_000)


@pytest.mark.slow
def test_datagrams_from_one_peer_for_a_minute(limited):
    check_datagram_flood(limited, 1_500_000)


def check_datagram_flood(collector, datagrams):
    noise = random.Random(3).randbytes(1200)
    address = collector.address("udp")
    with (
        beside_an_honest_peer(collector, "udp", may_miss=True) as honest,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as attacker,
    ):
        for number in range(datagrams):
            event = heph_event(1, number, attributes=noise) if number % 2 else noise
            attacker.sendto(event, address)
            if number % 50 == 0:
                honest.send()


def test_datagrams_from_forged_addresses(limited):
    """Two readable datagrams from each of many: some are let in, the others shed, nobody's events lost."""
    before = figures(limited, "udp")["refused"]
    address = limited.address("udp")
    with beside_an_honest_peer(limited, "udp", may_miss=True) as honest:
        for number in range(1000):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forged:
                forged.bind((f"127.2.{number // 250}.{1 + number % 250}", 0))
                for event in range(2):
                    forged.sendto(heph_event(1, event), address)
            if number % 20 == 0:
                honest.send()
    after = figures(limited, "udp")
    assert after["open"] <= 64
    refused = {cause: count - before.get(cause, 0) for cause, count in after["refused"].items()}
    assert 2 * refused.get("too many peers", 0) + refused.get("too many new peers", 0) > 1000


SHAPES = (
    b"[" * 500_000,
    b'{"a":' * 150_000,
    b'{"type":"record","clk":' + b"9" * 500_000 + b"}",
    b'{"type":"record","clk":1e999999999}',
    b'{"type":"header","metadata":{"clock_frequency_mhz":' + b"9" * 400 + b"}}",
    b'"' + b"\\ud800" * 50_000 + b'"',
    b'{"clk":1,"type":"record","name":"' + b"n" * 900_000 + b'","record_type":"R","id":1,"parent_id":null,"description":""}',
    b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(50_000)) + b"}",
    b"\x00" * 100_000,
)  # fmt: skip


def test_lines_of_every_shape(limited):
    wanted = figures(limited, "jets")["received_bytes"]
    with beside_an_honest_peer(limited, "tcp") as honest:
        for shape in SHAPES:
            with connect(limited, "jets") as attacker:
                attacker.sendall(jets(1) + (shape + b"\n") * 3)
            wanted += len(jets(1)) + 3 * len(shape) + 3
            honest.send()
        until(lambda: figures(limited, "jets")["received_bytes"] == wanted, "all that was sent")
    kept = sum(f.stat().st_size for f in (limited.store / "quarantine").rglob("*") if f.is_file())
    assert kept <= 4 * MIB


def test_a_file_that_inflates_without_end(collector_of, tmp_path):
    """On disk it is a thousandth of its content. An honest file beside it is read meanwhile."""
    runs = tmp_path / "runs"
    runs.mkdir()
    whole = 96 * MIB
    bomb = gzip.compress(bytes(whole // 32)) * 32
    assert len(bomb) < whole / 500
    collector = collector_of(
        sources=toml.source("runs", "tail", "jets", paths=[runs]),
        more=toml.section("spool", max_size="64 MiB", segment_size="8 MiB") + LIMITS,
    )
    with bounded(collector, 128 * MIB):
        (runs / "bomb.jets").write_bytes(bomb)
        (runs / "honest.jets").write_bytes(jets(2000))
        until(lambda: figures(collector, "runs")["received_bytes"] > whole, "all of it", pause=0.1)
        assert collector.status()["spool"]["size_bytes"] <= 64 * MIB
        until(lambda: figures(collector, "runs")["records"]["begin"] == 2000, "the honest file")
    collector.settle()
    assert sum(row["kind"] in {"begin", "span"} for row in collector.rows(["kind"])) == 2000
