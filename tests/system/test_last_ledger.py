"""The last ledger counts what the views count: names that no file has, and events that two files have. While the
collector runs, only an upper bound for the number of lost names is known.
"""

from __future__ import annotations

import gzip
import json
import shutil

import pytest

from tests import program, toml
from tests.decoding.test_conformance import VECTORS
from tests.ingest.log import heph_event
from tests.metrics.scrape import Scrape
from tests.query.asking import ask
from tests.system.collector import Collector, until

TRACES = VECTORS / "dftracer/traces"
LINES = gzip.decompress((TRACES / "v220_py_plain.pfw.gz").read_bytes()).splitlines(keepends=True)
NAME = next(line for line in LINES if b'data/f0.bin"' in line and b'"FH"' in line)


@pytest.fixture(params=["lost", "there"])
def collector(request, tmp_path):
    """A collector that follows a trace from which the name of a file is gone, or nothing."""
    (tmp_path / "runs").mkdir()
    lines = [line for line in LINES if request.param == "there" or line != NAME]
    (tmp_path / "runs/a.pfw").write_bytes(b"".join(lines))
    source = toml.source("runs", "tail", "dftracer", paths=[tmp_path / "runs"])
    collector = Collector(tmp_path, sources=source)
    collector.lost = int(request.param == "lost")
    collector.words = "1 name missing" if collector.lost else "0 missing\n"
    yield collector
    collector.stop()


def asked(collector):
    """The number of names that are asked for, as /status and the metric of a running collector state it."""

    def stated():
        return collector.status()["sources"]["runs"]["asked_names"]

    status, before = stated(), None
    while status != before:  # the number changed between the two requests
        [sample] = Scrape(collector.metrics()).families["tailrace_ledger_asked_names"]
        status, before = stated(), status
    assert (sample.labels, sample.value) == ({"source": "runs"}, status)
    return status


def rest(collector, *options):
    """Run `serve --rest`, and return what it prints."""
    command = [*collector.command(), "--rest", *options]
    return program.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def last(collector):
    """The numbers of names that are asked for and that are missing, as the last line of `serve --rest --json` has it."""
    figures = json.loads(rest(collector, "--json"))
    return figures["sources"]["runs"]["asked_names"], figures["missing_names"]["runs"]


def lost(collector):
    """The number of missing names, as the views, the list of streams and the list of gaps count it."""
    views = "SELECT coalesce(sum(missing), 0)::BIGINT FROM {}"
    [counts] = {ask(collector.store, views.format(view))[0] for view in ("sessions", "streams")}
    gaps = collector.cli("gaps", "--json").stdout.splitlines()
    assert counts == (sum(json.loads(gap)["of"] == "name" for gap in gaps),)
    complete = collector.cli("streams", "--complete-only").returncode == 0
    assert complete == (counts == (0,))
    return counts[0]


def test_a_stopped_collector_counts_lost_names(collector):
    collector.start()
    until(lambda: collector.status()["sources"]["runs"]["seen_events"] == 98, "the events")
    collector.stop()
    assert collector.words in collector.log()
    collector.start()
    assert collector.stop().count(collector.words) == 2


def test_serve_rest_counts_lost_names(collector):
    assert collector.words in rest(collector)


def test_the_last_json_counts_lost_names(collector):
    assert last(collector) == (collector.lost, collector.lost)
    assert lost(collector) == collector.lost


def test_a_running_collector_counts_the_names_that_have_not_come(collector):
    collector.start()
    until(lambda: collector.status()["sources"]["runs"]["seen_events"] == 98, "the events")
    assert asked(collector) == collector.lost
    collector.settle()
    collector.kill()
    collector.start()
    until(lambda: collector.status()["state"] == "ok", "the replay")
    assert asked(collector) == collector.lost
    with (collector.store.parent / "runs/a.pfw").open("ab") as file:
        file.write(NAME)
    until(lambda: asked(collector) == 0, "the name")
    collector.stop()
    assert "0 missing\n" in collector.log()
    assert lost(collector) == 0


@pytest.mark.parametrize("collector", ["lost"], indirect=True)
def test_a_file_that_is_gone_has_lost_its_names(collector):
    """The session is closed, and the next run of the collector opens no session."""
    collector.start()
    until(lambda: collector.status()["sources"]["runs"]["seen_events"] == 98, "the events")
    (collector.store.parent / "runs/a.pfw").unlink()
    until(lambda: collector.status()["sources"]["runs"]["sessions_closed"] == 1, "the end")
    assert asked(collector) == 1
    collector.stop()
    collector.start()
    assert asked(collector) == 1
    assert collector.stop().count(collector.words) == 2
    assert lost(collector) == 1


def test_names_in_the_file_of_a_parent_are_asked_for_and_not_lost(tmp_path):
    child, parent = (TRACES / f"v220_{n}.pfw.gz" for n in ("fork_undefined_hash", "fork_parent"))
    (tmp_path / "runs").mkdir()
    source = toml.source("runs", "tail", "dftracer", paths=[tmp_path / "runs"])
    collector = Collector(tmp_path, sources=source)
    shutil.copy(child, tmp_path / "runs")
    alone, missing = last(collector)
    assert alone == missing == lost(collector) > 0
    shutil.copy(parent, tmp_path / "runs")
    both, missing = last(collector)
    assert both >= alone
    assert missing == lost(collector) == 0


def test_names_that_another_collector_of_the_store_lacks_are_missing(tmp_path):
    """Both have a source `runs`, and only the first has read a file without a name."""
    lacking = b"".join(line for line in LINES if line != NAME)
    whole = gzip.decompress((TRACES / "v220_multiprocess_parent.pfw.gz").read_bytes())
    found = []
    for name, content in (("first", lacking), ("second", whole)):
        runs = tmp_path / name / "runs"
        runs.mkdir(parents=True)
        (runs / "a.pfw").write_bytes(content)
        source = toml.source("runs", "tail", "dftracer", paths=[runs])
        collector = Collector(tmp_path / name, sources=source, store=tmp_path / "store", name=name)
        found.append(last(collector))
    assert found == [(1, 1), (0, 1)]


def test_what_an_unreadable_store_does_not_tell_is_unknown(collector):
    """Another collector may have stored events of the source that ask for names."""
    (collector.store.parent / "runs/b.pfw").write_bytes(NAME)
    collector.start()
    until(lambda: collector.status()["sources"]["runs"]["seen_events"] == 98, "the events")
    collector.settle()
    for file in collector.store.rglob("*.parquet"):
        file.write_bytes(bytes(file.stat().st_size))
    ledger = collector.stop()
    assert "0 missing, and an unknown number of names missing that they ask for\n" in ledger
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
    assert "views leave out its 19 events" in rest(collector)
    assert ask(collector.store, "SELECT sum(events), sum(missing) FROM streams") == [(49, 1)]
