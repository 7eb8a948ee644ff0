"""A frame holds what its window holds."""

from __future__ import annotations

import pytest

from tailrace.query.engine import Engine
from tailrace.rollups.frame import Range, frame
from tailrace.rollups.snapshot import TimelineSnapshot
from tests.export.traces import EPOCH
from tests.query.tables import clocked, commit_many, compact, gap, make, row, session
from tests.store.s3_server import RunningS3


@pytest.fixture
def framed(tmp_path):
    """Return the frame of a store of these rows, whose clock began at EPOCH."""

    def of(rows, begin, end, pixels, lanes=None):
        store = make(tmp_path / "store", [clocked(epoch=EPOCH), *rows])
        window = Range(EPOCH + begin, EPOCH + end)
        return frame(TimelineSnapshot(Engine(store)), window, pixels, lanes)

    return of


def spans_of(found):
    zero = found.window.begin - EPOCH
    columns = [getattr(found.spans, name) for name in found.spans.__struct_fields__]
    return [
        (depth, begin + zero, None if end is None else end + zero, found.names[name], count, busy)
        for _, depth, begin, end, name, count, busy, _, _ in zip(*columns, strict=True)
    ]


def steps(*numbers):
    return [row(seq=n, offset=10 * n, start=100 * n, end=100 * n + 7, name="step") for n in numbers]


def test_spans_shorter_than_a_bucket_are_counted(framed):
    found = framed(steps(1, 2, 7, 8), 0, 1024, 2)
    assert (found.bucket, found.coarse) == (512, False)
    first = EPOCH // 512 * 512 - EPOCH
    assert spans_of(found) == [
        (0, first, first + 512, "step", 2, 14),
        (0, first + 512, first + 1024, "step", 2, 14),
    ]


@pytest.mark.parametrize("pixels", [1, 10, 1000])
def test_a_gap_and_an_open_span_are_in_every_frame(framed, pixels):
    begun = row("begin", start=350, offset=35, id=9, name="open")
    found = framed([*steps(1, 2, 7, 8), gap(4, 3), begun], 0, 1000, pixels)
    assert [(g.begin - EPOCH, g.end - EPOCH) for g in found.gaps] == [(200, 700)]
    assert (0, 350, None, "open", 1, 0) in spans_of(found)


def test_a_gap_at_the_end_of_the_numbers_lies_behind_its_last_event(framed):
    last = 2**63 - 1
    found = framed([*steps(1, 2), gap(last - 2, 3), gap(1, last)], 0, 1000, 10)
    assert [(each.gaps, each.begin - EPOCH) for each in found.gaps] == [(2, 200)]


def test_files_of_a_bucket_are_those_of_the_snapshot_after_upkeep_has_merged_them():
    with RunningS3() as server:
        commits = [steps(n) for n in range(3)]
        store = make("s3://bucket/store", [clocked(epoch=EPOCH)], *commits, options=server.options)
        engine = Engine(store, server.options)
        snapshot = TimelineSnapshot(engine)
        compact(store, options=server.options)
        assert engine.refresh()
        assert sum(lanes.events.sum() for lanes in snapshot.file_lanes.values()) == 3


def test_names_of_any_length_are_short_in_a_frame_and_stay_apart(framed):
    """Two counters whose long names differ at the end only are two."""
    names = ["x" * 100_000 + end for end in "ab"]
    rows = [
        row("counter", name=name, start=100, offset=10 * n, attributes={"value": n})
        for n, name in enumerate(names)
    ]
    found = framed([*rows, row(name=names[0], start=1, end=900, offset=99)], 0, 1000, 10)
    assert sorted(zip(found.counters.least, found.counters.count, strict=True)) == [(0, 1), (1, 1)]
    assert len({found.names[code] for code in found.counters.name}) == 2
    assert all(name.startswith("x" * 1000) and len(name) < 1100 for name in found.names if name)


def test_members_of_one_event_have_one_label(framed):
    rows = [
        row("counter", name=name, start=100 + n, offset=n, attributes={"args": {"a": 1, "b": 2}})
        for n, name in enumerate(["x", "y", "x"])
    ]
    found = framed(rows, 0, 1000, 10)
    names = [found.names[code] for code in found.counters.name]
    labels = set(zip((name[0] for name in names), found.counters.label, strict=True))
    assert sorted(set(names)) == ["x.a", "x.b", "y.a", "y.b"]
    assert len(labels) == len({label for _, label in labels}) == 2


def test_a_window_between_two_ticks_has_the_spans_that_reach_over_it(tmp_path):
    span = row(start=0, end=3, name="long")
    store = make(tmp_path / "store", [clocked(epoch=EPOCH, ticks_per_second=10**6), span])
    found = frame(TimelineSnapshot(Engine(store)), Range(EPOCH + 54, EPOCH + 137), 1)
    assert spans_of(found) == [(0, 0, 3000, "long", 1, 3000)]


@pytest.mark.parametrize("rate", [1, 1000])
def test_a_clock_whose_tick_0_lies_before_all_times_is_drawn(tmp_path, rate):
    """A producer that announces too low a tick rate: the time of its tick 0 does not fit into 64 bits."""
    tick = 10**9 // rate
    rows = [row(start=10**17 + n, end=10**17 + n + 1, name="step", offset=n) for n in (0, 5)]
    clock = clocked(ticks_per_second=rate)
    store = make(tmp_path / "store", [session("open", opened=EPOCH), clock, *rows])
    found = frame(TimelineSnapshot(Engine(store)), Range(EPOCH, EPOCH + 10 * tick), 1000)
    assert spans_of(found) == [
        (0, 0, tick, "step", 1, tick),
        (0, 5 * tick, 6 * tick, "step", 1, tick),
    ]


def test_many_gaps_of_a_stream_are_few_marks_that_add_up(framed):
    """Gaps without a number lie between the same events, and a gap far off is apart."""
    gaps = [gap(3, offset=35, reason=f"reason {n % 2}") for n in range(100)]
    found = framed([*steps(1, 2, 7, 8), *gaps, gap(0, offset=36), gap(2, 9)], 0, 1000, 2)
    assert [(each.gaps, each.remaining, each.unknown, each.reason) for each in found.gaps] == [
        (101, 300, 1, None),
        (1, 2, 0, "network"),
    ]


def test_many_open_spans_of_a_lane_are_counted_by_their_begins(framed):
    begun = [row("begin", start=n, offset=n, id=n, name=f"open {n}") for n in range(1000)]
    found = framed(begun, 500, 1500, 10)
    assert sum(found.spans.count) == 1000
    assert len(found.spans.count) <= 12
    assert all(found.spans.open)
    first = spans_of(found)[0]
    assert first[1:4] == (0, None, "open 0")
    assert first[4] >= 500


def test_an_empty_window_is_refused(framed):
    with pytest.raises(ValueError, match="empty window"):
        framed([], 5, 5, 100)


@pytest.mark.parametrize("timed", [True, False])
def test_events_without_a_roll_up_are_drawn_at_the_width_of_a_pixel(tmp_path, timed):
    """A live run and a fresh import have many rows and no sidecar."""
    rows = 90_000
    starts = range(0, 100 * rows, 100)
    different = {"start": starts, "end": range(70, 100 * rows + 70, 100)}
    if timed:
        different["time"] = range(EPOCH, EPOCH + 100 * rows, 100)
    store = make(tmp_path / "store", [clocked(epoch=EPOCH)])
    commit_many(store, rows, different=different, name="step")
    found = frame(TimelineSnapshot(Engine(store)), Range(EPOCH, EPOCH + 100 * rows), 1000)
    assert not found.coarse
    assert found.bucket == 8192
    assert sum(found.spans.count) == rows
    assert len(found.spans.count) > 1000
