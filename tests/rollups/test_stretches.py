"""A stretch of empty time has no event, its edges are exact, and no stretch that is long is left out."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tailrace.query.engine import Engine
from tailrace.rollups.building import build
from tailrace.rollups.data_files import FileCache
from tailrace.rollups.sidecar import Sidecars
from tailrace.rollups.snapshot import WALL, TimelineSnapshot
from tailrace.rollups.stretches import EXACT, LEAST_SHARE, MOST, WORTH, stretches
from tests.export.traces import EPOCH
from tests.query.tables import SECOND, clocked, make, row
from tests.rollups.test_equal import FEW, MANY

DAY = 86_400 * SECOND
SLOW = 48_000
SLACK = (4 << EXACT) + 3 * SECOND // SLOW
"""How far an edge may lie from an event: a few of the narrowest buckets, or ticks of the slowest clock."""

TIMES = """
SELECT time, coalesce(time + duration, time) FROM spans WHERE time IS NOT NULL
UNION ALL SELECT time, time FROM events WHERE kind IN ('instant', 'counter', 'annotation') AND time IS NOT NULL
"""


@st.composite
def clusters(draw):
    """Return rows of several sessions and streams that come in bursts, with up to years between them."""
    rates = [draw(st.sampled_from([SECOND, 300_000_000, SLOW])) for _ in range(2)]
    rows = [
        clocked(session=name, epoch=EPOCH, ticks_per_second=rate)
        for name, rate in zip("ab", rates, strict=True)
    ]
    at = 0
    for burst in range(draw(st.integers(1, 6))):
        at += draw(st.sampled_from([5, 10**6, SECOND, 3600 * SECOND, DAY, 300 * DAY]))
        size = draw(st.sampled_from([100, 10**6, SECOND]))
        for number in range(draw(st.integers(1, 12))):
            which = draw(st.integers(0, 1))
            begin = at + draw(st.integers(0, size))
            end = begin + draw(st.sampled_from([0, 1, 70, size // 3, 2 * size]))
            rows.append(
                row(
                    draw(st.sampled_from(["span", "span", "span", "instant", "begin"])),
                    session="ab"[which],
                    stream=str(draw(st.integers(0, 1))),
                    offset=100 * burst + number + 1,
                    name="step",
                    id=100 * burst + number,
                    start=begin * rates[which] // SECOND,
                    end=end * rates[which] // SECOND,
                )
            )
            if rows[-1]["kind"] != "span":
                rows[-1]["end"] = None
    return rows


def between(times):
    """Return the stretches between events, the longest first."""
    found, reached = [], None
    for begin, end in sorted(times):
        if reached is not None and begin > reached:
            found.append((reached, begin))
        reached = end if reached is None else max(reached, end)
    return sorted(found, key=lambda each: each[0] - each[1])


def check(snapshot):
    lanes = [each.key for each in snapshot.lanes if each.axis == WALL]
    found = [tuple(each) for each in stretches(snapshot, lanes)]
    real = between(list(snapshot.engine.rows(TIMES)))
    all_of_time = max((each.last for each in snapshot.lanes if each.last is not None), default=0)
    all_of_time -= min((each.first for each in snapshot.lanes if each.first is not None), default=0)
    assert len(found) <= MOST
    assert found == sorted(found)
    for begin, end in found:
        (whole,) = [(low, high) for low, high in real if low <= begin < end <= high]
        assert max(begin - whole[0], whole[1] - end) <= SLACK
    rest = all_of_time - sum(end - begin for begin, end in found)
    left = [
        each for each in real if not any(begin < each[1] and each[0] < end for begin, end in found)
    ]
    if found and left and len(found) < MOST:
        assert left[0][1] - left[0][0] <= 2 * LEAST_SHARE * rest
    if real and not found:
        assert real[0][1] - real[0][0] <= max((1 + WORTH) / 2 * all_of_time, SLACK)


def compare(rows, data):
    with tempfile.TemporaryDirectory() as directory:
        parts = data.draw(st.integers(1, 3))
        commits = [rows[i::parts] for i in range(parts) if rows[i::parts]]
        store = make(Path(directory) / "store", *commits)
        engine = Engine(store)
        check(TimelineSnapshot(engine))
        cache = FileCache(Sidecars(store))
        for file in engine.table.files()[: data.draw(st.integers(1, 3))]:
            build(f"{engine.table.root}/{file.path}", cache.sidecars, file.path)
        check(TimelineSnapshot(engine, cache))


@FEW
@given(clusters(), st.data())
def test_stretches_are_empty_and_none_is_left_out(rows, data):
    compare(rows, data)


@pytest.mark.slow
@MANY
@given(clusters(), st.data())
def test_stretches_of_many_stores_are_empty_and_none_is_left_out(rows, data):
    compare(rows, data)
