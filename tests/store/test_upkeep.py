from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tailrace.config.schema import StoreConfig
from tailrace.errors import LockedError, StoreError
from tailrace.rows.schema import ROW
from tailrace.store import durable, layout, upkeep
from tailrace.store.layout import TableSnapshot
from tailrace.store.log import DeltaLog
from tailrace.store.presence import DirectoryLock
from tailrace.store.turn import LOCK_NAME, STATE_NAME, turn
from tailrace.store.upkeep import DAY_NS, HOUR_NS, UpkeepReport
from tailrace.units import Duration, Size
from tests import program
from tests.store.writer import commit

DAY = 20_000


@pytest.fixture
def keep_up(store, clock):
    """One run of upkeep. The clock stands at noon of the rows' day."""
    clock.now = DAY * DAY_NS + 12 * HOUR_NS

    def run(config=None, **given):
        return upkeep.run(str(store), config or StoreConfig(), clock=clock, **given)

    return run


@pytest.fixture
def fill(open_table, numbered):
    """`fill(commits, day=DAY)`: a table with as many files of that day."""
    table = open_table()

    def write(commits, *, day=DAY):
        for _ in range(commits):
            position = table.position() or 0
            batch = numbered("s", position * 10, 10)
            batch.runs[0].day = day
            commit(table, batch, position + 1)
        return table

    return write


def _commits_in_order(root):
    """The seq of all rows as they lie in the table's only file, ten by ten."""
    table = DeltaTable(str(root)).scan(columns=["seq"]).read_all()
    found = table.column("seq").to_pylist()
    return sorted(found[at : at + 10] for at in range(0, len(found), 10))


def _data_files(root):
    return {path for path in root.glob("day=*/*") if path.is_file()}


def test_small_files_become_one_that_keeps_the_rows_of_each_together_and_in_order(
    fill, keep_up, root
):
    fill(12)
    report = keep_up()
    assert (report.merged_files, report.made_files, report.skipped) == (12, 1, [])
    assert len(TableSnapshot.open(str(root.parent), options={}).files()) == 1
    assert _commits_in_order(root) == [list(range(at, at + 10)) for at in range(0, 120, 10)]


@pytest.mark.parametrize("before", [None, ",".join(layout.STATED)])
def test_no_merged_file_states_a_latest_time_below_the_true_one(
    fill, keep_up, root, numbered, before
):
    """The library cuts bounds of timestamps to milliseconds, also in a table of an earlier version."""
    table = fill(1)
    batch = numbered("s", 10, 1)
    batch.runs[0].day = DAY
    batch.parts[0].rows[ROW.index("time")] = [DAY * DAY_NS + 999_999_000]
    commit(table, batch, 2)
    if before is not None:
        DeltaTable(str(root)).alter.set_table_properties(
            {layout.STATISTICS: before}, post_commithook_properties=durable.NO_HOOKS
        )
    assert keep_up().made_files == 1
    version = root / f"_delta_log/{DeltaTable(str(root)).version():020}.json"
    actions = [json.loads(line) for line in version.read_text().splitlines()]
    (added,) = (action["add"] for action in actions if "add" in action)
    latest = datetime.fromtimestamp(DAY * DAY_NS // 10**9, UTC) + timedelta(microseconds=999_999)
    stated = json.loads(added["stats"])["maxValues"].get("wall")
    assert stated is None or datetime.fromisoformat(stated) >= latest
    import polars

    found = polars.scan_delta(str(root)).filter(polars.col("wall") == latest).collect()
    assert found["seq"].to_list() == [10]


def test_merged_files_have_row_groups_of_the_size_we_say(fill, keep_up, root, numbered):
    table = fill(1)
    commit(table, numbered("s", 10, 200_000), 2)
    keep_up()
    [file] = TableSnapshot.open(str(root.parent), options={}).file_uris()
    pyarrow_parquet = pytest.importorskip("pyarrow.parquet")
    metadata = pyarrow_parquet.ParquetFile(file).metadata
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert rows == [layout.MERGED_ROW_GROUP, 200_010 - layout.MERGED_ROW_GROUP]


def test_the_hour_between_merges_survives_a_restart(fill, keep_up, clock):
    fill(5)
    assert keep_up().merged_files == 5
    fill(5)
    assert keep_up().merged_files == 0
    clock.now += HOUR_NS
    assert keep_up().merged_files == 6
    fill(2)
    assert keep_up(everything=True).merged_files == 3


def test_a_damaged_state_makes_all_due(fill, keep_up, store):
    fill(5)
    (store / STATE_NAME).write_bytes(b"\0\0\0")
    assert keep_up().merged_files == 5


def test_a_writer_that_was_open_goes_on_after_a_merge_and_a_deletion(fill, keep_up, root, seqs):
    table = fill(3, day=DAY - 2)
    fill(1, day=DAY - 1)
    fill(4)
    report = keep_up(StoreConfig(retention_age=Duration(86_400)))
    assert (report.deleted_days, report.held) == (["2024-10-02"], "")
    fill(3)
    assert table.position() == 11
    assert seqs() == list(range(30, 110))


def test_a_clock_that_is_far_ahead_deletes_nothing_until_somebody_says_that_it_is_right(
    fill, keep_up, clock, seqs
):
    config = StoreConfig(retention_age=Duration(30 * 86_400))
    fill(1, day=DAY - 1)
    fill(1)
    clock.now += 400 * 24 * HOUR_NS
    for everything in (False, True):
        report = keep_up(config, everything=everything)
        assert report.deleted_days == []
        assert "between 2024-10-04 and 2025-11-08" in report.held
    assert seqs() == list(range(20))
    report = keep_up(config, clock_is_right=True)
    assert (report.deleted_days, report.held) == (["2024-10-03"], "")
    assert seqs() == list(range(10, 20)), "the newest day stays"
    clock.now += 24 * HOUR_NS
    assert keep_up(config).deleted_days == []
    fill(1, day=clock.now // (24 * HOUR_NS))
    assert keep_up(config).deleted_days == ["2024-10-04"], "a newer day is there"


def test_the_oldest_days_go_when_the_table_is_too_large(fill, keep_up, root, seqs):
    for day in (DAY - 3, DAY - 2, DAY - 1, DAY):
        fill(1, day=day)
    sizes = [file.size for file in TableSnapshot.open(str(root.parent), options={}).files()]
    report = keep_up(StoreConfig(retention_size=Size(sum(sizes[2:]))))
    assert report.deleted_days == ["2024-10-01", "2024-10-02"]
    assert seqs() == list(range(20, 40))


def test_replaced_files_stay_for_an_hour_and_go_then(fill, keep_up, root, monkeypatch, clock, seqs):
    fill(5)
    keep_up()
    assert len(_data_files(root)) == 6
    clock.now += 2 * HOUR_NS
    assert keep_up().vacuumed_files == 0  # the library has a clock of its own
    monkeypatch.setattr(layout, "REMOVED_HOURS", 0)
    clock.now += HOUR_NS
    assert keep_up().vacuumed_files == 5
    assert len(_data_files(root)) == 1
    assert seqs() == list(range(50))


def test_replaced_files_are_still_known_after_a_checkpoint(fill, keep_up, root, monkeypatch, clock):
    table = fill(5)
    keep_up()
    fill(1)
    assert table.checkpoint(keep=0)
    monkeypatch.setattr(layout, "REMOVED_HOURS", 0)
    clock.now += HOUR_NS
    assert keep_up().vacuumed_files >= 5


def test_files_that_no_version_knows_go_once_a_day_if_they_are_old(fill, keep_up, root, clock):
    fill(1)
    [data] = _data_files(root)
    hour_ago = clock.now / 1e9 - 3601
    stray = {
        "refused": data.with_name("part-refused.parquet"),
        "killed": data.with_name("part-killed.parquet#1"),
        "killed log": DeltaLog(root).directory / "00000000000000000009.json#2",
    }
    for path in stray.values():
        path.write_bytes(b"x")
        os.utime(path, (hour_ago, hour_ago))
    young = data.with_name("part-young.parquet#1")
    young.write_bytes(b"x")
    os.utime(young, (clock.now / 1e9, clock.now / 1e9))
    assert keep_up().vacuumed_files == 3
    assert not any(path.exists() for path in stray.values())
    assert young.exists()
    assert data.exists()


def test_all_is_synced_before_a_vacuum(fill, keep_up, root, monkeypatch, clock):
    """The merged file must be on disk before the files it replaces are gone."""
    fill(3)
    monkeypatch.setattr(layout, "REMOVED_HOURS", 0)
    keep_up()
    clock.now += HOUR_NS
    [merged] = TableSnapshot.open(str(root.parent), options={}).file_uris()
    there_when_synced = {}
    fsync = os.fsync

    def spy(fd):
        path = Path(f"/proc/self/fd/{fd}").readlink()
        there_when_synced[str(path)] = len(_data_files(root))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", spy)
    assert keep_up().vacuumed_files == 3
    assert there_when_synced[merged] == 4


def test_only_one_upkeep_at_a_time(fill, keep_up, store):
    fill(1)
    with DirectoryLock(store, name=LOCK_NAME), pytest.raises(LockedError):
        keep_up()


def test_a_second_upkeep_is_kept_out_after_the_lock_was_removed(fill, keep_up, root, store, clock):
    fill(1)
    with turn(str(root), {}, clock) as mine:
        (store / LOCK_NAME).unlink()
        with pytest.raises(LockedError):
            keep_up()
        mine.check(None)
        (store / LOCK_NAME).unlink()
        with (
            DirectoryLock(store, name=LOCK_NAME),
            pytest.raises(LockedError, match="another process"),
        ):
            mine.check(None)
    assert not keep_up().busy


def test_a_merge_that_met_another_writer_is_left_to_the_next_run(fill, root, clock, seqs):
    fill(5)
    mine = turn(str(root), {}, clock)
    work = upkeep._Upkeep(str(root), {}, clock, mine)

    def merge_too_late(table):
        other = DeltaTable(str(root))
        other.delete("day < '2030-01-01'", post_commithook_properties=durable.NO_HOOKS)
        fill(2)
        table.optimize.compact(post_commithook_properties=durable.NO_HOOKS)

    with mine:
        assert not work._step("merge", merge_too_late)
    assert work.report.skipped[0].startswith("merge: Failed to commit transaction")
    assert seqs() == list(range(70, 90))


def test_upkeep_of_a_store_without_a_table_is_an_error(keep_up, store):
    store.mkdir()
    with pytest.raises(StoreError, match="not a Tailrace store"):
        keep_up()


def test_merging_by_steps_copies_each_row_a_few_times_at_most(fill, keep_up, clock, root, seqs):
    """Many runs, as the daemon makes them: what is merged stays merged."""
    merged = 0
    for _ in range(3):
        fill(30)
        clock.now += HOUR_NS // 60
        merged += keep_up().merged_files
    assert merged <= 3 * 30 + 3
    assert len(TableSnapshot.open(str(root.parent), options={}).files()) == 1
    assert seqs() == list(range(900))


def _command(store, *options):
    command = [*program.COMMAND, "upkeep", "--store", str(store), *options]
    return program.run(command, capture_output=True, text=True, check=False)


def test_the_command_does_one_run_and_says_what_it_did(fill, store, root):
    fill(5)
    done = _command(store, "--all")
    assert (done.returncode, done.stderr) == (0, "")
    assert "merged 5 files into 1" in done.stdout
    assert len(TableSnapshot.open(str(store), options={}).files()) == 1


def test_as_json_the_command_says_the_same(fill, store):
    fill(5)
    done = _command(store, "--all", "--json")
    said = json.loads(done.stdout)
    assert (said["merged_files"], said["made_files"], said["skipped"]) == (5, 1, [])
    assert list(said) == list(UpkeepReport.__struct_fields__)


def test_what_is_one_is_said_as_one(store, fill):
    fill(1)
    assert "merged 0 files into 0\nremoved 0 files that" in _command(store).stdout


def test_the_command_fails_with_one_line_when_it_cannot(tmp_path):
    done = _command(tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("tailrace: ")
    assert done.stderr.count("\n") == 1
