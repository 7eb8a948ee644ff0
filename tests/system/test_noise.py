"""Random bytes on every listener: memory and the table grow within bounds, honest peers lose nothing."""

from __future__ import annotations

import contextlib
import random
import socket
from collections import Counter
from pathlib import Path

import pytest

from tests import toml
from tests.ingest.log import heph_event
from tests.system.collector import until

SOURCES = (
    toml.source("udp", "udp", peers_max=50, new_peers_rate=1000)
    + toml.source("tcp", "tcp", garbage_max="64 KiB")
    + toml.source("jets", "tcp", "jets", garbage_max="64 KiB")
)
MORE = toml.section("quarantine", max_size="4 MiB", session_size="256 KiB")

FORGED, ROUNDS = 300, 20
MEMORY = 64 * 2**20


def resident(pid):
    """Memory of a process, in bytes."""
    return of_process(pid, "VmRSS")


def of_process(pid, name):
    """A figure of /proc/PID/status, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no {name}")


def shout(address, rng):
    """A connection that sends noise until it is cut off."""
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=5) as sock:
        for _ in range(20):
            sock.sendall(rng.randbytes(8192))


def test_noise_from_many_addresses_costs_few_rows_and_no_peer_its_place(collector_of):
    check_noise(collector_of, ROUNDS)


@pytest.mark.slow
def test_so_does_more_than_a_minute_of_it(collector_of):
    check_noise(collector_of, 40 * ROUNDS)  # 65 s where it was written


def check_noise(collector_of, rounds):
    collector = collector_of(sources=SOURCES, more=MORE, executable=True)
    rng = random.Random(4)
    before = resident(collector.process.pid)
    with contextlib.ExitStack() as stack:
        udp = lambda: stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))  # noqa: E731 - short
        honest = [udp() for _ in range(5)]
        noisy = [udp() for _ in range(FORGED)]
        stream = stack.enter_context(socket.create_connection(collector.address("tcp")))
        for n in range(rounds):
            for sock in honest:
                sock.sendto(heph_event(1, n), collector.address("udp"))
            stream.sendall(heph_event(1, n))
            for sock in noisy:
                sock.sendto(rng.randbytes(rng.randrange(1400)), collector.address("udp"))
            shout(collector.address("tcp"), rng)
            shout(collector.address("jets"), rng)
            events = 5 * (n + 1)
            until(
                lambda events=events: collector.status()["sources"]["udp"]["seen_events"] >= events,
                "what honest peers sent",
            )
        until(lambda: collector.status()["sources"]["tcp"]["seen_events"] >= rounds, "the stream")
    collector.settle()
    grown = resident(collector.process.pid) - before
    status = collector.status()["sources"]
    assert status["udp"]["sessions_opened"] <= 6, "honest peers, and one for all strangers"
    assert status["udp"]["refused"] == {}
    assert status["udp"]["missing_events"] == 0
    assert grown < MEMORY
    rows = collector.rows(["source", "session", "kind", "seq"])
    spans = Counter((r["source"], r["session"], r["seq"]) for r in rows if r["kind"] == "span")
    assert max(spans.values()) == 1
    assert Counter(source for source, *_ in spans) == {"udp": 5 * rounds, "tcp": rounds}
    others = Counter(row["source"] for row in rows if row["kind"] != "span")
    # For UDP some rows a second, whatever comes; a connection has rows for its beginning, its end and
    # each chunk.
    assert others["udp"] < 6 + FORGED + rounds * FORGED // 100
    assert others["tcp"] + others["jets"] < 2 * rounds * 20
    kept = sum(f.stat().st_size for f in (collector.store / "quarantine").rglob("*") if f.is_file())
    assert kept <= 4 * 2**20


def test_valid_events_from_many_addresses_push_out_no_peer_that_goes_on(collector_of):
    collector = collector_of(sources=SOURCES, more=MORE, executable=True)
    with contextlib.ExitStack() as stack:
        udp = lambda: stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))  # noqa: E731 - short
        honest, sent = udp(), 0
        for n in range(3):
            for number in (2 * n, 2 * n + 1):
                honest.sendto(heph_event(1, number), collector.address("udp"))
                sent += 1
                seen = sent
                until(
                    lambda seen=seen: collector.status()["sources"]["udp"]["seen_events"] >= seen,
                    "the honest event",
                )
            for _ in range(60):
                udp().sendto(heph_event(1, 0), collector.address("udp"))
            sent += 60
    until(lambda: collector.status()["sources"]["udp"]["seen_events"] == sent, "all")
    collector.settle()
    status = collector.status()["sources"]["udp"]
    assert (status["open"], status["missing_events"]) == (50, 0)
    assert status["refused"] == {"too many peers": 181 - 50}


def test_strangers_go_on_in_their_session_after_a_restart(collector_of):
    collector = collector_of(sources=SOURCES, more=MORE, executable=True)
    rng = random.Random(6)
    sent = 0
    for _ in range(2):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for _ in range(3):
                sent += sock.sendto(rng.randbytes(100), collector.address("udp"))
        until(
            lambda: collector.status()["sources"]["udp"]["malformed_bytes"] == sent,  # noqa: B023 - at once
            "the noise",
        )
        collector.stop()
        collector.start()
    collector.settle()
    rows = collector.rows(["kind", "session", "name"])
    assert {row["session"] for row in rows} == {rows[0]["session"]}
    assert [row["name"] for row in rows if row["kind"] == "session"] == ["open"]
