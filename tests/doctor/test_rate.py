"""The rate probe: a real child sends, the real receive loop reads."""

from __future__ import annotations

import logging
import socket

import pytest

from tailrace.clock import SystemClock
from tailrace.doctor import network
from tailrace.doctor.network import RateStep
from tailrace.sources.udp import size_buffer
from tests.doctor.hosts import host, only, udp


@pytest.fixture
def gentle(monkeypatch):
    """Rates that any machine manages."""
    monkeypatch.setattr(network, "RATES", (1000, 2000))


async def test_what_is_sent_slowly_arrives(gentle):
    steps = await network.measure(udp(2**20), SystemClock())
    assert steps
    for step in steps:
        assert step.received == step.sent >= 1000 * network.STEP_SECONDS


async def test_what_does_not_fit_the_buffer_is_seen_to_be_lost(monkeypatch):
    """The sender hands the kernel more at a time than this buffer holds."""
    monkeypatch.setattr(network, "RATES", (400_000, 400_000))
    monkeypatch.setattr(network, "STEP_SECONDS", 0.005)
    (step,) = await network.measure(udp(2304), SystemClock())
    assert 0 < step.received < step.sent


async def test_a_small_buffer_is_not_warned_of_and_its_own_address_is_used(
    gentle, caplog, monkeypatch
):
    def granted(sock, asked, force=True):
        return size_buffer(sock, min(asked, 2**20), force=False)

    monkeypatch.setattr(network, "size_buffer", granted)
    monkeypatch.setattr("tailrace.sources.udp.size_buffer", granted)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.settimeout(0)
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with caplog.at_level(logging.WARNING):
            assert await network.measure(udp(2**40, listen), SystemClock())
        with pytest.raises(BlockingIOError):
            taken.recv(1)
    assert caplog.records == []


async def test_a_sender_that_dies_leaves_what_was_measured(monkeypatch, tmp_path):
    broken = tmp_path / "sending.py"
    broken.write_text("raise SystemExit(1)\n")
    monkeypatch.setattr(network.sender, "__file__", str(broken))
    assert await network.measure(udp(2**20), SystemClock()) == []


@pytest.mark.parametrize(
    ("steps", "severity", "best", "lost"),
    [
        ([RateStep(100, 100, 25_000.0), RateStep(200, 200, 60_000.4)], "good", 60_000, 0),
        ([RateStep(100, 100, 25_000.0), RateStep(200, 150, 60_000.0)], "advice", 25_000, 50),
        ([RateStep(100, 100, 60_000.0), RateStep(200, 150, 90_000.0)], "good", 60_000, 50),
        ([RateStep(100, 99, 25_000.0)], "advice", 0, 1),
    ],
)
def test_what_is_said_of_the_steps(steps, severity, best, lost):
    finding = network.judge_rate("a", steps)
    assert finding.severity.value == severity
    assert finding.figures == {"datagrams_per_second": best, "lost": lost}
    assert f"{best:,} datagrams" in finding.what


def test_a_host_that_cannot_be_measured_is_no_problem():
    assert network.judge_rate("a", []).severity == "good"


def test_the_source_with_the_smallest_buffer_decides(monkeypatch):
    asked = []

    async def measure(config, clock):
        asked.append(int(config.receive_buffer))
        return []

    monkeypatch.setattr(network, "measure", measure)
    only(network.check_rate(host(sources={"a": udp(9000), "b": udp(8000)})))
    assert asked == [8000]
    assert list(network.check_rate(host())) == []
