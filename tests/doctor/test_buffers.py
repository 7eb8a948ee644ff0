"""The buffers that sockets of this host really get, against limits that a root directory says there are."""

from __future__ import annotations

import socket

import pytest

from tailrace.doctor import network
from tailrace.doctor.finding import Severity
from tailrace.sources.udp import SMALL_BUFFER, size_buffer
from tests.doctor.hosts import host, only, put, udp


@pytest.fixture
def most():
    """The largest buffer an ordinary user gets here."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return size_buffer(sock, 2**31, force=False)


def test_a_buffer_that_is_granted_is_good(tmp_path):
    finding = only(network.check_buffers(host(root=tmp_path, sources={"a": udp(16 * 1024)})))
    assert finding.severity == Severity.GOOD
    assert finding.figures["granted_bytes"] >= finding.figures["asked_bytes"] == 16 * 1024


def test_one_that_is_not_names_the_sysctl_that_would_grant_it(tmp_path, most):
    asked = 4 * max(most, SMALL_BUFFER)
    finding = only(network.check_buffers(host(root=tmp_path, sources={"a": udp(asked)})))
    assert finding.severity != Severity.GOOD
    assert finding.figures["unprivileged_bytes"] == most
    assert finding.commands == [
        f"sudo sysctl -w net.core.rmem_max={asked // 2}",
        f"echo 'net.core.rmem_max = {asked // 2}' | sudo tee /etc/sysctl.d/60-tailrace-rmem_max.conf",
    ]


def test_one_limit_is_advised_for_all_sources(tmp_path, most):
    asked = 2 * most
    findings = network.check_buffers(
        host(root=tmp_path, sources={"a": udp(asked), "b": udp(2 * asked), "c": udp(4096)})
    )
    commands = [finding.commands[0] for finding in findings if finding.commands]
    assert commands == [f"sudo sysctl -w net.core.rmem_max={asked}"] * 2


def test_no_udp_source_needs_no_buffer(tmp_path):
    put(tmp_path, proc__sys__net__core__netdev_max_backlog="1")
    assert list(network.check_buffers(host(root=tmp_path))) == []


def test_a_buffer_is_a_problem_only_when_it_is_small_and_cannot_be_larger(monkeypatch, tmp_path):
    granted = {"forced": 0, "plain": 0}
    monkeypatch.setattr(
        network,
        "size_buffer",
        lambda sock, asked, force=True: granted["forced" if force else "plain"],
    )

    def judged(forced, plain, asked):
        granted.update(forced=forced, plain=plain)
        found = only(network.check_buffers(host(root=tmp_path, sources={"a": udp(asked)})))
        return found.severity.value

    small = SMALL_BUFFER // 2
    assert judged(small, small, SMALL_BUFFER * 4) == "problem"
    assert judged(SMALL_BUFFER * 4, small, SMALL_BUFFER * 4) == "advice"
    assert judged(SMALL_BUFFER, SMALL_BUFFER, SMALL_BUFFER * 4) == "advice"
    assert judged(small, small, small) == "good"
    assert judged(small // 2, small // 2, small) == "problem"


@pytest.mark.parametrize(
    ("backlog", "softnet", "severity", "dropped"),
    [
        ("1000\n", "0000ff 00000000 00\n0000ff 00000000 00\n", "good", 0),
        ("1000\n", "0000ff 0000000a 00\n0000ff 00000001 00\n", "advice", 11),
        ("300\n", "0000ff 00000000 00\n", "advice", 0),
    ],
)
def test_the_queue_before_the_sockets(tmp_path, backlog, softnet, severity, dropped):
    put(tmp_path, proc__sys__net__core__netdev_max_backlog=backlog, proc__net__softnet_stat=softnet)
    *_, finding = network.check_buffers(host(root=tmp_path, sources={"a": udp()}))
    assert finding.severity.value == severity
    assert finding.figures == {"backlog": int(backlog), "dropped": dropped}
    assert finding.commands[:1] == (
        [] if severity == "good" else ["sudo sysctl -w net.core.netdev_max_backlog=4000"]
    )
