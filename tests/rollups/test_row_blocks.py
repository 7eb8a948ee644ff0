"""Rows that were read for one window serve the windows beside and inside of it, as long as files and lanes are the same."""

from __future__ import annotations

from unittest import mock

import pytest

from tailrace.query.engine import Engine
from tailrace.rollups import rows
from tailrace.rollups.data_files import FileCache
from tailrace.rollups.frame import frame
from tailrace.rollups.rows import RowReader
from tailrace.rollups.scale import Range
from tailrace.rollups.snapshot import LaneKey, TimelineSnapshot
from tests.export.traces import EPOCH
from tests.query.tables import clocked, commit, compact, make, row

STEPS = 600
LENGTH = 100_000
SPAN = 70_000


def steps(stream, numbers=range(STEPS)):
    return [
        row(stream=stream, seq=n, offset=10 * n, start=LENGTH * n, end=LENGTH * n + SPAN, name=f"step {stream}")
        for n in numbers
    ]  # fmt: skip


class Zoomed:
    """Frames of a store; `reads` counts how often the database was asked for rows."""

    def __init__(self, store):
        self.cache = FileCache(None)
        self.store = store
        self.reads = 0

    def of(self, begin, end, streams=("1", "2")):
        """The names and begins of the spans in a window."""
        snapshot = TimelineSnapshot(Engine(self.store), self.cache)
        keys = [lane.key for lane in snapshot.lanes if lane.key.stream in streams]
        keys.sort(key=lambda key: streams.index(key.stream))
        plain = RowReader._read

        def counted(reader, *asked):
            self.reads += 1
            return plain(reader, *asked)

        with mock.patch.object(RowReader, "_read", counted):
            found = frame(snapshot, Range(EPOCH + begin, EPOCH + end), 10_000, keys)
        spans = zip(found.spans.lane, found.spans.name, found.spans.begin, strict=True)
        return {
            (found.lanes[lane].stream, found.names[name], begin + found.window.begin - EPOCH)
            for lane, name, begin in spans
        }


@pytest.fixture
def zoomed(tmp_path):
    return Zoomed(make(tmp_path / "store", [clocked(epoch=EPOCH), *steps("1"), *steps("2")]))


def within(begin, end, streams=("1", "2")):
    return {
        (stream, f"step {stream}", LENGTH * n)
        for stream in streams
        for n in range(STEPS)
        if LENGTH * n < end and LENGTH * n + SPAN > begin
    }


def test_windows_inside_and_beside_of_one_are_not_read_again(zoomed):
    near = [(10.0, 12.0), (10.5, 11.0), (10.6, 10.61), (11.0, 13.0), (8.0, 10.0)]
    far = (50.0, 52.0)
    for window, reads in [(far, 1), *((each, 2) for each in near), (far, 2)]:
        begin, end = (int(1_000_000 * each) for each in window)
        assert zoomed.of(begin, end) == within(begin, end)
        assert zoomed.reads == reads


def test_lanes_may_be_fewer_and_in_another_order_but_not_others(zoomed):
    window = 1_000_000, 1_200_000
    zoomed.of(*window, ["1"])
    for streams in (["2", "1"], ["1", "2"], ["2"], ["1"]):
        assert zoomed.of(*window, streams) == within(*window, streams)
        assert zoomed.reads == 2


def test_what_is_committed_later_is_read(zoomed):
    window = 1_000_000, 1_050_000
    assert zoomed.of(*window) == within(*window)
    commit(zoomed.store, [row(seq=STEPS, offset=9_999_999, start=1_010_000, end=1_020_000, name="late")])  # fmt: skip
    assert zoomed.of(*window) == within(*window) | {("1", "late", 1_010_000)}


def test_no_more_is_kept_and_read_at_once_than_there_is_room_for(zoomed):
    with mock.patch.multiple(rows, ROWS_KEPT=100, BLOCK_ROWS=90):
        for begin in (0, 20_000_000, 40_000_000):
            assert zoomed.of(begin, begin + 100_000) == within(begin, begin + 100_000)
        assert 0 < sum(block.rows.pieces.rows for block in zoomed.cache.blocks._blocks) <= 100
        reads = zoomed.reads
        for _ in range(2):  # too many rows for a block
            assert zoomed.of(0, 20_000_000) == within(0, 20_000_000)
        assert zoomed.reads == reads + 2


def test_few_rows_in_each_of_many_versions_are_not_kept_without_end(zoomed):
    with mock.patch.multiple(rows, ROWS_KEPT=300):
        for n in range(STEPS, STEPS + 50):
            commit(zoomed.store, steps("1", [n]))
            begin = n * LENGTH
            assert zoomed.of(begin, begin + LENGTH, ["1"]) == {("1", "step 1", begin)}
        blocks = zoomed.cache.blocks._blocks
        assert 1 < len(blocks) < 50
        files = {path for block in blocks for path in block.paths}
        compact(zoomed.store)
        zoomed.of(0, LENGTH)
        left = {path for block in zoomed.cache.blocks._blocks for path in block.paths}
        assert files.isdisjoint(left)


def test_a_lane_without_rows_is_no_error(zoomed):
    snapshot = TimelineSnapshot(Engine(zoomed.store), zoomed.cache)
    keys = [LaneKey("tcp", "nobody", "1")]
    assert frame(snapshot, Range(EPOCH, EPOCH + 100), 10, keys).spans.lane == []


def test_a_burst_beside_a_window_is_not_kept_with_it(tmp_path):
    """Files tell how many rows a window has as if they lay evenly in time."""
    burst = [
        row(seq=n, offset=10 * n, start=10_000_000 + n, end=10_000_000 + n, name="burst")
        for n in range(5000)
    ]
    few = [
        row(
            seq=9000 + n,
            offset=10 * (9000 + n),
            start=n * 500_000_000,
            end=n * 500_000_000,
            name="few",
        )
        for n in range(20)
    ]
    zoomed = Zoomed(make(tmp_path / "store", [clocked(epoch=EPOCH), *burst, *few]))
    with mock.patch.multiple(rows, ROWS_KEPT=3000, BLOCK_ROWS=1000):
        for _ in range(2):
            assert zoomed.of(0, 2_000_000, ["1"]) == {("1", "few", 0)}
            assert zoomed.cache.blocks._blocks == []
    assert zoomed.reads == 4
