"""All five formats in the real Perfetto: no import error, no loss of data, and every slice."""

from __future__ import annotations

import pytest

from tests.export.drawn import asked, gaps_asked
from tests.export.exports import make_export
from tests.export.perfetto_ui import perfetto


@pytest.fixture(scope="module")
def opened():
    with perfetto() as page:
        yield page


@pytest.mark.parametrize("to", ["perfetto", "chrome"])
def test_the_demonstration_opens_in_perfetto_whole(opened, demo_store, tmp_path, to):
    path = tmp_path / f"{to}.trace"
    make_export(demo_store, to, path)
    opened.load(path)
    assert opened.losses() == []

    wanted = asked(demo_store)
    counts = {kind: sum(n for d, n in wanted.items() if d.kind == kind) for kind in ("span", "instant", "counter")}  # fmt: skip
    still_open = sum(n for d, n in wanted.items() if d.kind == "span" and d.length is None)
    lost = gaps_asked(demo_store).total()
    assert min(*counts.values(), still_open, lost) > 0
    (slices,) = opened.query(
        "SELECT count(*) AS slices, sum(name GLOB 'LOST *') AS lost, sum(dur = -1) AS still_open FROM slice"
    )
    summary = 1
    assert slices == {
        "slices": str(counts["span"] + counts["instant"] + lost + summary),
        "lost": str(lost),
        "still_open": str(still_open),
    }
    assert opened.query("SELECT count(*) AS points FROM counter") == [{"points": str(counts["counter"])}]  # fmt: skip


def test_times_are_exact_in_perfetto(opened, demo_store, tmp_path):
    """Perfetto gives whole nanoseconds since 1970, as text, since no double of JavaScript holds them."""
    make_export(demo_store, "perfetto", tmp_path / "trace")
    opened.load(tmp_path / "trace")
    rows = opened.query("SELECT name, CAST(ts AS TEXT) AS ts, dur FROM slice WHERE dur > 0 AND name NOT GLOB 'LOST *'")  # fmt: skip
    found = sorted((each["name"], int(each["ts"]), int(each["dur"])) for each in rows)
    wanted = asked(demo_store)
    assert found == sorted((d.name, d.begin, d.length) for d in wanted.elements() if d.length)
