"""Limits of open files: lowered for a process of its own."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest

from tailrace.doctor import limits
from tests.cli.command import ENVIRONMENT
from tests.doctor.hosts import host, only, tail, tcp, udp

SCRIPT = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
import msgspec
from tailrace.clock import SystemClock
from tailrace.config.schema import Config, TcpConfig
from tailrace.doctor import limits
from tailrace.doctor.host import Host
sources = {"a": TcpConfig(format="jets", listen="127.0.0.1:0", connections_max=200)}
found = list(limits.check(Host(Config(sources=sources), {}, SystemClock())))
print(msgspec.json.encode(found).decode())
"""
NEEDED = limits.OWN + 201


def found_with(soft, hard):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(soft), str(hard)],
        env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=30,
    )  # fmt: skip
    (finding,) = json.loads(done.stdout)
    assert finding["figures"] == {"needed": NEEDED, "soft": soft, "hard": hard}
    return finding


def test_enough_is_good():
    assert found_with(NEEDED, NEEDED)["severity"] == "good"


def test_a_limit_that_this_user_may_raise_is_raised_in_the_shell():
    finding = found_with(NEEDED - 1, NEEDED)
    assert finding["severity"] == "problem"
    assert finding["commands"][0].startswith(f"ulimit -n {NEEDED} ")


def test_one_that_only_root_may_raise_is_raised_in_the_systems_file():
    finding = found_with(NEEDED - 1, NEEDED - 1)
    assert finding["severity"] == "problem"
    assert f"'* - nofile {NEEDED}' | sudo tee" in finding["commands"][0]


def test_followed_files_are_held_to_half_and_never_exhaust_it(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, 1024))
    finding = only(limits.check(host(sources={"a": tail("/x")})))
    assert (finding.severity.value, finding.figures["needed"]) == ("advice", limits.OWN + 4096)
    finding = only(limits.check(host(sources={"a": tail("/x"), "b": tail("/y")})))
    assert finding.severity.value == "problem"


@pytest.mark.parametrize(
    ("source", "descriptors"),
    [
        (udp(), 1),
        (tcp(connections_max=70), 71),
        (tail("/x"), 4096),
    ],
)
def test_what_each_kind_of_source_may_hold(source, descriptors):
    finding = only(limits.check(host(sources={"a": source})))
    assert finding.figures["needed"] == limits.OWN + descriptors
