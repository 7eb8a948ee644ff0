"""Test that neither an answer to a stranger's SQL nor an error message reveals a path of the host."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import tailrace
from tailrace.errors import QueryError
from tailrace.query.limits import Limits
from tests.cli.command import ENVIRONMENT, run
from tests.query.tables import commit, make, row

PROBES = [
    "FROM duckdb_settings()", "FROM duckdb_settings", "FROM pg_settings", "FROM pg_catalog.pg_settings",
    "FROM duckdb_profiling_settings()", "FROM duckdb_databases()", "FROM duckdb_databases",
    "FROM duckdb_secrets()", "FROM duckdb_extensions()", "FROM duckdb_variables()", "FROM duckdb_views()",
    "FROM duckdb_views", "FROM duckdb_temporary_files()", "FROM duckdb_external_file_cache()",
    "FROM duckdb_logs()", "FROM duckdb_functions()", "FROM duckdb_tables()", "FROM pragma_database_list",
    "FROM pragma_database_size()", "FROM pragma_version()", "SHOW ALL TABLES", "SHOW DATABASES",
    "FROM information_schema.tables", "FROM sqlite_master",
    "SELECT current_setting('home_directory')", "SELECT current_setting('temp_directory')",
    "SELECT current_setting('allowed_directories')", "SELECT current_setting('secret_directory')",
    "SELECT 'allowed_directories'.current_setting()",
    "SELECT system.main.current_setting('allowed_directories')",
    """SELECT "current_setting"('extension_directory')""",
    "SELECT list_transform(['allowed_directories'], lambda x: current_setting(x))",
    "FROM query('SELECT current_' || 'setting(''allowed_directories'')')",
    "FROM query_table('duckdb_settings')",
    "SELECT getvariable('files')", "SELECT getvariable('fi' || 'les')", "SELECT getenv('HOME')",
    "FROM read_parquet(getvariable('files'), filename = true)", "FROM parquet_metadata('events/*/*')",
    "FROM read_parquet('events/*/*', filename = true)", "FROM 'events/*/*.parquet'", "FROM 'events/none.parquet'",
    "FROM glob('*')", "FROM glob('/**')", "FROM read_text('events/_delta_log/*')", "FROM read_csv('x')",
    "FROM read_blob('../../../../etc/passwd')", "FROM 'none.parquet'", "FROM python_arrow_scan(1, 2, 3)",
    "SELECT filename FROM stored", "SELECT filename FROM events", "SELECT file_row_number FROM stored",
    "EXPLAIN FROM stored", "EXPLAIN ANALYZE FROM stored", "EXPLAIN (FORMAT json) FROM events",
    "EXPLAIN (ANALYZE, FORMAT json) FROM events", "DESCRIBE stored", "SUMMARIZE stored",
    "ATTACH 'x.db'", "COPY (SELECT 1) TO 'x'", "PRAGMA database_list", "CALL pragma_database_list()",
    "SELECT current_database(), current_schema(), current_schemas(true), version(), current_query()",
    "FROM sys", "FROM os", "SELECT sum(i::VARCHAR || 'x') FROM range(3) AS t(i)",
    "SELECT i, repeat(i::VARCHAR, 40) AS t FROM range(30000000) AS t(i) ORDER BY t DESC LIMIT 1 OFFSET 29999000",
]  # fmt: skip
"""Statements that try to reveal paths. The last one needs more memory and temporary data than the limits allow, and its
error must not name the directory.
"""

ASKING = """
import json, sys
from tailrace.errors import TailraceError
from tailrace.query.engine import Engine
from tailrace.query.limits import Limits

room, store = sys.argv[1:]
engine = Engine(store, limits=Limits(memory=40 * 2**20, threads=1), room=room)
for sql in json.load(sys.stdin):
    try:
        rows = [list(map(str, r)) for r in engine.ask(sql).next_page()]
        print(json.dumps([sql, True, rows]))
    except TailraceError as error:
        print(json.dumps([sql, False, str(error)]))
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = tmp_path_factory.mktemp("secret-project") / "secret-store"
    return make(store, [row(name="one")], [row(name="two")])


def tells(text, store, tmp_path):
    """Return the parts of a text that reveal a path of the host."""
    places = {store, "secret-project", "secret-store", str(tmp_path), sys.prefix, "tailrace-query-"}
    return [place for place in (*places, "/root", "/home", "/usr", "/tmp") if place in text]  # noqa: S108


def test_no_answer_and_no_refusal_has_a_path_of_the_host(store, tmp_path):
    room = tmp_path / "room"
    room.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", ASKING, room, store],
        input=json.dumps(PROBES),
        env=ENVIRONMENT,
        capture_output=True,
        check=True,
        text=True,
    )
    answers = {sql: (good, said) for sql, good, said in map(json.loads, done.stdout.splitlines())}
    assert list(answers) == PROBES
    assert {
        sql: found
        for sql, (_, said) in answers.items()
        if (found := tells(json.dumps(said), store, tmp_path))
    } == {}
    plan = json.dumps(answers["EXPLAIN ANALYZE FROM stored"])
    # this error names a file, but only by its path in the store
    assert "events/day=2026-11-21/" in plan
    assert not answers["FROM query_table('duckdb_settings')"][0]


def test_nor_has_one_of_the_command_or_of_a_store_with_limits(store, tmp_path):
    explain = "EXPLAIN ANALYZE FROM stored"
    shown = run("query", "--store", store, explain).decode()
    with tailrace.open(store, limits=Limits()) as opened:
        told = str(list(opened.sql(explain)))
        with pytest.raises(QueryError) as refused:
            list(opened.sql("SELECT getvariable('files')"))
    for text in (shown, told, str(refused.value)):
        assert tells(text, store, tmp_path) == []
    assert "events/day=2026-11-21/" in shown
    assert "events/day=2026-11-21/" in told


def test_rows_that_are_not_in_the_snapshot_are_not_read(tmp_path):
    """A statement reads the rows of the views, not all files in the table's directory."""
    make(tmp_path, [row(name="one")])
    with tailrace.open(tmp_path, limits=Limits()) as opened:
        commit(tmp_path, [row(name="two")])
        for sql in ("FROM read_parquet('events/*/*')", "FROM parquet_scan('events/*/*')"):
            with pytest.raises(QueryError, match="not available"):
                list(opened.sql(sql))
