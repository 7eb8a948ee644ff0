"""The last ledger counts what the views count: names that no file has, and events that two files have."""

from __future__ import annotations

import gzip

import pytest

from tests import program, toml
from tests.decoding.test_conformance import VECTORS
from tests.ingest.log import heph_event
from tests.query.asking import ask
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
    collector.start()
    assert collector.stop().count(collector.words) == 2


def test_serve_rest_counts_lost_names(collector):
    done = program.run(
        [*collector.command(), "--rest"], capture_output=True, text=True, timeout=120, check=True
    )
    assert collector.words in done.stdout


@pytest.mark.parametrize("collector", ["there"], indirect=True)
def test_what_an_unreadable_store_does_not_tell_is_unknown(collector):
    (collector.store.parent / "runs/b.pfw").write_bytes(NAME)
    collector.start()
    until(lambda: collector.status()["sources"]["runs"]["seen_events"] == 98, "the events")
    collector.settle()
    for file in collector.store.rglob("*.parquet"):
        file.write_bytes(bytes(file.stat().st_size))
    ledger = collector.stop()
    assert "0 missing, and an unknown number of names missing that they ask for" in ledger
    assert "it is unknown how many files in the store have the content of other files" in ledger


def test_the_ledger_counts_events_that_the_views_leave_out_as_copies(tmp_path):
    """A plain and a packed file of one content, and one of another content."""
    lost = b"".join(heph_event(0, number) for number in range(20) if number != 7)
    (tmp_path / "runs/a").mkdir(parents=True)
    (tmp_path / "runs/b").mkdir()
    (tmp_path / "runs/a/run.bin.trace").write_bytes(lost)
    (tmp_path / "runs/b/run.bin.trace.gz").write_bytes(gzip.compress(lost))
    (tmp_path / "runs/other.bin.trace").write_bytes(b"".join(heph_event(1, n) for n in range(30)))
    collector = Collector(
        tmp_path, sources=toml.source("runs", "tail", "heph", paths=[tmp_path / "runs"])
    )
    collector.start()
    until(lambda: collector.status()["sources"]["runs"]["seen_events"] == 68, "the events")
    ledger = collector.stop()
    assert "events: 70 expected, 68 seen, 0 of them duplicates, 2 missing" in ledger
    assert (
        "copies: 1 file in the store has the content of another file; views leave out its 19 events"
        in ledger
    )
    assert ask(collector.store, "SELECT sum(events), sum(missing) FROM streams") == [(49, 1)]
    collector.start()
    again = collector.stop().removeprefix(ledger)
    assert "views leave out its 19 events" in again
