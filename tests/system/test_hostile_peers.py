"""Peers that misbehave cost themselves; beside each an honest one loses nothing."""

from __future__ import annotations

import contextlib
import json
import random
import resource
import socket
import struct

import pytest

from tests import toml
from tests.ingest.log import heph_event
from tests.system.announcing import connected
from tests.system.collector import until

CONNECTIONS = """
format = "heph"
connections_max = 5
connections_per_peer_max = 4
idle_timeout = "1 s"
record_timeout = "1 s"
garbage_max = "64 KiB"
"""
UDP = toml.source("udp", "udp", peers_max=4)

both = pytest.mark.parametrize("source", ["tcp", "unix"])


@pytest.fixture
def limited(collector_of, tmp_path):
    tcp = f'[sources.tcp]\ntype = "tcp"\nlisten = "127.0.0.1:0"{CONNECTIONS}'
    unix = f'[sources.unix]\ntype = "unix"\nlisten = "{tmp_path}/heph.sock"{CONNECTIONS}'
    return collector_of(sources=tcp + unix + UDP)


def connect(collector, source="tcp"):
    return connected(collector, source)


def closed_by_peer(sock):
    sock.settimeout(30)
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def refused(collector, source="tcp"):
    return collector.status()["sources"][source]["refused"]


def close_reasons(collector):
    collector.settle()
    import json

    rows = collector.rows()
    return [json.loads(row["attributes"])["closed"] for row in rows if row["name"] == "close"]


@both
def test_a_silent_connection_is_closed(limited, source):
    with connect(limited, source) as sock:
        sock.sendall(heph_event(1, 0))
        assert closed_by_peer(sock)
    assert refused(limited, source) == {"idle": 1}


@both
def test_a_slow_loris_is_closed_while_it_still_sends(limited, source):
    with connect(limited, source) as sock:
        whole = heph_event(1, 0, name=b"x" * 5000)
        sock.settimeout(0.2)
        ended = False
        for byte in whole[:200]:
            try:
                sock.send(bytes([byte]))
                ended = sock.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
            if ended:
                break
        assert ended
    assert refused(limited, source) == {"slow": 1}


@both
def test_connections_past_the_limit_are_refused_and_counted(limited, source):
    socks = [connect(limited, source) for _ in range(6)]
    try:
        assert all(closed_by_peer(sock) for sock in socks[4:])
        socks[0].sendall(heph_event(1, 0))
        until(lambda: limited.status()["sources"][source]["seen_events"] == 1, "the honest event")
        each = {"tcp": "address", "unix": "user"}[source]
        assert refused(limited, source)[f"too many connections from one {each}"] == 2
    finally:
        for sock in socks:
            sock.close()


@both
def test_a_peer_that_sends_garbage_is_cut_off_and_an_honest_one_is_untouched(limited, source):
    noise = random.Random(1).randbytes(300_000)
    with connect(limited, source) as honest, connect(limited, source) as noisy:
        honest.sendall(b"".join(heph_event(1, n) for n in range(50)))
        with contextlib.suppress(ConnectionError):
            noisy.sendall(noise)
        assert closed_by_peer(noisy)
        honest.sendall(b"".join(heph_event(1, n) for n in range(50, 100)))
        until(
            lambda: limited.status()["sources"][source]["seen_events"] >= 100, "all honest events"
        )
    assert "garbage" in close_reasons(limited)
    spans = [row for row in limited.rows() if row["kind"] == "span" and row["name"] == "work"]
    assert sorted(row["seq"] for row in spans) == list(range(100))
    assert len([row for row in limited.rows() if row["kind"] == "gap"]) < 100
    assert (limited.store / "quarantine").exists()


def test_a_reset_connection_ends_its_session_with_the_reason(limited):
    sock = connect(limited)
    sock.sendall(heph_event(1, 0) + heph_event(1, 1)[:20])
    until(lambda: limited.status()["sources"]["tcp"]["seen_events"] == 1, "the event")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    until(lambda: limited.status()["sources"]["tcp"]["sessions_closed"] == 1, "the session's end")
    assert close_reasons(limited) == ["reset: ECONNRESET"]
    gaps = [row for row in limited.rows() if row["kind"] == "gap"]
    details = [json.loads(row["attributes"])["detail"] for row in gaps]
    assert details == ["truncated", "cut"]


def test_datagram_peers_past_the_limit_push_out_the_one_silent_longest(limited):
    socks = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(6)]
    try:
        for number, sock in enumerate(socks):
            sock.sendto(heph_event(1, 0), limited.address("udp"))
            until(
                lambda number=number: (
                    limited.status()["sources"]["udp"]["seen_events"] == number + 1
                ),
                "each event",
            )
        status = limited.status()["sources"]["udp"]
        assert (status["open"], status["refused"]) == (4, {"too many peers": 2})
    finally:
        for sock in socks:
            sock.close()


def test_datagrams_of_noise_leave_an_honest_peer_untouched(limited):
    rng = random.Random(2)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as honest,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as noisy,
    ):
        for n in range(200):
            honest.sendto(heph_event(1, n), limited.address("udp"))
            noisy.sendto(rng.randbytes(rng.randrange(1400)), limited.address("udp"))
        until(lambda: limited.status()["sources"]["udp"]["seen_events"] >= 200, "the honest events")
    assert limited.status()["sources"]["udp"]["missing_events"] == 0


def test_connections_leave_the_process_the_descriptors_it_needs(collector):
    with contextlib.ExitStack() as stack:
        honest = stack.enter_context(connect(collector))
        honest.sendall(heph_event(1, 0))
        resource.prlimit(collector.process.pid, resource.RLIMIT_NOFILE, (128, 128))
        for _ in range(200):
            stack.enter_context(connect(collector))
        until(lambda: refused(collector).get("out of descriptors", 0) > 100, "connections refused")
        honest.sendall(heph_event(1, 1))
        until(
            lambda: collector.status()["sources"]["tcp"]["seen_events"] == 2,
            "the honest peer's event",
        )
        collector.settle()
