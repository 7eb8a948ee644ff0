from __future__ import annotations

import errno
import os
from datetime import date

import pytest
from deltalake import DeltaTable, Field, write_deltalake

from tailrace.clock import SystemClock
from tailrace.errors import FencedError, StoreError, SyncError
from tailrace.rows.batch import Batch
from tailrace.rows.schema import COLUMNS
from tailrace.store import schema, table as table_module
from tailrace.store.durable import NO_HOOKS
from tailrace.store.layout import TableSnapshot
from tailrace.store.log import DeltaLog
from tailrace.store.table import Table
from tests.store.writer import commit


def test_a_new_table_has_the_columns_and_the_properties_that_keep_it_safe(open_table, root):
    open_table()
    table = DeltaTable(str(root))
    fields = [(f.name, f.type.type, f.nullable) for f in table.schema().fields]
    assert fields == [(c.name, c.type, c.nullable) for c in COLUMNS]
    assert table.metadata().partition_columns == ["day"]
    stated = table.metadata().configuration
    assert stated["tailrace.schema"] == str(schema.SCHEMA_VERSION)
    assert stated["delta.enableExpiredLogCleanup"] == "false"
    assert int(stated["delta.checkpointInterval"]) > 10**8


def test_rows_and_position_become_visible_in_one_version(open_table, numbered, root, seqs):
    table = open_table()
    assert table.position() is None
    commit(table, numbered("s", 0, 10), 100)
    commit(table, numbered("s", 10, 10), 250)
    assert table.version() == 2
    for version, rows, position in ((0, 0, None), (1, 10, 100), (2, 20, 250)):
        seen = DeltaTable(str(root), version=version)
        assert seen.count() == rows
        assert seen.transaction_version("one/spool") == position
    assert seqs() == list(range(20))


def test_a_restart_goes_on_at_the_committed_position(open_table, numbered, seqs):
    commit(open_table(), numbered("s", 0, 5), 7)
    again = open_table()
    assert again.position() == 7
    commit(again, numbered("s", 5, 5), 9)
    assert seqs() == list(range(10))


def test_collectors_have_positions_of_their_own(open_table, numbered, seqs):
    one, two = open_table("one"), open_table("two")
    for number in range(4):
        commit(one, numbered("a", 5 * number, 5), number + 1)
        commit(two, numbered("b", 5 * number, 5), 100 * number + 1)
    assert (one.position(), two.position()) == (4, 301)
    assert seqs("a") == seqs("b") == list(range(20))


def test_days_of_a_batch_go_to_their_partitions(open_table, numbered, root):
    batch = numbered("s", 0, 3)
    batch.day = 20_001
    batch.extend("test", "heph", "later", numbered("s", 3, 4).parts[0].rows, 1)
    commit(open_table(), batch, 1)
    rows = {
        file.day: file.rows for file in TableSnapshot.open(str(root.parent), options={}).files()
    }
    assert rows == {20_000: 3, 20_001: 4}
    table = DeltaTable(str(root)).scan(columns=["day", "seq"]).read_all()
    days = dict(zip(table.column("seq").to_pylist(), table.column("day").to_pylist(), strict=True))
    assert (days[0], days[6]) == (date(2024, 10, 4), date(2024, 10, 5))


def test_an_advance_without_rows_is_stored_and_no_advance_is_nothing(open_table, root):
    table = open_table()
    commit(table, Batch(), 0)
    assert table.version() == 0
    commit(table, Batch(), 40)
    assert (table.version(), open_table().position()) == (1, 40)
    table = open_table()
    commit(table, Batch(), 40)
    assert DeltaLog(root).versions() == [0, 1]
    assert DeltaTable(str(root)).file_uris() == []


@pytest.mark.parametrize("position", [3, 5])
def test_rows_whose_position_does_not_advance_are_refused(open_table, numbered, position, seqs):
    table = open_table()
    commit(table, numbered("s", 0, 5), 5)
    with pytest.raises(ValueError, match="5 is committed"):
        commit(table, numbered("s", 5, 5), position)
    assert seqs() == list(range(5))


def test_a_delta_table_of_somebody_else_is_refused_and_left_alone(
    open_table, numbered, arrow, root
):
    write_deltalake(str(root), arrow(numbered("s", 0, 3)))
    before = sorted(root.rglob("*"))
    with pytest.raises(StoreError, match="not one of Tailrace's"):
        open_table()
    assert sorted(root.rglob("*")) == before


def test_a_table_with_other_columns_is_refused(open_table, root):
    open_table()
    DeltaTable(str(root)).alter.add_columns([Field("extra", "long")])
    with pytest.raises(StoreError, match=r"has besides extra\. A version of Tailrace before"):
        open_table()


def test_a_store_that_cannot_be_made_is_a_store_error_with_the_reason(open_table, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="Not a directory"):
        open_table(path=tmp_path / "file" / "store")


def test_of_two_instances_of_one_collector_the_older_one_is_fenced(open_table, numbered, seqs):
    older = open_table()
    commit(older, numbered("s", 0, 5), 1)
    newer = open_table()
    commit(newer, numbered("s", 5, 5), 2)
    with pytest.raises(FencedError, match="another instance of collector one"):
        commit(older, numbered("s", 5, 5), 2)
    commit(newer, numbered("s", 10, 5), 3)
    assert seqs() == list(range(15))


def test_a_newer_instance_that_opened_before_the_older_ones_last_commit_is_fenced(
    open_table, numbered, seqs
):
    older = open_table()
    newer = open_table()
    commit(older, numbered("s", 0, 5), 1)
    with pytest.raises(FencedError):
        commit(newer, numbered("s", 0, 5), 1)
    assert seqs() == list(range(5))


def test_an_older_instance_is_fenced_that_learns_of_the_newer_ones_commit_by_its_own(
    open_table, numbered, monkeypatch, seqs
):
    """The newer instance commits between the older one's commit and its next look at the table."""
    older, newer = open_table(), None
    look = DeltaTable.update_incremental

    def late(table):
        nonlocal newer
        monkeypatch.undo()
        newer = open_table()
        commit(newer, numbered("s", newer.position(), 5), 10)
        look(table)

    monkeypatch.setattr(DeltaTable, "update_incremental", late)
    with pytest.raises(FencedError, match="it stands at 10"):
        commit(older, numbered("s", 0, 5), 5)
    with pytest.raises(FencedError):
        commit(older, numbered("s", 5, 5), 10)
    commit(newer, numbered("s", 10, 5), 15)
    assert seqs() == list(range(15))


def test_a_table_that_others_write_is_opened_anew_and_if_that_fails_later(
    open_table, numbered, monkeypatch, seqs
):
    monkeypatch.setattr(table_module, "RENEW_DUE", 6)
    one, two = open_table("one"), open_table("two")
    asked, real = [], Table._ask

    def ask(table):
        asked.append(table._collector)
        if len(asked) == 1:
            raise StoreError("not now")
        return real(table)

    monkeypatch.setattr(Table, "_ask", ask)
    for number in range(8):
        commit(one, numbered("a", 5 * number, 5), number + 1)
        commit(two, numbered("b", 5 * number, 5), number + 1)
    assert {"one", "two"} == set(asked)
    assert 3 <= len(asked) <= 8
    assert (seqs("a"), seqs("b")) == (list(range(40)), list(range(40)))


def test_a_commit_beside_another_collectors_is_no_reason_to_be_fenced(
    open_table, numbered, monkeypatch, seqs
):
    one, two = open_table("one"), open_table("two")
    look = DeltaTable.update_incremental

    def late(table):
        monkeypatch.undo()
        commit(two, numbered("b", 0, 5), 7)
        look(table)

    monkeypatch.setattr(DeltaTable, "update_incremental", late)
    commit(one, numbered("a", 0, 5), 5)
    commit(one, numbered("a", 5, 5), 10)
    commit(two, numbered("b", 5, 5), 9)
    assert (seqs("a"), seqs("b")) == (list(range(10)), list(range(10)))


def test_an_older_instance_is_fenced_when_it_shortens_the_log_too(open_table, numbered):
    older = open_table()
    commit(older, numbered("s", 0, 5), 1)
    commit(open_table(), numbered("s", 5, 5), 2)
    with pytest.raises(FencedError):
        older.checkpoint()
    with pytest.raises(FencedError):
        commit(older, numbered("s", 5, 5), 2)


def test_an_epoch_is_never_used_twice_though_the_clock_stands(open_table, numbered):
    class Standing(SystemClock):
        def wall_ns(self):
            return 10**18

    older = open_table(clock=Standing())
    commit(older, numbered("s", 0, 5), 1)
    newer = open_table(clock=Standing())
    commit(newer, numbered("s", 5, 5), 2)
    with pytest.raises(FencedError):
        commit(older, numbered("s", 5, 5), 2)


def test_a_commit_beside_a_deleted_partition_is_done_again_by_itself(
    open_table, numbered, root, seqs
):
    table = open_table()
    commit(table, numbered("s", 0, 5), 1)
    DeltaTable(str(root)).delete("day < '2030-01-01'", post_commithook_properties=NO_HOOKS)
    commit(table, numbered("s", 5, 5), 2)
    assert (table.position(), seqs()) == (2, list(range(5, 10)))


def test_a_table_long_left_open_commits_though_the_log_it_stood_at_is_gone(
    open_table, numbered, root, seqs
):
    idle, busy = open_table("idle"), open_table("busy")
    for number in range(12):
        commit(busy, numbered("b", number, 1), number + 1)
    assert busy.checkpoint(keep=2)
    assert min(DeltaLog(root).versions()) > idle.version()
    commit(idle, numbered("i", 0, 3), 1)
    assert (seqs("b"), seqs("i")) == (list(range(12)), [0, 1, 2])


def _failing_after(monkeypatch, error):
    """The library commits and then says that it did not, once."""

    def write(*args, **kwargs):
        monkeypatch.undo()
        DeltaTable.create_write_transaction(*args, **kwargs)
        raise error

    monkeypatch.setattr(DeltaTable, "create_write_transaction", write)


def test_a_commit_that_landed_although_it_raised_is_not_done_again(
    open_table, numbered, monkeypatch, seqs
):
    table = open_table()
    commit(table, numbered("s", 0, 5), 1)
    _failing_after(monkeypatch, OSError("connection reset"))
    commit(table, numbered("s", 5, 5), 2)
    assert table.version() == 2
    commit(table, numbered("s", 10, 5), 3)
    assert seqs() == list(range(15))


def test_what_landed_unseen_while_the_table_could_not_be_asked_is_not_done_again(
    open_table, numbered, monkeypatch, root, seqs
):
    table = open_table()
    commit(table, numbered("s", 0, 5), 1)
    log = root / "_delta_log"

    def write(*args, **kwargs):
        monkeypatch.undo()
        DeltaTable.create_write_transaction(*args, **kwargs)
        log.rename(root / "_out_of_reach")
        raise OSError("connection reset")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", write)
    with pytest.raises(StoreError, match="not a Tailrace store"):
        commit(table, numbered("s", 5, 5), 2)
    assert table.position() == 1
    (root / "_out_of_reach").rename(log)
    commit(table, numbered("s", 5, 5), 2)
    assert (table.position(), seqs()) == (2, list(range(10)))


def test_after_a_failed_sync_nothing_is_acknowledged_ever_again(open_table, numbered, monkeypatch):
    table = open_table()
    commit(table, numbered("s", 0, 5), 1)

    def fsync(fd):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(SyncError):
        commit(table, numbered("s", 5, 5), 2)
    monkeypatch.undo()
    for call in (lambda: commit(table, numbered("s", 5, 5), 2), table.checkpoint):
        with pytest.raises(SyncError):
            call()
    assert table.position() == 1


def test_a_snapshot_stands_still_until_it_is_refreshed(open_table, numbered, store):
    table = open_table()
    commit(table, numbered("s", 0, 5), 1)
    snapshot = TableSnapshot.open(str(store), options={})
    commit(table, numbered("s", 5, 5), 2)
    assert (snapshot.version(), len(snapshot.file_uris())) == (1, 1)
    assert snapshot.refresh()
    assert not snapshot.refresh()
    assert snapshot.version() == table.version() == 2
    assert len(snapshot.file_uris()) == 2
    assert all(os.path.isfile(path) for path in snapshot.file_uris())  # noqa: PTH113 - they are strings


def test_a_snapshot_of_an_empty_table_has_no_files_and_of_none_is_an_error(open_table, store):
    with pytest.raises(StoreError, match="not a Tailrace store"):
        TableSnapshot.open(str(store), options={})
    open_table()
    assert TableSnapshot.open(str(store), options={}).files() == []
