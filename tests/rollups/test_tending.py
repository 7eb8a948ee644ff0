"""Sidecars are made where they lack, removed with their files, and never needed."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from unittest import mock

import duckdb
import pytest
from pyarrow import parquet

from tailrace.clock import SystemClock
from tailrace.configuration import choose
from tailrace.query.engine import Engine
from tailrace.rollups import building
from tailrace.rollups.building import SidecarWriter
from tailrace.rollups.data_files import FileCache
from tailrace.rollups.frame import Range, frame
from tailrace.rollups.rows import SAMPLE_ROWS
from tailrace.rollups.sidecar import DRAFT_NS, PagedFile, Sidecars
from tailrace.rollups.snapshot import TimelineSnapshot
from tailrace.view.leases import ServedStore
from tailrace.view.streaming import LiveWatch
from tests.export.traces import EPOCH
from tests.query.tables import clocked, commit_many, compact, make, row, vacuum

COUNT = 40_000


def rewrite(file, **options):
    parquet.write_table(parquet.read_table(file), file, **options)


def steps(numbers):
    return [
        row(seq=n, offset=10 * n, start=100 * n, end=100 * n + 7, time=EPOCH + 100 * n, name="step")
        for n in numbers
    ]


@pytest.fixture
def store(tmp_path):
    return make(tmp_path / "store", [clocked(epoch=EPOCH), *steps(range(50))], steps(range(50, 90)))


@pytest.fixture
def sidecars(store, tmp_path):
    return Sidecars(store, {"XDG_CACHE_HOME": str(tmp_path / "cache")})


def tended(store, sidecars, least_rows=0):
    return list(SidecarWriter(store, {}, sidecars, least_rows).write())


def drawn(store, sidecars):
    """How many steps a frame counts, and from how many sidecars."""
    cache = FileCache(sidecars)
    found = frame(TimelineSnapshot(Engine(store), cache), Range(EPOCH, EPOCH + 2**20), 4)
    return sum(found.spans.count), len(cache.files)


def test_each_file_gets_its_sidecar_once(store, sidecars):
    assert drawn(store, sidecars) == (90, 0)
    assert len(tended(store, sidecars)) == 2
    assert drawn(store, sidecars) == (90, 2)
    assert tended(store, sidecars) == []


def test_a_window_inside_of_the_last_one_reads_no_page_again(tmp_path):
    lanes = 20
    different = {
        "start": range(0, 10 * COUNT, 10),
        "end": range(5, 10 * COUNT, 10),
        "offset": range(COUNT),
    }
    different["time"] = [EPOCH + start for start in different["start"]]
    different["stream"] = [str(number % lanes) for number in range(COUNT)]
    store = make(tmp_path / "store", [clocked(epoch=EPOCH)])
    commit_many(store, COUNT, name="step", different=different)
    sidecars = Sidecars(store, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    tended(store, sidecars)

    # The rows of all lanes do not fit into this room. Those of one lane in twenty do.
    snapshot = TimelineSnapshot(Engine(store), FileCache(sidecars, 2**15))
    chosen = [lane.key for lane in snapshot.lanes if lane.key.stream == "3"]

    def reads(end, keys):
        with mock.patch.object(
            PagedFile, "read", autospec=True, side_effect=PagedFile.read
        ) as calls:
            found = frame(snapshot, Range(EPOCH, EPOCH + end), end // 2**13, keys)
        return calls.call_count, sum(found.spans.count)

    pages, counted = reads(2**19, chosen)
    assert (pages > 0, counted) == (True, COUNT // lanes)
    assert reads(2**18, chosen)[0] == 0
    assert reads(2**19, None) == (pages, COUNT)


def test_a_small_file_gets_none(store, sidecars):
    assert len(tended(store, sidecars, least_rows=45)) == 1
    assert drawn(store, sidecars) == (90, 1)


def test_a_sidecar_goes_when_its_file_is_vacuumed(store, sidecars, tmp_path):
    tended(store, sidecars)
    compact(store)
    assert len(tended(store, sidecars)) == 1
    assert len(list(sidecars.directories[0].iterdir())) == 6  # the merged files can still be read
    vacuum(store)
    tended(store, sidecars)
    assert len(list(sidecars.directories[0].iterdir())) == 2
    assert drawn(store, sidecars) == (90, 1)


def test_a_draft_that_a_kill_left_goes_once_it_is_old(store, sidecars):
    tended(store, sidecars)
    directory = sidecars.directories[0]
    whole = sorted(directory.iterdir())
    for name, age in (("young", DRAFT_NS // 2), ("old", 2 * DRAFT_NS)):
        draft = directory / f"{whole[0].name}.{name}"
        draft.write_bytes(b"PAR1")
        written = draft.stat().st_mtime_ns - age
        os.utime(draft, ns=(written, written))
    for sidecar in whole:
        os.utime(sidecar, ns=(0, 0))
    assert tended(store, sidecars) == []
    assert sorted(directory.iterdir()) == sorted([*whole, directory / f"{whole[0].name}.young"])


def test_sidecars_may_be_deleted_at_any_time(store, sidecars):
    tended(store, sidecars)
    for file in sidecars.directories[0].iterdir():
        file.unlink()
    assert drawn(store, sidecars) == (90, 0)


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-9], lambda data: b"", lambda data: b"x" * 99],
    ids=["cut", "empty", "other"],
)
@pytest.mark.parametrize("part", ["cells", "longs"])
def test_a_damaged_sidecar_is_ignored_removed_and_made_again(store, sidecars, part, damage):
    tended(store, sidecars)
    one = min(sidecars.directories[0].glob(f"*.{part}.parquet"))
    one.write_bytes(damage(one.read_bytes()))
    assert drawn(store, sidecars) == (90, 1)
    assert not one.exists()
    assert len(tended(store, sidecars)) == 1


@pytest.mark.parametrize("part", ["cells", "longs"])
@pytest.mark.parametrize("how", ["damaged", "gone"])
def test_a_sidecar_that_turns_out_to_be_unreadable_is_no_longer_used(tmp_path, part, how):
    long = row(offset=1, start=0, end=10_000, time=EPOCH, name="whole")
    commits = [[*steps(range(n, n + 45)), long | {"offset": n + 1}] for n in (0, 45)]
    store = make(tmp_path / "store", *commits)
    sidecars = Sidecars(store, {})
    tended(store, sidecars)
    cache = FileCache(sidecars, memory=0)
    snapshot = TimelineSnapshot(Engine(store), cache)
    one = min(sidecars.directories[0].glob(f"*.{part}.parquet"))
    if how == "gone":
        one.unlink()
    else:
        one.write_bytes(b"PAR1" + b"\xff" * (one.stat().st_size - 4))
    found = frame(snapshot, Range(EPOCH, EPOCH + 2**20), 4)
    assert (sum(found.spans.count), len(cache.files), one.exists()) == (92, 1, False)


def test_a_sidecar_of_another_file_is_refused(store, sidecars):
    tended(store, sidecars)
    one, other = sorted(sidecars.directories[0].glob("*.cells.parquet"))
    one.write_bytes(other.read_bytes())
    assert drawn(store, sidecars) == (90, 1)
    assert not one.exists()


def test_a_store_that_cannot_be_written_has_its_sidecars_in_the_cache(store, sidecars):
    sidecars.directories[0].parent.write_text("a file where the directory would be")
    assert len(tended(store, sidecars)) == 2
    assert list(sidecars.directories[1].glob("*.cells.parquet"))
    assert drawn(store, sidecars) == (90, 2)


def test_sums_that_do_not_fit_are_kept_elsewhere_than_here(tmp_path, monkeypatch):
    """Memory for a tenth of the sums is enough, and the working directory stays empty."""
    store = make(tmp_path / "store")
    numbers = range(150_000)
    different = {
        "offset": numbers,
        "start": [10_000 * n for n in numbers],
        "end": [10_000 * n + 1 + n % 7919 for n in numbers],
        "name": [f"step {n % 97}" for n in numbers],
    }
    commit_many(store, len(numbers), different=different)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(building, "MEMORY", "26MB")
    monkeypatch.setattr(building, "SHARE", 3)
    seen = set()
    sum_up = building._sum_up

    def summed_up(database, file, first):
        sum_up(database, file, first)
        seen.update(path.name for path in here.iterdir())

    monkeypatch.setattr(building, "_sum_up", summed_up)
    assert len(tended(store, Sidecars(store, {}))) == 1
    assert seen == set()
    assert list(here.iterdir()) == []


def spoiled(file):
    """Damage what a file holds, and leave what it says of itself."""
    data = bytearray(file.read_bytes())
    footer = int.from_bytes(data[-8:-4], "little") + 8
    data[4:-footer] = bytes(len(data) - footer - 4)
    file.write_bytes(data)


@pytest.mark.parametrize("which", [0, 1])
def test_sums_that_cannot_be_read_when_they_are_taken_up_are_not_missed(store, sidecars, which):
    """The other files' sums count all the same, also where a look fails halfway."""
    tended(store, sidecars)
    one = sorted(sidecars.directories[0].glob("*.cells.parquet"))[which]
    spoiled(one)
    cache = FileCache(sidecars)
    for _ in range(2):
        found = frame(TimelineSnapshot(Engine(store), cache), Range(EPOCH, EPOCH + 2**20), 4)
        assert sum(found.spans.count) == 90
    assert (len(cache.files), one.exists()) == (1, False)


def test_a_sidecar_that_cannot_be_opened_just_now_stays(store, sidecars):
    tended(store, sidecars)
    (path, *_) = Engine(store).table.files()
    sidecar = sidecars.find(path.path)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        assert sidecars.find(path.path) is None
        assert not sidecars.refuse(sidecar)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert sidecars.find(path.path) == sidecar


def test_a_damaged_data_file_is_named_and_the_others_get_their_sidecars(store, sidecars, caplog):
    damaged, other = (file.path for file in Engine(store).table.files())
    spoiled(Path(store) / "events" / damaged)
    assert tended(store, sidecars) == [other]
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{damaged}: no roll-up was made: ")


def test_a_defect_of_ours_is_not_taken_for_a_damaged_file(store, sidecars, monkeypatch):
    monkeypatch.setattr(building, "_CELLS", "SELECT * FROM a_table_that_nobody_made")
    with pytest.raises(duckdb.CatalogException):
        tended(store, sidecars)


def test_a_viewer_sums_many_rows_at_once_and_lets_few_wait(tmp_path):
    """A live store gets a new version each second. Sums of each would take the time of the answers."""
    store = make(tmp_path / "store", [clocked(), row(seq=0)])
    served = ServedStore(choose(None, store), SystemClock())
    watch = LiveWatch(served)

    def lacking(count):
        served.lacking.clear()
        commit_many(store, count, name="step", different={"offset": range(count), "start": range(count)})  # fmt: skip
        watch._look_at_table()
        return served.lacking.is_set()

    assert [lacking(count) for count in (3_000, SAMPLE_ROWS)] == [False, True]
    served.tend(lambda: True)
    assert not lacking(3_000)
    watch.close()


def test_sums_are_written_in_short_pieces_between_which_answers_come_first(store, tmp_path):
    groups = 3 * building.GROUPS
    commit_many(store, groups, name="step", different={"offset": range(groups), "start": range(groups)})  # fmt: skip
    data = max(Path(store, "events").glob("day=*/*.parquet"), key=lambda file: file.stat().st_mtime)
    rewrite(data, row_group_size=1)
    asked = []
    sidecars = Sidecars(store, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    building.build(str(data), sidecars, "a file", lambda: asked.append("pause"))
    assert len(asked) == 2 * 3  # the rows are read twice, in three batches
