"""The last ledger counts names that events ask for and no file has, however the collector ends."""

from __future__ import annotations

import gzip

import pytest

from tests import program, toml
from tests.decoding.test_conformance import VECTORS
from tests.system.collector import Collector, until

LINES = gzip.decompress((VECTORS / "dftracer/traces/v220_py_plain.pfw.gz").read_bytes()).splitlines(
    keepends=True
)
NAME = next(line for line in LINES if b'data/f0.bin"' in line and b'"FH"' in line)


@pytest.fixture(params=["lost", "there"])
def collector(request, tmp_path):
    """A collector that follows a trace from which the name of a file is gone, or nothing."""
    (tmp_path / "runs").mkdir()
    lines = [line for line in LINES if request.param == "there" or line != NAME]
    (tmp_path / "runs/a.pfw").write_bytes(b"".join(lines))
    source = toml.source("runs", "tail", "dftracer", paths=[tmp_path / "runs"])
    collector = Collector(tmp_path, sources=source)
    collector.words = "1 name missing" if request.param == "lost" else "0 missing\n"
    yield collector
    collector.stop()


def test_a_stopped_collector_counts_lost_names(collector):
    collector.start()
    until(lambda: collector.status()["sources"]["runs"]["seen_events"] == 98, "the events")
    collector.stop()
    assert collector.words in collector.log()


def test_serve_rest_counts_lost_names(collector):
    done = program.run(
        [*collector.command(), "--rest"], capture_output=True, text=True, timeout=120, check=True
    )
    assert collector.words in done.stdout
