"""Test what is synced, and in which order. Whether that is enough, `tests/faults` tries."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from tailrace.errors import StoreError, SyncError
from tailrace.store import durable
from tailrace.store.log import DeltaLog
from tailrace.store.presence import DirectoryLock
from tests.store.writer import commit


@pytest.fixture
def synced(monkeypatch):
    """Every path that was synced, in order; `synced.hook` is called before each."""

    class Synced(list):
        def hook(self, path):
            pass

    paths = Synced()
    fsync = os.fsync

    def spy(fd):
        path = Path(f"/proc/self/fd/{fd}").readlink()
        paths.hook(path)
        paths.append(path)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", spy)
    return paths


def _files(root, version):
    log = DeltaLog(root)
    return [log.data_path(action.add) for action in log.read(version) if action.add]


def test_a_commit_syncs_its_data_then_its_log_file_and_all_directories(
    open_table, numbered, root, synced
):
    table = open_table()
    synced.clear()
    commit(table, numbered("s", 0, 5), 1)
    [data] = _files(root, 1)
    log = DeltaLog(root)
    journal = root / "_journal"
    assert set(synced) == {data, data.parent, root, log.path(1), log.directory, journal}
    order = [synced.index(path) for path in (data, log.path(1), log.directory, journal)]
    assert order == sorted(order)


def test_a_data_file_and_its_name_are_on_disk_before_the_log_names_it(
    open_table, numbered, root, synced
):
    table = open_table()
    there = {}
    synced.hook = lambda path: there.setdefault(path, DeltaLog(root).path(1).exists())
    commit(table, numbered("s", 0, 5), 1)
    [data] = _files(root, 1)
    assert not any(there[path] for path in (data, data.parent, root))
    assert there[DeltaLog(root).path(1)]


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_data_file_that_cannot_be_synced_ends_it_all_and_is_not_in_the_table(
    open_table, numbered, root, synced, seqs, what
):
    table = open_table()

    def fail(path):
        if (path.suffix == ".parquet") if what == "file" else path.name.startswith("day="):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    synced.hook = fail
    with pytest.raises(SyncError, match="cannot be brought to disk: Input/output error"):
        commit(table, numbered("s", 0, 5), 1)
    synced.hook = lambda path: None
    with pytest.raises(SyncError):
        commit(table, numbered("s", 0, 5), 1)
    assert (DeltaLog(root).versions(), seqs()) == ([0], [])
    assert not list(root.rglob("*.parquet"))


def test_a_new_table_is_synced_up_to_the_directory_that_its_store_is_in(open_table, root, synced):
    open_table()
    assert {
        DeltaLog(root).path(0),
        DeltaLog(root).directory,
        root,
        root.parent,
        root.parent.parent,
    } <= set(synced)


def test_what_others_wrote_below_a_commit_is_synced_with_it(
    open_table, numbered, arrow, root, synced
):
    table = open_table()
    commit(table, numbered("s", 0, 5), 1)
    for number in range(3):
        other = DeltaTable(str(root))
        rows = arrow(numbered("o", number, 1))
        write_deltalake(other, rows, mode="append", post_commithook_properties=durable.NO_HOOKS)
    synced.clear()
    commit(table, numbered("s", 5, 5), 2)
    assert {DeltaLog(root).path(version) for version in (2, 3, 4, 5)} <= set(synced)
    assert {path for version in (2, 3, 4, 5) for path in _files(root, version)} <= set(synced)


def test_at_start_what_a_killed_process_left_unsynced_is_synced(
    open_table, numbered, root, synced, monkeypatch
):
    table = open_table()
    with monkeypatch.context() as killed:
        killed.setattr(durable, "fsync", lambda path: None)
        commit(table, numbered("s", 0, 5), 1)
    assert DeltaLog(root).path(1) not in synced
    open_table()
    assert {DeltaLog(root).path(1), *_files(root, 1)} <= set(synced)


def test_what_was_merged_and_vacuumed_away_below_a_commit_is_not_missed(
    open_table, numbered, arrow, root
):
    open_table()
    for number in range(3):
        rows = arrow(numbered("o", number, 1))
        write_deltalake(DeltaTable(str(root)), rows, mode="append")
    for path in _files(root, 2):
        path.unlink()
    durable.sync(root, 0, 3)
    with pytest.raises(SyncError, match="version 2"):
        durable.sync(root, 0, 2)


def test_a_log_file_is_let_go_only_after_its_checkpoint_was_synced(
    open_table, numbered, root, synced
):
    table = open_table()
    for number in range(12):
        commit(table, numbered("s", number, 1), number + 1)
    log = DeltaLog(root)
    there = {}
    synced.hook = lambda path: there.update({path.name: log.versions()})
    assert table.checkpoint(keep=3)
    checkpoint = f"{12:020}.checkpoint.parquet"
    for name in (checkpoint, "_last_checkpoint", "_delta_log"):
        assert there[name] == list(range(13))
    names = [path.name for path in synced if not path.name.startswith("_journal")]
    assert names[-3:] == [checkpoint, "_last_checkpoint", "_delta_log"]
    assert log.versions() == [9, 10, 11, 12]


def test_log_files_older_than_a_quarter_of_an_hour_go_at_a_checkpoint(open_table, numbered, root):
    """But for what the version of a quarter of an hour ago is read from."""
    table = open_table()
    log = DeltaLog(root)
    for version in range(1, 13):
        commit(table, numbered("s", version, 1), version)
        if version == 8:
            assert table.checkpoint()
            for path in log.directory.iterdir():
                before = path.stat().st_mtime - 20 * 60
                os.utime(path, (before, before))
    assert table.checkpoint()
    assert log.versions() == [8, 9, 10, 11, 12]


def test_a_checkpoint_is_never_written_over_the_only_one(open_table, numbered, root):
    """An unsynced file in its place, and the log files gone, would be the end of the table."""
    table = open_table()
    commit(table, numbered("s", 0, 5), 1)
    assert table.checkpoint(keep=0)
    [[part]] = DeltaLog(root).checkpoints().values()
    before = part.stat().st_ino
    assert table.checkpoint(keep=0)
    assert part.stat().st_ino == before


def test_the_checkpoint_before_stays_for_who_is_reading_it(open_table, numbered, root):
    table = open_table()
    for number in range(9):
        commit(table, numbered("s", number, 1), number + 1)
        if number % 3 == 2:
            assert table.checkpoint(keep=0)
    assert list(DeltaLog(root).checkpoints()) == [6, 9]
    assert DeltaLog(root).versions() == [6, 7, 8, 9]


def test_a_checkpoint_after_a_refused_commit_first_syncs_what_it_sums_up(
    open_table, numbered, arrow, root, synced, monkeypatch
):
    """A refusal opens the table anew, at a version that somebody else may not have synced."""
    table = open_table()
    commit(table, numbered("s", 0, 5), 1)
    write_deltalake(DeltaTable(str(root)), arrow(numbered("o", 0, 1)), mode="append")

    def refuse(*args, **kwargs):
        raise OSError("refused")

    with monkeypatch.context() as refusing:
        refusing.setattr(DeltaTable, "create_write_transaction", refuse)
        with pytest.raises(StoreError):
            commit(table, numbered("s", 5, 5), 2)
    synced.clear()
    assert table.checkpoint()
    [[part]] = DeltaLog(root).checkpoints().values()
    assert synced.index(DeltaLog(root).path(2)) < synced.index(part)


def test_a_checkpoint_waits_for_the_next_time_while_another_process_is_at_the_log(
    open_table, numbered, root
):
    table = open_table()
    commit(table, numbered("s", 0, 5), 1)
    with DirectoryLock(root.parent, name=durable.LOG_LOCK):
        assert not table.checkpoint()
    assert table.checkpoint()


def _commit_many(table, numbered, commits, *, every, keep):
    longest = 0
    for number in range(commits):
        commit(table, numbered("s", number, 1), number + 1)
        if number % every == every - 1:
            longest = max(longest, sum(1 for _ in DeltaLog(Path(table.root)).directory.iterdir()))
            assert table.checkpoint(keep=keep)
    return longest


def test_the_log_stays_short_over_many_commits(open_table, numbered, root, seqs):
    table = open_table()
    longest = _commit_many(table, numbered, 120, every=10, keep=20)
    checkpoints = 20 // 10 + 1
    assert longest <= 20 + 10 + checkpoints + 2
    assert table.position() == open_table().position() == 120
    assert seqs() == list(range(120))


@pytest.mark.slow
def test_the_log_stays_below_a_thousand_files_with_the_numbers_of_the_daemon(
    open_table, numbered, seqs
):
    table = open_table()
    longest = _commit_many(
        table, numbered, 2500, every=table.checkpoint_every, keep=durable.LOG_VERSIONS_KEPT
    )
    assert longest < 1000
    assert seqs() == list(range(2500))


def test_collectors_that_live_for_a_few_commits_shorten_the_log_too(open_table, numbered, root):
    for life in range(11):
        table = open_table()
        for _ in range(10):
            position = (table.position() or 0) + 1
            commit(table, numbered(str(life), position, 1), position)
    assert list(DeltaLog(root).checkpoints()) == [100]
