"""Limits of open files: lowered for a process of its own."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest

from tailrace.config.check import OWN
from tailrace.doctor import processes
from tests.cli.command import ENVIRONMENT
from tests.doctor.hosts import host, only, tail, tcp, udp, unix

SCRIPT = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
import msgspec
from tailrace.clock import SystemClock
from tailrace.config.schema import Config, TcpConfig
from tailrace.config.check import OWN
from tailrace.doctor import processes
from tailrace.doctor.machine import Host
sources = {"a": TcpConfig(format="jets", listen="127.0.0.1:0", connections_max=200)}
found = list(processes.check_limits(Host(Config(sources=sources), {}, SystemClock())))
print(msgspec.json.encode(found).decode())
"""
NEEDED = OWN + 201


def found_with(soft, hard):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(soft), str(hard)],
        env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    (finding,) = json.loads(done.stdout)
    assert finding["figures"] == {"needed": NEEDED, "hard": hard}
    return finding


def test_enough_is_good_whatever_the_soft_limit():
    assert found_with(100, NEEDED)["severity"] == "good"


def test_too_little_is_raised_in_the_systems_file():
    finding = found_with(NEEDED - 1, NEEDED - 1)
    assert finding["severity"] == "advice"
    assert f"'* - nofile {NEEDED}' | sudo tee" in finding["commands"][0]


@pytest.mark.parametrize(
    ("source", "descriptors"),
    [
        (udp(), 1),
        (tcp(connections_max=70), 71),
        (unix("/run/x", connections_max=70), 71),
        (tail("/x"), 4096),
    ],
)
def test_what_each_kind_of_source_may_hold(source, descriptors, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (10, 10))
    finding = only(processes.check_limits(host(sources={"a": source})))
    assert finding.figures["needed"] == OWN + descriptors
