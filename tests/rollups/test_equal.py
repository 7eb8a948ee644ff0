"""Frames equal the same computed row by row, whatever sidecars there are and whatever is merged."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from tailrace.query.engine import Engine
from tailrace.rollups import building, drawing
from tailrace.rollups.building import build
from tailrace.rollups.data_files import FileCache
from tailrace.rollups.frame import Range, frame
from tailrace.rollups.sidecar import Sidecars
from tailrace.rollups.snapshot import TimelineSnapshot
from tests.export.traces import EPOCH, crowds, stores
from tests.query.tables import compact, make
from tests.rollups.naive import Naive

MANY = settings(
    deadline=None,
    max_examples=40,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
FEW = settings(MANY, max_examples=3)
"""Each example makes a table and merges it, which takes 1 s of CPU: so few of them have many stores. CI runs both."""


@st.composite
def varied(draw, of):
    """Rows of random stores, some spans with a depth, with the begins of a few and with ends of others."""
    rows = []
    for row in draw(of):
        if row["kind"] == "span":
            row["depth"] = draw(st.sampled_from([None, None, 0, 1]))
            if draw(st.integers(0, 5)) == 0 and row["start"] is not None:
                rows.append(row | {"kind": "begin", "end": None})
        elif row["kind"] == "begin" and row["start"] is not None and draw(st.booleans()):
            forgotten = {"$flaw": "begin_forgotten"}
            more = {
                "kind": "end",
                "start": None,
                "time": None,
                "end": row["start"] + 5,
                "offset": row["offset"] + 1,
            }
            rows.append(row | more | {"attributes": json.dumps(forgotten)})
        rows.append(row)
    return rows


@st.composite
def windows(draw):
    size = 10 ** draw(st.integers(0, 10))
    begin = EPOCH + draw(st.integers(-5, 60)) * size // draw(st.sampled_from([1, 7, 40]))
    return Range(begin, begin + draw(st.integers(1, 100)) * size), draw(st.integers(1, 40))


@st.composite
def zooms(draw):
    """Windows, and behind each of them further ones inside or beside it, which may be answered from memory."""
    asked = []
    for first in draw(st.lists(windows(), min_size=1, max_size=3)):
        asked.append(first)
        for _ in range(draw(st.integers(0, 2))):
            (since, until), pixels = asked[-1]
            begin = since + (until - since) * draw(st.integers(-4, 4)) // 4
            length = max((until - since) // draw(st.sampled_from([1, 4])), 1)
            asked.append((Range(begin, begin + length), pixels))
    return asked


def of_frame(found):
    lanes = [tuple(key) for key in found.lanes]

    def rows(columns, *names):
        for values in zip(*(getattr(columns, n) for n in columns.__struct_fields__), strict=True):
            row = dict(zip(columns.__struct_fields__, values, strict=True))
            for time in {"begin", "end", "time"} & {k for k, v in row.items() if v is not None}:
                row[time] += found.window.begin
            yield (lanes[row["lane"]], *(row[n] for n in names)), row

    name = found.names
    spans = []
    for values, row in rows(found.spans, "depth", "begin", "end"):
        spans.append(
            (*values, name[row["name"]], row["count"], row["busy"], row["offset"], row["open"])
        )
    instants = [
        (*values, row["kind"], None if row["name"] is None else name[row["name"]], row["offset"])
        for values, row in rows(found.instants, "time", "count")
    ]
    counters = [
        (values[0], name[row["name"]], *values[1:])
        for values, row in rows(found.counters, "time", "count", "least", "most", "latest")
    ]
    return spans, instants, counters


def agree(found, wanted):
    """Whether a frame is what was computed row by row; several spans have one of the longest's names."""
    spans, instants, counters = of_frame(found)
    gaps = [
        (
            each.first.gap.place,
            each.gaps,
            each.begin,
            each.end,
            each.remaining,
            each.unknown,
            each.reason,
        )
        for each in found.gaps
    ]

    def order(row):
        return str([v for v in row if not isinstance(v, frozenset)][:4]), str(row[5]), str(row[7])

    got, expected = sorted(spans, key=order), sorted(wanted[0], key=order)
    assert [r[:4] + r[5:] for r in got] == [r[:4] + r[5:] for r in expected]
    assert all(g[4] in e[4] for g, e in zip(got, expected, strict=True))
    assert sorted(map(str, instants)) == sorted(map(str, wanted[1]))
    assert sorted(map(str, counters)) == sorted(map(str, wanted[2]))
    assert sorted(map(str, gaps)) == sorted(map(str, wanted[3]))


@FEW
@given(varied(crowds()), st.data())
def test_frames_equal_those_computed_row_by_row(rows, data):
    compare(rows, data)


@pytest.mark.slow
@MANY
@given(varied(stores()), st.data())
def test_so_do_those_of_many_stores(rows, data):
    compare(rows, data)


def compare(rows, data):
    share = data.draw(
        st.sampled_from([building.SHARE, 0.8, 3])
    )  # sums from coarse to as fine as rows
    open_max = data.draw(st.sampled_from([64, 1]))
    with (
        tempfile.TemporaryDirectory() as directory,
        mock.patch.object(building, "SHARE", share),
        mock.patch.object(drawing, "OPEN_MAX", open_max),
    ):
        parts = data.draw(st.integers(1, 3))
        store = make(
            Path(directory) / "store", *(rows[i::parts] for i in range(parts) if rows[i::parts])
        )
        naive = Naive(store, rows)
        cache = FileCache(Sidecars(store), data.draw(st.sampled_from([0, 600, 2**20])))
        plain = TimelineSnapshot(Engine(store))
        asked = data.draw(zooms())
        for window, pixels in asked:
            agree(frame(plain, window, pixels), naive.frame(window, pixels, open_max))
        engine = Engine(store)
        for file in data.draw(st.permutations(engine.table.files()))[
            : data.draw(st.integers(1, 3))
        ]:
            build(f"{engine.table.root}/{file.path}", cache.sidecars, file.path)
        before = TimelineSnapshot(engine, cache)
        for window, pixels in asked:
            agree(frame(before, window, pixels), naive.frame(window, pixels, open_max))
        compact(store)
        for window, pixels in asked:
            agree(frame(before, window, pixels), naive.frame(window, pixels, open_max))
        merged = Engine(store)
        if data.draw(st.booleans()):
            for file in merged.table.files():
                build(f"{merged.table.root}/{file.path}", cache.sidecars, file.path)
        after = TimelineSnapshot(merged, cache)
        for window, pixels in asked:
            agree(frame(after, window, pixels), naive.frame(window, pixels, open_max))
            agree(frame(before, window, pixels), naive.frame(window, pixels, open_max))
