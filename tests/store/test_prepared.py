"""Commits made ready before it is their turn: while others land, long before, and when they are refused meanwhile."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tailrace.errors import DescriptorsError, FullError, StoreError, SyncError
from tailrace.store import layout
from tailrace.store.table import SAFE_NS
from tests.store.writer import commit


def parquet_files(root):
    return sorted(path.relative_to(root) for path in root.rglob("*.parquet"))


def named(root):
    return sorted(Path(uri).relative_to(root) for uri in DeltaTable(str(root)).file_uris())


def age(path, seconds):
    written = path.stat().st_mtime - seconds
    os.utime(path, (written, written))


def vacuum(root):
    """Remove what an upkeep removes."""
    DeltaTable(str(root)).vacuum(
        layout.REMOVED_HOURS, dry_run=False, enforce_retention_duration=False, full=True
    )


@pytest.fixture
def refusing(monkeypatch):
    """A function that lets the library refuse commits within a context."""

    def refused(*_, **__):
        raise OSError("no")

    @contextmanager
    def within():
        with monkeypatch.context() as patch:
            patch.setattr(DeltaTable, "create_write_transaction", refused)
            yield

    return within


def test_batches_are_prepared_in_one_thread_while_others_land_in_another(
    open_table, numbered, seqs, root
):
    table = open_table()
    commits, rows = 12, 2_000
    prepared, room, some = [], threading.Semaphore(2), threading.Semaphore(0)

    def prepare():
        for number in range(commits):
            room.acquire()
            prepared.append(table.prepare(numbered("s", number * rows, rows)))
            some.release()

    thread = threading.Thread(target=prepare)
    thread.start()
    for number in range(commits):
        some.acquire()
        table.land(prepared[number], number + 1)
        room.release()
    thread.join()
    assert seqs() == list(range(commits * rows))
    assert parquet_files(root) == named(root)


def test_nothing_of_a_prepared_commit_is_in_the_table_before_it_lands(
    open_table, numbered, seqs, root
):
    table = open_table()
    commit(table, numbered("s", 0, 5), 1)
    rows = table.prepare(numbered("s", 5, 5))
    assert len(rows) == 5
    assert len(parquet_files(root)) == 2
    assert seqs() == list(range(5))
    commit(open_table("two"), numbered("t", 0, 1), 1)
    assert table.position() == 1
    table.land(rows, 2)
    assert open_table().position() == 2


def test_no_upkeep_removes_files_that_wait_for_a_commit_that_is_refused(
    open_table, numbered, seqs, root, refusing
):
    """Each attempt makes them young, those of the commit behind it, too."""
    table = open_table()
    commit(table, numbered("s", 0, 5), 1)
    first, second = (table.prepare(numbered("s", 5 * number, 5)) for number in (1, 2))
    with refusing():
        for _ in range(3):
            waiting = set(parquet_files(root)) - set(named(root))
            assert len(waiting) == 2
            for path in waiting:
                age(root / path, layout.REMOVED_HOURS * 3600 + 60)
            with pytest.raises(StoreError):
                table.land(first, 2)
            vacuum(root)
    table.land(first, 2)
    table.land(second, 3)
    assert seqs() == list(range(15))
    assert parquet_files(root) == named(root)


def test_files_that_were_removed_all_the_same_end_the_process_before_the_log_names_them(
    open_table, numbered, seqs, root
):
    table = open_table()
    commit(table, numbered("s", 0, 5), 1)
    rows = table.prepare(numbered("s", 5, 5))
    (waiting,) = set(parquet_files(root)) - set(named(root))
    age(root / waiting, layout.REMOVED_HOURS * 3600 + 60)
    vacuum(root)
    with pytest.raises(SyncError, match=r"was removed before it: .*No such file"):
        table.land(rows, 2)
    assert open_table().position() == 1
    assert seqs() == list(range(5))


def test_files_that_an_upkeep_may_have_listed_get_another_name(open_table, numbered, seqs, root):
    table = open_table()
    rows = table.prepare(numbered("s", 0, 5))
    (listed,) = parquet_files(root)
    age(root / listed, SAFE_NS / 1e9 + 1)
    table.land(rows, 1)
    (found,) = named(root)
    assert found != listed
    assert parquet_files(root) == [found]
    assert seqs() == list(range(5))
    rows = table.prepare(numbered("s", 5, 5))
    (young,) = set(parquet_files(root)) - {found}
    age(root / young, SAFE_NS / 1e9 - 60)
    table.land(rows, 2)
    assert named(root) == sorted([found, young])


def test_a_file_keeps_its_name_while_no_descriptor_is_free(
    open_table, numbered, seqs, root, monkeypatch
):
    table = open_table()
    rows = table.prepare(numbered("s", 0, 5))
    (listed,) = parquet_files(root)
    age(root / listed, SAFE_NS / 1e9 + 1)

    def refused(path, *_, **__):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        with pytest.raises(DescriptorsError):
            table.land(rows, 1)
    assert parquet_files(root) == [listed]
    table.land(rows, 1)
    (found,) = named(root)
    assert found != listed
    assert seqs() == list(range(5))


def test_a_store_that_is_away_for_a_while_is_waited_for(open_table, numbered, seqs, root, store):
    table = open_table()
    rows = table.prepare(numbered("s", 0, 5))
    store.rename(store.with_name("away"))
    with pytest.raises(StoreError, match="No such file"):
        table.land(rows, 1)
    store.with_name("away").rename(store)
    table.land(rows, 1)
    assert seqs() == list(range(5))


@pytest.mark.parametrize(
    ("call", "number", "error"),
    [
        ("open", errno.EMFILE, DescriptorsError),
        ("utime", errno.ENOSPC, FullError),
        ("utime", errno.EROFS, StoreError),
    ],
)
def test_a_system_that_refuses_a_call_for_a_while_is_waited_for(
    open_table, numbered, seqs, monkeypatch, call, number, error
):
    table = open_table()
    commit(table, numbered("s", 0, 5), 1)
    rows = table.prepare(numbered("s", 5, 5))

    def refused(path, *_, **__):
        raise OSError(number, os.strerror(number), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refused)
        with pytest.raises(error, match=os.strerror(number)):
            table.land(rows, 2)
    table.land(rows, 2)
    assert seqs() == list(range(10))


def test_a_lost_file_of_the_next_commit_does_not_stop_this_one(open_table, numbered, seqs, root):
    table = open_table()
    first = table.prepare(numbered("s", 0, 5))
    before = set(parquet_files(root))
    second = table.prepare(numbered("s", 5, 5))
    (lost,) = set(parquet_files(root)) - before
    (root / lost).unlink()
    table.land(first, 1)
    assert seqs() == list(range(5))
    with pytest.raises(SyncError):
        table.land(second, 2)


def test_a_refused_commit_lands_when_it_is_repeated_with_the_same_files(
    open_table, numbered, seqs, root, refusing
):
    table = open_table()
    rows = table.prepare(numbered("s", 0, 5))
    with refusing():
        for _ in range(2):
            with pytest.raises(StoreError):
                table.land(rows, 1)
    written = parquet_files(root)
    table.land(rows, 1)
    assert written == parquet_files(root) == named(root)
    assert seqs() == list(range(5))


def test_nothing_is_prepared_after_a_failed_sync(open_table, numbered, monkeypatch):
    table = open_table()
    rows = table.prepare(numbered("s", 0, 5))

    def broken(_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(SyncError):
        table.land(rows, 1)
    monkeypatch.undo()
    with pytest.raises(SyncError):
        table.prepare(numbered("s", 0, 5))
