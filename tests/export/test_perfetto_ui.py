"""All five formats in the real Perfetto: no import error, no loss of data, and every slice."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.export.drawn import asked, gaps_asked
from tests.export.exports import EACH_FORMAT, make_export
from tests.export.perfetto_ui import perfetto


@pytest.fixture(scope="module")
def opened():
    with perfetto() as page:
        yield page


@pytest.fixture(scope="module", params=["perfetto", "chrome"])
def loaded(opened, demo_store, tmp_path_factory, request):
    """Perfetto with the demonstration, exported to one format. A load takes seconds."""
    path = tmp_path_factory.mktemp("demo") / f"{request.param}.trace"
    make_export(demo_store, request.param, path, source=EACH_FORMAT)
    opened.load(path)
    return opened


@pytest.fixture(scope="module")
def wanted(demo_store):
    """Return all that has to be drawn."""
    return Counter({each: n for each, n in asked(demo_store).items() if each.source in EACH_FORMAT})


def test_the_demonstration_opens_in_perfetto_whole(loaded, demo_store, wanted):
    assert loaded.losses() == []

    counts = {kind: sum(n for d, n in wanted.items() if d.kind == kind) for kind in ("span", "instant", "counter")}  # fmt: skip
    still_open = sum(n for d, n in wanted.items() if d.kind == "span" and d.length is None)
    lost = sum(n for each, n in gaps_asked(demo_store).items() if each[0] in EACH_FORMAT)
    assert min(*counts.values(), still_open, lost) > 0
    (slices,) = loaded.query(
        "SELECT count(*) AS slices, sum(name GLOB 'LOST *') AS lost, sum(dur = -1) AS still_open FROM slice"
    )
    summary = 1
    assert slices == {
        "slices": str(counts["span"] + counts["instant"] + lost + summary),
        "lost": str(lost),
        "still_open": str(still_open),
    }
    assert loaded.query("SELECT count(*) AS points FROM counter") == [{"points": str(counts["counter"])}]  # fmt: skip


@pytest.mark.parametrize("loaded", ["perfetto"], indirect=True)
def test_times_are_exact_in_perfetto(loaded, wanted):
    """Perfetto gives whole nanoseconds since 1970, as text, since no double of JavaScript holds them."""
    rows = loaded.query("SELECT name, CAST(ts AS TEXT) AS ts, dur FROM slice WHERE dur > 0 AND name NOT GLOB 'LOST *'")  # fmt: skip
    found = sorted((each["name"], int(each["ts"]), int(each["dur"])) for each in rows)
    assert found == sorted((d.name, d.begin, d.length) for d in wanted.elements() if d.length)


def test_processes_and_threads_have_names_and_their_own_ids(loaded):
    processes = loaded.query("SELECT CAST(pid AS TEXT) AS pid, name FROM process WHERE pid IN (4000, 4100) ORDER BY pid")  # fmt: skip
    assert [(each["pid"], each["name"]) for each in processes] == [
        ("4000", "dftracer_tail · python3 train.py · process 4000"),
        ("4100", "ovni_tail · process 4100"),
    ]
    threads = loaded.query(
        "SELECT thread.name AS name, CAST(tid AS TEXT) AS tid FROM thread JOIN process USING (upid)"
        " WHERE pid = 4100 AND tid >= 4100 ORDER BY tid LIMIT 3"
    )
    assert [(each["tid"], each["name"]) for each in threads] == [
        ("4100", "main thread"), ("4101", "thread 4101"), ("4102", "thread 4102"),
    ]  # fmt: skip
