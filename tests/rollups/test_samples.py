"""A window with too many rows without sums is drawn from a sample that says so, until the sums are there."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest

from tailrace.clock import SystemClock
from tailrace.configuration import choose
from tailrace.query.engine import Engine
from tailrace.rollups import rows
from tailrace.rollups.building import SidecarWriter
from tailrace.rollups.data_files import FileCache
from tailrace.rollups.frame import Range, frame, look_over
from tailrace.rollups.rows import RowReader, RowSample
from tailrace.rollups.sidecar import RollupProgress, Sidecars
from tailrace.rollups.snapshot import TimelineSnapshot
from tailrace.view.application import Viewer
from tailrace.view.leases import ServedStore, SnapshotLease
from tests.export.traces import EPOCH
from tests.query.tables import clocked, commit, commit_many, make, row

COUNT = 40_000
STEP = 1000
ALL = Range(EPOCH, EPOCH + COUNT * STEP)
PIXELS = 800


@pytest.fixture(autouse=True)
def _small_samples(monkeypatch):
    monkeypatch.setattr(rows, "SAMPLE_ROWS", 3000)


def times(count, *, timed, first=0):
    starts = range(first * STEP, (first + count) * STEP, STEP)
    ends = [start + STEP // 2 for start in starts]
    ends[0] = (first + count) * STEP
    found = {"start": starts, "end": ends, "offset": range(first, first + count)}
    return found | ({"time": [EPOCH + start for start in starts]} if timed else {})


@pytest.fixture(params=[True, False], ids=["times", "ticks"])
def store(request, tmp_path):
    """Return a store with many short spans. The first one lasts until the last one."""
    store = make(tmp_path / "store", [clocked(epoch=EPOCH)])
    commit_many(store, COUNT, name="step", different=times(COUNT, timed=request.param))
    return store


def drawn(store, window=ALL, cache=None):
    return frame(TimelineSnapshot(Engine(store), cache or FileCache(None)), window, PIXELS)


def test_a_sample_says_so_and_estimates_the_counts(store):
    found = drawn(store)
    assert found.one_in == 16
    assert sum(found.spans.count) == pytest.approx(COUNT, rel=0.1)
    assert all(count % found.one_in == 0 for count in found.spans.count)
    assert set(found.spans.offset) == {None}


def test_a_sample_is_as_fine_as_a_pixel(store):
    found = drawn(store)
    length = (ALL.end - ALL.begin) // PIXELS
    begins = {begin // length for begin in found.spans.begin}
    assert len(begins) > 0.8 * PIXELS


@pytest.mark.parametrize("store", [True], indirect=True, ids=["times"])
def test_a_short_window_has_all_its_events_and_says_that_earlier_spans_may_lack(store):
    found = drawn(store, Range(EPOCH + 20_000 * STEP, EPOCH + 21_000 * STEP))
    inside = [
        count
        for begin, count in zip(found.spans.begin, found.spans.count, strict=True)
        if begin >= -found.bucket
    ]
    assert 1000 <= sum(inside) <= 1002  # with the buckets at the edges
    assert found.one_in == 8


@pytest.mark.parametrize(
    ("first", "length"),
    [(20_000, 1000), (19_000, 5000), (0, COUNT)],
    ids=["all inside", "fewer before", "as many before"],
)
def test_long_spans_that_began_earlier_are_estimated_like_all_others(
    tmp_path, monkeypatch, first, length
):
    different = times(COUNT, timed=True)
    starts = list(different["start"])
    different["end"] = [
        start + (STEP // 2 if number % 2 else 10_000 * STEP) for number, start in enumerate(starts)
    ]
    store = make(tmp_path / "store", [clocked(epoch=EPOCH)])
    commit_many(store, COUNT, name="step", different=different)
    window = Range(EPOCH + first * STEP, EPOCH + (first + length) * STEP)

    def totals():
        found = drawn(store, window)
        bucket = found.bucket
        spans = zip(
            *(getattr(found.spans, name) for name in ("begin", "end", "count", "busy")), strict=True
        )
        earlier, later = [0, 0], [0, 0]
        for begin, end, count, busy in spans:
            if end - begin > 4 * bucket:
                side = earlier if begin < 0 else later
                side[0] += count
                side[1] += busy
        return found.one_in, *earlier, *later

    sampled = totals()
    monkeypatch.setattr(rows, "SAMPLE_ROWS", COUNT)
    exact = totals()
    assert sampled[0] > 1 == exact[0]
    assert sampled[1:] == pytest.approx(exact[1:], rel=0.1)


def test_sums_replace_the_sample_without_a_new_version(store, tmp_path):
    sidecars = Sidecars(store, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    snapshot = TimelineSnapshot(Engine(store), FileCache(sidecars))
    assert frame(snapshot, ALL, PIXELS).one_in == 16
    writer = SidecarWriter(store, {}, sidecars)
    assert len(list(writer.write())) == 1
    assert writer.progress == RollupProgress(COUNT, COUNT)
    snapshot.take_up()
    found = frame(snapshot, ALL, PIXELS)
    assert (found.one_in, sum(found.spans.count)) == (1, COUNT)


def test_windows_inside_of_a_sample_are_read_once(store):
    cache = FileCache(None)
    read = RowReader._read
    with mock.patch.object(RowReader, "_read", autospec=True, side_effect=read) as reads:
        for window in (ALL, ALL._replace(end=ALL.end - STEP)):
            drawn(store, window, cache)
    assert reads.call_count == 1


@pytest.fixture
def overview(store):
    """Return a snapshot of the store that has an overview."""
    snapshot = TimelineSnapshot(Engine(store), FileCache(None))
    look_over(snapshot)
    return snapshot


def part(first, last):
    """Return the window between two fractions of the whole time."""
    return Range(*(ALL.begin + int(each * (ALL.end - ALL.begin)) for each in (first, last)))


@pytest.mark.parametrize("window", [ALL, part(0, 0.7), part(0.3, 0.8), part(0.7, 0.95)])
def test_an_overview_serves_windows_that_need_no_larger_sample(store, overview, window):
    read = RowReader._read
    with mock.patch.object(RowReader, "_read", autospec=True, side_effect=read) as reads:
        found = frame(overview, window, PIXELS)
    assert reads.call_count == 0
    assert found == drawn(store, window)


@pytest.mark.parametrize("store", [True], indirect=True, ids=["times"])
def test_rows_that_an_overview_leaves_out_are_read(store, overview):
    window = part(0.4, 0.45)
    assert frame(overview, window, PIXELS) == drawn(store, window)


@pytest.mark.parametrize("store", [True], indirect=True, ids=["times"])
def test_an_overview_serves_the_files_that_have_no_sums_yet(store, tmp_path):
    commit_many(store, COUNT, name="step", different=times(COUNT, timed=True, first=COUNT))
    window = Range(EPOCH, EPOCH + 2 * COUNT * STEP)
    sidecars = Sidecars(store, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    snapshot = TimelineSnapshot(Engine(store), FileCache(sidecars))
    look_over(snapshot)
    read = RowReader._read
    for _ in SidecarWriter(store, {}, sidecars).write():
        snapshot.take_up()
        with mock.patch.object(RowReader, "_read", autospec=True, side_effect=read) as reads:
            found = frame(snapshot, window, PIXELS)
        assert reads.call_count == 0
        assert found == drawn(store, window, FileCache(sidecars))
    assert (found.one_in, sum(found.spans.count)) == (1, 2 * COUNT)
    assert snapshot.cache.blocks.overview.rows.pieces.rows == 0


def test_a_server_prepares_the_first_frame_before_a_page_requests_it(store):
    served = ServedStore(choose(None, str(store)), SystemClock())
    Viewer([served], None)._prepare()
    lease = SnapshotLease([served])
    read = Engine.rows
    with (
        mock.patch.object(RowReader, "_read", autospec=True) as samples,
        mock.patch.object(Engine, "rows", autospec=True, side_effect=read) as statements,
    ):
        found = frame(lease.timeline(), ALL, PIXELS)
    lease.end(good=True)
    assert samples.call_count == statements.call_count == 0
    assert found == drawn(store)


def test_a_server_of_a_damaged_store_still_starts(store):
    for file in Path(store, "events").glob("day=*/*.parquet"):
        file.write_bytes(b"PAR1")
    Viewer([ServedStore(choose(None, str(store)), SystemClock())], None)._prepare()


def test_a_larger_sample_has_the_rows_of_a_smaller_one(store):
    sql = 'SELECT "offset" FROM stored WHERE {}'
    engine = Engine(store)
    chosen = [set(engine.rows(sql.format(RowSample(n, n).sql))) for n in (1, 2, 8, 64)]
    assert all(smaller < larger for larger, smaller in pairwise(chosen))


def test_a_file_that_cannot_be_read_is_not_waited_for(tmp_path):
    store = make(tmp_path / "store", [clocked(epoch=EPOCH)])
    commit_many(store, COUNT, name="step", different=times(COUNT, timed=True))
    files = (tmp_path / "store" / "events").glob("day=*/*.parquet")
    damaged = max(files, key=lambda file: file.stat().st_size)
    data = damaged.read_bytes()
    damaged.write_bytes(data[: len(data) // 2])
    writer = SidecarWriter(store, {}, Sidecars(store, {}))
    assert list(writer.write()) == []
    assert writer.progress == RollupProgress(0, 0)


def test_the_newest_file_comes_first(tmp_path):
    store = make(tmp_path / "store", [clocked(epoch=EPOCH)])
    writer = SidecarWriter(store, {}, Sidecars(store, {}), least_rows=2)
    for number in range(2):
        commit(store, [row(offset=number * 2 + n, start=n, end=n + 1) for n in range(2)])
    known = [file.path for file in Engine(store).table.files() if file.rows == 2]
    written = list(writer.write())
    assert sorted(written) == sorted(known)
    ages = [each.path for each in Engine(store).table.files_by_age() if each.path in known]
    assert written == ages[::-1]
