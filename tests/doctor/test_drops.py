"""Counters of drops, from tables as the kernel prints them and from a real socket."""

from __future__ import annotations

import socket

import pytest

from tailrace.doctor import network
from tailrace.store.presence import RunningCollector
from tests.doctor.hosts import host, only, put, severities, udp

SNMP = """\
Ip: Forwarding DefaultTTL
Ip: 1 64
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors
Udp: 1966 50 1979 3996 {} 0
"""
SNMP6 = "Udp6InDatagrams                 \t5\nUdp6RcvbufErrors\t{}\nUdpLite6RcvbufErrors\t900\n"


def test_a_host_that_dropped_nothing_is_good(tmp_path):
    put(tmp_path, proc__net__snmp=SNMP.format(0), proc__net__snmp6=SNMP6.format(0))
    finding = only(network.check_drops(host(root=tmp_path, sources={"a": udp()})))
    assert finding.severity.value == "good"
    assert finding.figures == {"received": 1971, "dropped": 0}


def test_drops_of_both_protocols_are_added_up(tmp_path):
    put(tmp_path, proc__net__snmp=SNMP.format(1979), proc__net__snmp6=SNMP6.format(21))
    finding = only(network.check_drops(host(root=tmp_path, sources={"a": udp()})))
    assert finding.severity.value == "advice"
    assert "2,000 datagrams" in finding.what


def test_what_the_kernel_does_not_say_is_not_known(tmp_path):
    finding = only(network.check_drops(host(root=tmp_path, sources={"a": udp()})))
    assert "does not report" in finding.what
    assert finding.figures == {}


def test_nothing_is_said_without_udp(tmp_path):
    put(tmp_path, proc__net__snmp=SNMP.format(7))
    assert list(network.check_drops(host(root=tmp_path))) == []


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_drops_of_the_daemons_own_socket_are_a_problem(family, address):
    """Real ones: sent to a socket that nobody reads. Its neighbour's are not its own."""
    with (
        socket.socket(family, socket.SOCK_DGRAM) as full,
        socket.socket(family, socket.SOCK_DGRAM) as idle,
        socket.socket(family, socket.SOCK_DGRAM) as sender,
    ):
        try:
            for sock in (full, idle):
                sock.bind((address, 0))
        except OSError:
            pytest.skip(f"no {address} here")
        full.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(100):
            sender.sendto(bytes(500), full.getsockname())
        arrived = drain(full)
        named = {"full": full, "idle": idle, "gone": None}
        daemon = RunningCollector(
            1, {n: f"[x]:{s.getsockname()[1]}" if s else "" for n, s in named.items()}
        )
        found = list(
            network.check_drops(host(sources=dict.fromkeys(named, udp()))._replace(daemon=daemon))
        )
    assert severities(found[:2]) == ["problem", "good"]
    assert found[0].figures == {"dropped": 100 - arrived}
    assert found[0].commands == [
        "export TAILRACE_SOURCES_FULL_RECEIVE_BUFFER='64 KiB'"
        "  # or receive_buffer in [sources.full] of the file"
    ]
    assert len(found) == 3, "nothing of a source that does not listen"


def drain(sock):
    sock.settimeout(0)
    count = 0
    try:
        while sock.recv(1000):
            count += 1
    except BlockingIOError:
        return count
