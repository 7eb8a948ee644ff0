"""Perfetto, Chrome and OTLP read back, against the same question in SQL over the views."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.export.drawn import READERS, asked, gaps_asked, of_chrome, of_perfetto
from tests.export.exports import make_export
from tests.export.traces import EPOCH, crowds, stores
from tests.query.tables import SECOND, clocked, make, row, session
from tests.reading.stores import EPOCH as MORNING

MANY = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
FEW = settings(MANY, max_examples=2)
"""Each example makes a table and exports it three times, which takes 1.3 s of CPU: so few of them have many stores. CI runs
both."""


@FEW
@given(rows=crowds())
def test_what_is_drawn_is_what_the_views_have(rows):
    compare(rows)


@pytest.mark.slow
@MANY
@given(rows=stores())
def test_so_it_is_of_many_stores(rows):
    compare(rows)


def compare(rows):
    with tempfile.TemporaryDirectory() as directory:
        half = len(rows) // 2
        store = make(Path(directory) / "store", rows[:half], rows[half:])
        wanted = asked(store)
        if not wanted:
            return
        missing = gaps_asked(store)
        for to, read in READERS.items():
            path = Path(directory) / f"trace.{to}"
            exported = make_export(store, to, path)
            found = read(path)
            lost = Counter({each: n for each, n in found.items() if each.kind == "lost"})
            assert (found - lost) - wanted == wanted - (found - lost) == Counter(), to
            named = Counter()
            for each, count in lost.items():
                named[each.source, each.session, each.stream, each.name] += count
                assert each.length is not None
                assert each.length >= 0
            assert named <= missing
            unplaced = exported.left["gap without a place in time"]
            assert missing.total() - named.total() == unplaced


@pytest.mark.parametrize("to", READERS)
@pytest.mark.parametrize(
    ("filters", "matches"),
    [
        ({"source": "files"}, lambda d: d.source == "files"),
        ({"session": "a", "stream": ["0", 2]}, lambda d: d.session[0] == "a" and d.stream in "02"),
        ({"since": "2026-11-21 08:30Z"}, lambda d: d.session != "aa"),
        (
            {"since": "2026-11-21 08:00:02Z", "until": "2026-11-21 09:00:05Z"},
            lambda d: 2 * SECOND <= d.begin - MORNING < 3605 * SECOND,
        ),
    ],
)  # fmt: skip
def test_what_is_drawn_is_what_is_selected(varied_store, tmp_path, to, filters, matches):
    make_export(varied_store, to, tmp_path / "trace", **filters)
    found = {each: n for each, n in READERS[to](tmp_path / "trace").items() if each.kind != "lost"}
    wanted = {each: n for each, n in asked(varied_store).items() if matches(each)}
    assert found == wanted
    assert found


@pytest.fixture
def store(tmp_path):
    """Spans that nest, overlap, touch and stay open, in nanoseconds from EPOCH on."""
    spans = [(0, 100), (0, 40), (10, 40), (20, 60), (40, 40), (40, 41), (100, 110), (105, None)]
    rows = [
        row("begin" if end is None else "span", name=f"{start}-{end}", start=start, end=end, offset=n, id=n)
        for n, (start, end) in enumerate(spans)
    ]  # fmt: skip
    return make(tmp_path / "store", [session("open", opened=1), clocked(epoch=EPOCH), *rows])


@pytest.mark.parametrize(("to", "read"), [("perfetto", of_perfetto), ("chrome", of_chrome)])
def test_spans_keep_their_times_however_they_overlap(store, tmp_path, to, read):
    make_export(store, to, tmp_path / "trace")
    found = {each.name: (each.begin - EPOCH, each.length) for each in read(tmp_path / "trace")}
    assert found == {
        "0-100": (0, 100), "0-40": (0, 40), "10-40": (10, 30), "20-60": (20, 40), "40-40": (40, 0),
        "40-41": (40, 1), "100-110": (100, 10), "105-None": (105, None),
    }  # fmt: skip


def test_names_of_any_number_and_size_are_interned(tmp_path, monkeypatch):
    monkeypatch.setattr("tailrace.export.perfetto.TABLE_BYTES", 2000)
    rows = [row(name=f"name {n}" * 20, start=n, end=n, offset=n) for n in range(100)]
    store = make(tmp_path / "store", [clocked(epoch=EPOCH), *rows])
    make_export(store, "perfetto", tmp_path / "trace")
    assert of_perfetto(tmp_path / "trace") == asked(store)


def test_clocks_are_said_plainly(tmp_path):
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    rows = []
    clocks = {
        "w": {"epoch": EPOCH}, "m": {}, "l": {"ticks_per_second": None},
        "s": {"ticks_per_second": 1e-304}, "f": {"ticks_per_second": 1e300},
    }  # fmt: skip
    for name, facts in clocks.items():
        rows += [session("open", opened=EPOCH, session=name), clocked(session=name, **facts)]
        rows += [row(name="step", start=7 * SECOND, end=8 * SECOND, session=name)]
    make_export(make(tmp_path / "store", rows), "perfetto", tmp_path / "trace")
    trace = Trace.FromString((tmp_path / "trace").read_bytes())
    labels = {
        packet.track_descriptor.process.process_name: packet.track_descriptor.process.process_labels[
            0
        ]
        for packet in trace.packet
        if packet.track_descriptor.HasField("process")
    }
    assert labels == {
        "sim · w": "heph; wall time",
        "sim · m": "heph; clk clock without wall time: drawn from its arrival on",
        **dict.fromkeys(
            ["sim · l", "sim · s", "sim · f"],
            "heph; clk clock without wall time: from its arrival on, a tick is drawn as 1 ns",
        ),
    }
    begins = {each.session: each.begin - EPOCH for each in of_perfetto(tmp_path / "trace")}
    assert begins == {"w": 7 * SECOND, "m": 0, "l": 0, "s": 0, "f": 0}


def test_what_is_missing_is_in_chromes_metadata(store, tmp_path):
    import json

    make_export(store, "chrome", tmp_path / "trace")
    about = json.loads((tmp_path / "trace").read_bytes())["otherData"]
    assert about["base_unix_ns"] == EPOCH
    assert about["missing"] == "nothing is known to be missing"
    assert about["completeness"]["complete"] is True
