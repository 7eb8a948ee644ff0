"""The memory that each way to run a collector gives it is one and the same, and the daemon lives in it."""

from __future__ import annotations

import configparser
import contextlib
import logging
import re
import socket
from pathlib import Path

import pytest
import yaml

from tailrace.config.schema import Config, TailConfig
from tailrace.daemon import service
from tailrace.daemon.memory import bounds
from tailrace.decoding.formats import FORMATS
from tailrace.errors import MemoryLimitError
from tests.ingest.log import heph_event
from tests.system.collector import Collector, until
from tests.system.memory_limit import MemoryLimit
from tests.system.test_attacks import Honest, figures

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = ("tailrace.service", "tailrace@.service", "user.service")
MIB = 2**20
SIZES = {"k": 2**10, "m": MIB, "g": 2**30}
SOURCES = """
[sources.heph_tcp]
type = "tcp"
format = "heph"
listen = "127.0.0.1:0"

[sources.jets_tcp]
type = "tcp"
format = "jets"
listen = "127.0.0.1:0"
"""


def size(text):
    """Bytes of 896M, 1g or 1Gi, which all three take for powers of two."""
    number, unit = re.fullmatch(r"(\d+)([kKmMgG])i?", text).groups()
    return int(number) * SIZES[unit.lower()]


def unit(name):
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(DEPLOY / "systemd" / name)
    return parser["Service"]


def container():
    daemonset = yaml.safe_load((DEPLOY / "kubernetes/daemonset.yaml").read_text())
    (found,) = daemonset["spec"]["template"]["spec"]["containers"]
    return found["resources"]


def composed():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["tailrace"]


def given():
    """The limit of each way, in bytes."""
    found = {name: size(unit(name)["MemoryMax"]) for name in UNITS}
    found["daemonset"] = size(container()["limits"]["memory"])
    found["compose"] = size(composed()["mem_limit"])
    return found


def test_all_ways_give_the_same():
    assert set(given().values()) == {2**30}
    assert "1 GiB of memory" in (DEPLOY / "README.md").read_text()
    assert "1 GiB" in (DEPLOY.parent / "docs/OPERATING.md").read_text()


@pytest.mark.parametrize("format_", FORMATS)
def test_two_sources_of_files_fit_into_it(format_):
    files = TailConfig(format=format_, paths=["/x"])
    parts = bounds(Config(sources={"one": files, "other": files}))
    assert sum(part.bytes for part in parts) <= min(given().values())


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_slows_the_collector_down_before_it_is_killed(name):
    assert size(unit(name)["MemoryMax"]) * 0.8 < size(unit(name)["MemoryHigh"]) < 2**30


def test_what_is_asked_for_is_within_the_limit():
    assert size(container()["requests"]["memory"]) == size(composed()["mem_reservation"])
    assert size(container()["requests"]["memory"]) < 2**30


@pytest.fixture
def limit():
    limit = MemoryLimit()
    yield limit
    limit.close()


def test_the_defaults_live_in_it_whatever_is_never_finished(tmp_path, limit):
    """More than the `pending_max` of each source, with no key set, in a control group of that size."""
    limit.set(min(given().values()))
    collector = Collector(tmp_path, sources=SOURCES, before=limit.enter).start()
    parts = {
        "heph_tcp": heph_event(7, 0, attributes=bytes(MIB - 100))[:-1],
        "jets_tcp": b'{"type":"' + b"x" * (MIB - 20),
    }
    try:
        with Honest(collector, "heph_tcp") as honest:
            with contextlib.ExitStack() as stack:
                for _ in range(80):
                    for source, part in parts.items():
                        address = collector.address(source)
                        sock = stack.enter_context(socket.create_connection(address))
                        with contextlib.suppress(OSError):
                            sock.sendall(part)
                    honest.send()
                for source in parts:
                    until(
                        lambda source=source: figures(collector, source)["gave_way"] >= 14,
                        f"records of {source} to give way",
                    )
            _, missing = honest.check()
        assert not missing
        collector.check_balance()
        collector.stop()
        assert collector.process.returncode == 0
    finally:
        collector.end()


@pytest.mark.parametrize("managed", [True, False])
def test_a_start_that_does_not_fit_waits_where_it_would_be_made_again(managed, caplog, monkeypatch):
    monkeypatch.setattr(service, "PATIENCE_SECONDS", 0.01)
    caplog.set_level(logging.CRITICAL)
    with pytest.raises(MemoryLimitError), service.patience(managed=managed):
        raise MemoryLimitError("too large")
    assert ("too large" in caplog.text) == managed
