from __future__ import annotations

import pytest
from deltalake import DeltaTable, Field
from deltalake.exceptions import CommitFailedError

from tailrace.clock import SystemClock
from tailrace.config.schema import StoreConfig
from tailrace.errors import StoreError
from tailrace.store import durable, schema, upkeep
from tailrace.store.durable import NO_HOOKS
from tailrace.store.layout import TableSnapshot
from tailrace.store.log import DeltaLog, Journal
from tailrace.store.schema import SCHEMA_VERSION, STEPS
from tests.store.writer import commit
from tests.upgrade import later


@pytest.fixture
def written(open_table, numbered):
    """A table with ten rows, by collector "one"."""
    commit(open_table(), numbered("s", 0, 10), 100)


@pytest.fixture
def older(written, monkeypatch):
    """The same, as a later version of Tailrace finds it."""
    later.register(monkeypatch.setattr)


def version(root):
    return schema.version_of(DeltaTable(str(root)))


def test_there_is_a_step_to_each_version_since_the_first():
    assert [step.version for step in STEPS] == list(range(2, SCHEMA_VERSION + 1))


def test_an_older_table_is_brought_to_the_newest_version_in_one_commit_a_step(
    older, open_table, numbered, root, seqs, monkeypatch
):
    monkeypatch.setattr(schema, "SCHEMA_VERSION", later.SCHEMA + 1)
    monkeypatch.setattr(
        schema, "STEPS", (*schema.STEPS, schema.SchemaStep(later.SCHEMA + 1, "more"))
    )
    table = open_table()
    before = table.version()
    assert (version(root), table.position()) == (
        SCHEMA_VERSION,
        100,
    )  # opening alone changes nothing
    taken = table.upgrade()
    assert [step.version for step in taken] == [later.SCHEMA, later.SCHEMA + 1]
    assert version(root) == later.SCHEMA + 1
    assert table.version() == before + len(taken)
    assert table.position() == open_table().position() == 100
    assert table.upgrade() == []
    commit(table, numbered("s", 10, 5), 200)
    assert seqs() == list(range(15))


def test_an_upgrade_is_synced(older, open_table, root, monkeypatch):
    table = open_table()
    synced = []
    real = durable.sync
    monkeypatch.setattr(durable, "sync", lambda *args: synced.append(args[1:]) or real(*args))
    before = table.version()
    table.upgrade()
    assert synced == [(before, table.version())]


def test_an_upgrade_that_was_not_on_disk_when_the_power_went_is_done_again(
    older, open_table, root, seqs
):
    """The rest of its version: nothing, an empty file, a part, zeros."""
    open_table().upgrade()
    path = DeltaLog(root).path(DeltaLog(root).versions()[-1])
    whole = path.read_bytes()
    for left in (None, b"", whole[: len(whole) // 2], bytes(len(whole))):
        Journal(root).path.unlink()  # nothing of it was noted yet
        if left is None:
            path.unlink()
        else:
            path.write_bytes(left)
        table = open_table()
        assert version(root) == SCHEMA_VERSION
        assert [step.version for step in table.upgrade()] == [later.SCHEMA]
        assert seqs() == list(range(10))


def test_an_upgrade_that_landed_though_it_was_said_to_have_failed_is_not_done_twice(
    older, open_table, root, monkeypatch
):
    real = schema.take

    def take(step, table):
        monkeypatch.setattr(schema, "take", real)
        real(step, table)
        raise CommitFailedError("the answer got lost")

    table = open_table()
    monkeypatch.setattr(schema, "take", take)
    table.upgrade()
    versions = [
        a.meta_data
        for v in DeltaLog(root).versions()
        for a in DeltaLog(root).read(v)
        if a.meta_data
    ]
    assert [m.configuration["tailrace.schema"] for m in versions] == ["1", "2"]
    assert version(root) == later.SCHEMA


def test_two_collectors_that_upgrade_at_once_both_go_on(older, open_table, numbered, seqs, root):
    one, two = open_table("one"), open_table("two")
    assert one.upgrade()
    assert two.upgrade() in ([], list(schema.STEPS))
    commit(one, numbered("s", 10, 5), 200)
    commit(two, numbered("t", 0, 5), 50)
    assert (seqs("s"), seqs("t")) == (list(range(15)), list(range(5)))
    assert version(root) == later.SCHEMA


def test_a_table_of_a_newer_version_is_refused_to_writers_and_left_alone(
    written, open_table, store, root, say_schema
):
    say_schema(SCHEMA_VERSION + 1)
    before = sorted(root.rglob("*"))
    with pytest.raises(
        StoreError, match=r"newer Tailrace \(schema 2; this one knows 1\): use that one"
    ):
        open_table()
    with pytest.raises(StoreError, match="newer Tailrace"):
        upkeep.run(str(store), StoreConfig(), clock=SystemClock(), everything=True)
    assert sorted(path for path in root.rglob("*")) == before


def test_a_collector_stops_committing_when_another_one_has_upgraded_the_table_beyond_it(
    open_table, numbered, say_schema, seqs
):
    """As in a rolling upgrade of many hosts on one table: the spools keep what comes meanwhile."""
    table = open_table()
    commit(table, numbered("s", 0, 5), 1)
    say_schema(SCHEMA_VERSION + 1)
    for _ in range(2):
        with pytest.raises(StoreError, match="newer Tailrace"):
            commit(table, numbered("s", 5, 5), 2)
    assert seqs() == list(range(5))
    say_schema(SCHEMA_VERSION)
    commit(table, numbered("s", 5, 5), 2)
    assert seqs() == list(range(10))


def test_a_newer_table_is_read_with_a_warning_if_it_has_our_columns(
    written, store, root, say_schema, caplog
):
    DeltaTable(str(root)).alter.add_columns(
        [Field("extra", "long")], post_commithook_properties=NO_HOOKS
    )
    say_schema(SCHEMA_VERSION + 1)
    assert sum(file.rows for file in TableSnapshot.open(str(store), options={}).files()) == 10
    assert "newer Tailrace (schema 2; this one knows 1)" in caplog.text


def test_a_table_whose_comments_were_changed_is_written_further(
    written, open_table, numbered, root, seqs
):
    DeltaTable(str(root)).alter.set_column_metadata(
        "seq", {"comment": "another text"}, post_commithook_properties=NO_HOOKS
    )
    commit(open_table(), numbered("s", 10, 5), 200)
    assert seqs() == list(range(15))


@pytest.mark.parametrize("stated", ["", "0", "-1", "two"])
def test_what_is_no_version_is_no_table_of_ours(written, open_table, store, say_schema, stated):
    say_schema(stated)
    with pytest.raises(StoreError, match="not one of Tailrace's"):
        open_table()
    with pytest.raises(StoreError, match="not one of Tailrace's"):
        TableSnapshot.open(str(store), options={})
