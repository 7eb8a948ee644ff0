"""Test the engine: it shows one snapshot, whatever happens to the table meanwhile."""

from __future__ import annotations

import shutil
import threading

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tailrace.errors import QueryError, StoreError
from tailrace.query import catalog, engine as engine_module
from tailrace.query.answer import PAGE_ROWS
from tailrace.query.engine import Engine, is_interrupt
from tailrace.query.limits import Limits
from tailrace.query.views import VIEWS
from tailrace.store.layout import table_root
from tailrace.store.schema import VERSION_PROPERTY
from tailrace.units import Size
from tests.query.tables import (
    SCHEMA,
    ask,
    clocked,
    commit,
    commit_many,
    compact,
    dicts,
    gap,
    heal,
    later,
    make,
    row,
    vacuum,
)  # fmt: skip

ENDLESS = "SELECT count(*) FROM range(1000000000000) AS a(i), range(9) WHERE i % 7 = 3"


def names(engine, view="events"):
    return sorted(e["name"] for e in dicts(engine.ask(f"FROM {view} SELECT name")))


def test_a_store_without_a_table_is_named(tmp_path):
    with pytest.raises(StoreError, match=str(tmp_path / "nowhere")):
        Engine(str(tmp_path / "nowhere"))


def test_a_table_of_somebody_else_is_refused(tmp_path):
    write_deltalake(str(tmp_path / "events"), pa.table({"x": [1]}))
    with pytest.raises(StoreError, match=str(tmp_path)):
        Engine(str(tmp_path))


def test_an_empty_table_has_empty_views_until_there_is_something(tmp_path):
    engine = Engine(make(tmp_path))
    for view in VIEWS:
        answer = engine.ask(f"FROM {view.name}")
        assert [c.name for c in answer.columns] == [c.name for c in view.columns]
        assert answer.next_page() == []
    commit(tmp_path, [row(name="first")])
    assert engine.refresh()
    assert names(engine) == ["first"]


def older_table(store, lacking):
    """Create a table with one row, as a version of schema 1 without the newer columns created it."""
    fields = [field for field in SCHEMA if field.name != lacking]
    data = pa.table(
        [pa.array([row(name="old")[f.name]], f.type) for f in fields], pa.schema(fields)
    )
    table = DeltaTable.create(
        table_root(str(store)),
        data.schema,
        partition_by=["day"],
        configuration={VERSION_PROPERTY: "1"},
        raise_if_key_not_exists=False,
    )
    write_deltalake(table, data, mode="append")


@pytest.mark.parametrize("lacking", ["category", "time"])
def test_what_an_older_table_lacks_is_null_in_the_views(tmp_path, monkeypatch, lacking):
    older_table(tmp_path, lacking)
    monkeypatch.setattr("tailrace.store.schema.SCHEMA_VERSION", 2)
    engine = Engine(str(tmp_path), {})
    [found] = dicts(engine.ask("FROM events"))
    assert (found["name"], found[lacking]) == ("old", None)
    for view in VIEWS:
        dicts(engine.ask(f"FROM {view.name}"))


def test_a_snapshot_stays_until_the_next_is_asked_for(tmp_path):
    engine = Engine(make(tmp_path, [row(name="a")]))
    commit(tmp_path, [row(name="b")])
    assert names(engine) == ["a"]
    assert engine.refresh()
    assert names(engine) == ["a", "b"]
    assert not engine.refresh()


def test_files_that_upkeep_deletes_are_replaced_by_a_new_snapshot(tmp_path):
    engine = Engine(make(tmp_path, [row(name="a")], [row(name="b")]))
    compact(tmp_path)
    vacuum(tmp_path)
    assert engine.table.missing_files()
    assert names(engine) == ["a", "b"]
    assert engine.table.missing_files() == []


def test_arrow_gets_a_new_snapshot_as_well(tmp_path):
    engine = Engine(make(tmp_path, [row(name="a")], [row(name="b")]))
    compact(tmp_path)
    vacuum(tmp_path)
    assert engine.ask_arrow("SELECT name FROM events").next_batch().num_rows == 2


def test_facts_about_a_snapshot_are_replaced_with_it(tmp_path):
    """The log of the first version states one row without a time, and so do the rare rows of the second one."""
    engine = Engine(make(tmp_path, [clocked(epoch=0), row(name="a", time=1)]))
    commit(tmp_path, [row(name="b", start=2)])
    compact(tmp_path)
    vacuum(tmp_path)
    engine.restrict("sim")
    assert list(engine.rows("SELECT time FROM events WHERE name = 'b'")) == [(2,)]


def test_a_file_that_the_table_lacks_is_named(tmp_path):
    engine = Engine(make(tmp_path, [row(name="a")], [row(name="b")]))
    (file, _) = engine.table.file_uris()
    shutil.move(file, tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=file):
        engine.ask("FROM events")


def test_a_damaged_file_is_an_error_and_no_crash(tmp_path):
    engine = Engine(make(tmp_path, [row(name="a")], [row(name="b")]))
    for file in tmp_path.glob("events/day=*/*.parquet"):
        file.write_bytes(file.read_bytes()[:-9] + b"\x00" * 9)
    with pytest.raises(StoreError, match=f"{tmp_path}/events: cannot be read"):
        engine.ask("FROM events")
    with pytest.raises(StoreError, match=f"{tmp_path}/events: cannot be read"):
        Engine(str(tmp_path)).ask("FROM gaps")


@pytest.mark.parametrize(
    "name", ["with space", "it's", "a*b", "a?b", "100%", "day=2001-01-01", "a=b", "ünï", "#"]
)
def test_any_directory_will_do(tmp_path, name):
    store = tmp_path / name
    make(store, [row(name="one")], [row(name="two")])
    for decoy in {"axb", "a", "b"} - {name}:  # a path that a glob pattern would match, too
        shutil.copytree(store, tmp_path / decoy)
    days = ask(store, "SELECT DISTINCT day FROM events")
    assert [str(day["day"]) for day in days] == ["2026-11-21"]
    assert [c["column_name"] for c in ask(store, "DESCRIBE stored")] == SCHEMA.names
    assert len(ask(store, "FROM events")) == 2


def test_a_relative_path_and_a_file_url_will_do(tmp_path, monkeypatch):
    make(tmp_path / "store", [row()])
    monkeypatch.chdir(tmp_path)
    assert len(ask("store", "FROM events")) == 1
    assert len(ask(f"file://{tmp_path}/store", "FROM events")) == 1


def test_days_are_told_apart_by_their_directories(tmp_path):
    make(tmp_path, [row(day=later(i), name=str(i)) for i in range(3)])
    days = ask(tmp_path, "SELECT day, name FROM events ORDER BY day")
    assert [(str(d["day"]), d["name"]) for d in days] == [
        ("2026-11-21", "0"), ("2026-11-22", "1"), ("2026-11-23", "2"),
    ]  # fmt: skip


def test_a_hundred_thousand_rows_in_many_files_are_all_there(tmp_path):
    make(tmp_path)
    for first in range(0, 100_000, 12_500):
        numbers = range(first, first + 12_500)
        different = {
            "seq": numbers,
            "name": [f"n{i % 7}" for i in numbers],
            "start": numbers,
            "end": [i + i % 3 for i in numbers],
            "offset": [90 * i for i in numbers],
            "stream": [str(i % 5) for i in numbers],
        }
        commit_many(tmp_path, len(numbers), different=different)
    engine = Engine(str(tmp_path))
    answer = engine.ask('SELECT seq, name FROM spans ORDER BY "offset"')
    seen = []
    while page := answer.next_page():
        assert len(page) <= PAGE_ROWS
        seen += page
    assert seen == [(i, f"n{i % 7}") for i in range(100_000)]
    (total,) = dicts(engine.ask("SELECT sum(ticks) AS ticks, count(*) AS spans FROM spans"))
    assert total == {"ticks": sum(i % 3 for i in range(100_000)), "spans": 100_000}


def test_the_connection_itself_is_locked(tmp_path):
    """This protects the host if the checks of statements let something pass."""
    connection = Engine(make(tmp_path, [row()])).connection
    variable = pa.table({"x": [1]})
    for sql in (
        "SET threads = 1",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "LOAD httpfs",
        f"COPY (SELECT 1) TO '{tmp_path}/x.csv'",
        f"ATTACH '{tmp_path}/x.db'",
        "FROM '/etc/passwd'",
        "FROM read_text('/etc/passwd')",
        "FROM variable",
    ):
        with pytest.raises(duckdb.Error):
            connection.execute(sql)
    assert variable.num_rows == 1
    assert [path.name for path in tmp_path.iterdir()] == ["events"]


def test_what_takes_too_long_is_ended(tmp_path):
    engine = Engine(make(tmp_path, [row()]), limits=Limits(seconds=1, threads=1))
    with pytest.raises(QueryError, match="time"):
        engine.ask(ENDLESS)
    assert len(dicts(engine.ask("FROM events"))) == 1


def test_what_takes_too_long_is_ended_when_a_snapshot_is_looked_through_as_well(
    tmp_path, monkeypatch
):
    """A large table, in which rows of rare kinds must be searched."""
    engine = Engine(make(tmp_path, [row()]), limits=Limits(seconds=0.2))
    monkeypatch.setitem(catalog.KEPT, catalog.FEW_ROWS, f"FROM ({ENDLESS})")
    with pytest.raises(QueryError, match="time"):
        engine.ask("FROM events")


def defined(engine):
    """The views that a database has, without that of the snapshot's rows."""
    views = "SELECT view_name FROM duckdb_views() WHERE NOT internal AND view_name <> 'stored'"
    return {name for (name,) in engine.connection.execute(views).fetchall()}


def test_a_statement_defines_the_views_that_it_names_and_no_others(tmp_path):
    engine = Engine(make(tmp_path, [row()]))
    engine.ask("SELECT 1 AS one")
    assert defined(engine) == set()
    engine.ask('SELECT count(*) FROM "Gaps"')
    made_of = {"all_gaps", "own_gaps", "findings", "courses", "session_words", "shown"}
    assert defined(engine) == {"gaps", *made_of}
    engine.ask("WITH s AS (FROM streams) FROM s")
    assert defined(engine) > {"gaps", "streams", "open_begins"}
    assert not defined(engine) & {"events", "spans", "sessions"}


def test_a_comment_in_the_sql_of_a_view_defines_no_other_view(tmp_path):
    engine = Engine(make(tmp_path, [row()]))
    list(engine.rows("FROM part.damaged_sources"))
    assert defined(engine) == {"damaged_sources", "shown"}


@pytest.mark.parametrize(
    "sql", ["SHOW TABLES", "DESCRIBE", "FROM duckdb_views()", "FROM pragma_table_info('spans')"]
)
def test_a_statement_that_lists_views_finds_them_all(tmp_path, sql):
    engine = Engine(make(tmp_path, [row()]))
    found = str(dicts(engine.ask(sql)))
    if "pragma" in sql:
        assert "duration" in found
    else:
        assert [view.name for view in VIEWS if f"'{view.name}'" not in found] == []


def test_a_view_that_does_not_exist_is_answered_with_one_that_does(tmp_path):
    engine = Engine(make(tmp_path, [row()]))
    with pytest.raises(QueryError, match='Did you mean "spans"'):
        engine.ask("FROM span")


def test_a_limit_of_memory_is_kept_without_files_in_the_working_directory(tmp_path, monkeypatch):
    make(tmp_path / "store", [row()])
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    limits = Limits(memory=Size.parse("60 MB"), threads=1)
    engine = Engine(str(tmp_path / "store"), limits=limits)
    sql = "SELECT i, hash(i)::VARCHAR AS h FROM range(1500000) AS t(i) ORDER BY h"
    # the result is larger than the limit, so that DuckDB writes to disk
    assert engine.ask(sql).next_page()
    assert list((tmp_path / "here").iterdir()) == []


def test_no_more_is_spilled_to_disk_than_may_be(tmp_path):
    limits = Limits(memory=Size.parse("100 MB"), threads=1, spill=Size.parse("20 MB"))
    engine = Engine(make(tmp_path, [row()]), limits=limits)
    sql = "SELECT i, printf('%0100d', i) AS t FROM range(1500000) AS t(i) ORDER BY hash(i)"
    with pytest.raises(QueryError, match="max_temp_directory_size"):
        engine.ask(sql)
    assert len(dicts(engine.ask("FROM events"))) == 1


SPILLING = "SELECT i, printf('%0100d', i) AS t FROM range(1500000) AS t(i) ORDER BY hash(i)"
SMALL = Limits(memory=Size.parse("100 MB"), threads=1, spill=Size.parse("20 MB"))


@pytest.mark.parametrize(
    ("limits", "sql", "words"),
    [
        (Limits(seconds=0.5, threads=1), ENDLESS, "takes longer than 0.5 s: choose"),
        (SMALL, SPILLING, "needs more memory or temporary disk space than"),
        (Limits(), "SELECT error('of the engine')", "could not be evaluated"),
    ],
)
def test_an_error_of_a_statement_of_ours_has_no_words_of_the_engine(tmp_path, limits, sql, words):
    engine = Engine(make(tmp_path, [row()]), limits=limits)
    with pytest.raises(QueryError, match=words) as raised:
        list(engine.rows(sql))
    assert "Error" not in str(raised.value)
    assert "engine" not in str(raised.value)


def test_another_thread_can_end_a_statement(tmp_path):
    engine = Engine(make(tmp_path, [row()]))
    stop = threading.Event()

    def interrupt():
        while not stop.wait(0.05):
            engine.interrupt()

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(QueryError, match=r"(?i)interrupt"):
            engine.ask(ENDLESS)
    finally:
        stop.set()
        thread.join()


def test_what_fails_half_way_says_so(tmp_path):
    engine = Engine(make(tmp_path, [row()]))
    sql = "SELECT repeat('x', 1000) AS x, if(i = 90000, error('half way'), i) AS i FROM range(99999) AS t(i)"
    answer = engine.ask(sql)
    assert len(answer.next_page()) == PAGE_ROWS
    with pytest.raises(QueryError, match="half way"):
        dicts(answer)


def test_the_views_are_the_same_through_a_dataset(tmp_path, monkeypatch):
    """As for a table behind a URL, where DuckDB itself opens no file."""
    rows = [
        clocked(epoch=5), row(seq=0, start=1, end=4), gap(2, 1), heal(1, 2), row(seq=3, start=9),
        row("begin", id=1, start=2, attributes={"x": 1}), row("begin", id=2, start=3),
        row("span", id=1, start=2, end=8), row("instant", attributes={"$name": "k"}),
        row("name", name="late", attributes={"$key": "k", "$scope": "source"}, session="b"),
    ]  # fmt: skip
    make(tmp_path, rows[:4], rows[4:])
    local = Engine(str(tmp_path))
    monkeypatch.setattr("tailrace.query.table.is_local", lambda root: False)
    remote = Engine(str(tmp_path))
    assert not remote.table.local
    for view in VIEWS:
        # Only a local store shows whether a collector uses it.
        columns = "* EXCLUDE state" if view.name in {"sessions", "streams"} else "*"
        sql = f"SELECT {columns} FROM {view.name} ORDER BY ALL"  # noqa: S608 - our own words
        assert dicts(remote.ask(sql)) == dicts(local.ask(sql))
    with pytest.raises(QueryError, match="disabled"):
        remote.ask(f"FROM '{remote.table.file_uris()[0]}'")


def test_there_is_no_end_of_deleting_faster_than_reading(tmp_path, monkeypatch):
    """Each snapshot loses its files at once. The statement must end with an error, instead of running for ever."""
    engine = Engine(make(tmp_path, [row(name="0")]))
    refresh = engine.table.refresh

    def overtaken():
        commit(tmp_path, [row()])
        compact(tmp_path)
        newer = refresh()
        commit(tmp_path, [row()])
        compact(tmp_path)
        vacuum(tmp_path)
        return newer

    monkeypatch.setattr(engine.table, "refresh", overtaken)
    overtaken()
    with pytest.raises(StoreError, match="faster"):
        engine.ask("SELECT sum(start) FROM events")
    assert DeltaTable(str(tmp_path / "events")).version() >= 4 * engine_module.ATTEMPTS


class Watched:
    """A connection that stores the statements it was given."""

    def __init__(self, connection):
        self._connection = connection
        self.given = []

    def execute(self, sql, *parameters):
        self.given.append(sql)
        return self._connection.execute(sql, *parameters)

    def __getattr__(self, name):
        return getattr(self._connection, name)


def test_a_statement_is_planned_to_examine_it_only_if_its_text_does_not_show_what_it_reads(
    tmp_path,
):
    engine = Engine(make(tmp_path, [row(seq=1), gap(3, 5)]))
    engine.prepare_all()
    engine.connection = watched = Watched(engine.connection)
    sql = "SELECT remaining FROM gaps WHERE source = ?"
    assert list(engine.rows(sql, ["sim"])) == [(3,)]
    assert watched.given == [sql]
    for sql_of_user, planned in ((sql, False), (f"{sql} AND 1 IN (FROM range(2))", True)):
        watched.given.clear()
        assert engine.ask(sql_of_user, parameters=["sim"]).next_page() == [(3,)]
        assert watched.given[-1] == sql_of_user
        assert any(given.startswith("EXPLAIN") for given in watched.given[:-1]) is planned


def test_an_interrupt_while_arrow_reads_is_one():
    connection = duckdb.connect()
    reader = connection.sql("FROM range(10_000_000_000)").to_arrow_reader(1000)
    reader.read_next_batch()
    connection.interrupt()
    with pytest.raises(OSError, match="Interrupted") as raised:
        list(reader)
    assert is_interrupt(raised.value)
    assert not is_interrupt(OSError("gone"))
