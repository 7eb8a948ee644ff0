"""Test that a stranger's SQL cannot change anything. The table's directory is compared before and after."""

from __future__ import annotations

import json

import pytest

from tailrace.errors import QueryError
from tailrace.query.engine import Engine
from tailrace.query.statement import MACROS, reads_only_views
from tests.query.tables import dicts, make, row


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = tmp_path_factory.mktemp("store")
    (store / "secret.txt").write_text("secret")
    make(store, [row(name="one")], [row(name="two")])
    return store


@pytest.fixture(scope="module")
def engine(store):
    return Engine(str(store))


def contents(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


COPY = "COPY (SELECT 1) TO '{file}' (USE_TMP_FILE false)"

WRITING = [
    COPY,
    f"EXPLAIN ANALYZE {COPY}",
    f"EXPLAIN (ANALYZE) {COPY}",
    f"WITH x AS ({COPY}) SELECT 1",
    f"WITH x AS MATERIALIZED ({COPY}) FROM x",
    f"EXPLAIN ANALYZE WITH x AS ({COPY}) FROM x",
    f"/* */ EXPLAIN ANALYZE WITH x AS ({COPY}) FROM x",
    f"SELECT 1; {COPY}",
    "CREATE TABLE x AS SELECT 1",
    "CREATE OR REPLACE VIEW events AS SELECT 1",
    "DROP VIEW events",
    "INSERT INTO events SELECT * FROM events",
    "ATTACH ':memory:' AS other",
    "ATTACH '{file}' AS other",
    "SET threads = 1",
    "SET VARIABLE files = ['{file}']",
    "PRAGMA enable_profiling",
    "INSTALL httpfs",
    "LOAD httpfs",
    "CALL enable_logging(storage = 'file', storage_path = '{directory}')",
    "FROM enable_logging(storage = 'file', storage_path = '{directory}')",
    "EXPORT DATABASE '{directory}'",
    "UPDATE EXTENSIONS",
    "PREPARE x AS SELECT 1",
    "BEGIN",
    "VACUUM",
    "CHECKPOINT",
]

READING_ELSEWHERE = [
    "FROM '{secret}'",
    "FROM read_text('{secret}')",
    "FROM read_text('{directory}/../secret.txt')",
    "FROM read_blob('/etc/passwd')",
    "FROM read_csv('/dev/stdin')",
    "FROM read_parquet('s3://bucket/x')",
    "FROM read_parquet('https://example.com/x')",
    "FROM read_json('{directory}/_delta_log/00000000000000000001.json')",
    "FROM glob('/etc/*')",
    "FROM glob('{directory}/*')",
    "FROM sniff_csv('{secret}')",
    "FROM sqlite_scan('{secret}', 'x')",
    "FROM duckdb_secrets()",
    "FROM store",  # a Python variable
    "FROM test_all_types()",
    "FROM read_parquet('{file}')",
    "FROM parquet_scan('{directory}/*/*')",
    "FROM query('SELECT 1')",
    'WITH "events/_delta_log/*[1é].json" AS (SELECT 1) FROM "events/_delta_log/*[1É].json"',
    'WITH "{directory}/_delta_log/*[1k].json" AS (SELECT 1) FROM "{directory}/_delta_log/*[1\u212a].json"',
    "SELECT json_serialize_plan('SELECT current_setting(''temp_directory'')', optimize := true)",
]


def tree_of(engine, sql):
    serialized = engine.connection.execute("SELECT json_serialize_sql($1::VARCHAR)", [sql])
    return json.loads(serialized.fetchone()[0])


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1", True),
        ("SELECT DISTINCT kind, [1], {'a': 1}, count(*) FILTER (seq > 1) FROM events GROUP BY ALL", True),
        ("FROM Events JOIN spans USING (session) WHERE seq IN (FROM gaps SELECT seq) LIMIT 1", True),
        ("WITH a AS (FROM events), b AS (FROM a) FROM a UNION ALL FROM B ORDER BY kind DESC", True),
        ("SELECT * FROM (VALUES (1)) AS v(x), LATERAL (SELECT x + 1)", True),
        ("FROM main.events", False),
        ("FROM range(3)", False),
        ("SELECT * FROM events, json_each(attributes)", False),
        ("FROM part.shown", False),
        ("FROM 'x.parquet'", False),
        ("WITH a AS (FROM b), b AS (FROM events) FROM a", False),  # `b` is not yet the selection
        ("WITH b AS (SELECT 1) FROM b, (WITH c AS (FROM b) FROM c), c", False),  # nor still `c`
        ("WITH a AS (COPY (SELECT 1) TO 'x') SELECT 1", False),
        ('WITH "é" AS (SELECT 1) FROM "É"', False),  # DuckDB compares them as different names
        ("WITH RECURSIVE a AS (SELECT 1 UNION ALL FROM a) FROM a", False),
        ("SUMMARIZE events", False),
        ("SHOW TABLES", False),
        ("PIVOT events ON kind IN ('span') USING count(*)", False),
        ("FROM events TABLESAMPLE 10%", False),
        ("SELECT get_block_size('memory') FROM events", False),
    ],
)  # fmt: skip
def test_a_statement_is_not_planned_to_examine_it_only_if_it_reads_nothing_but_views(
    engine, sql, expected
):
    assert reads_only_views(tree_of(engine, sql)) is expected


def test_macros_that_read_tables_are_known(engine):
    found = engine.connection.execute(
        "SELECT upper(function_name) FROM duckdb_functions()"
        " WHERE function_type = 'macro' AND macro_definition ILIKE '%from%' AND internal"
    )
    assert {name for (name,) in found.fetchall()} == MACROS


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT\n  nothing::INT FROM events",
        "SELECT\n  name::INT FROM events",
        "SELECT wall,\n  name::INT FROM events",
        "SELECT\n  'one'::INT",
    ],
)
def test_an_error_names_the_line_of_the_statement(engine, sql):
    for read in (engine.ask, engine.ask_arrow):
        with pytest.raises(QueryError, match=r"LINE 2: .*::INT"):
            read(sql)


def test_an_error_of_a_count_names_the_line_of_the_statement(engine):
    with pytest.raises(QueryError, match=r"LINE 2: .*::INT"):
        engine.count("SELECT 1 FROM events\nWHERE name::INT = 1")


@pytest.mark.parametrize("sql", WRITING + READING_ELSEWHERE)
def test_a_statement_that_does_more_than_ask_is_refused(engine, store, sql):
    before = contents(store)
    file = next(path for path in before if path.suffix == ".parquet")
    paths = {"file": file, "directory": store / "events", "secret": store / "secret.txt"}
    with pytest.raises(QueryError):
        engine.ask(sql.format(**paths))
    assert contents(store) == before
    assert len(dicts(engine.ask("FROM events"))) == 2


def test_a_statement_hidden_in_a_value_is_refused(engine, store):
    """`json_execute_serialized_sql` runs any statement, and the plan does not show which."""
    before = contents(store)
    file = next(path for path in before if path.suffix == ".parquet")
    copy = f"WITH x AS ({COPY.format(file=file)}) SELECT 1".replace("'", "''")
    (hidden,) = dicts(engine.ask(f"SELECT json_serialize_sql('{copy}')::VARCHAR AS sql"))
    assert "COPY_QUERY_NODE" in hidden["sql"]
    literal = hidden["sql"].replace("'", "''")
    run = f"json_execute_serialized_sql('{literal}')"
    again = run.replace("'", "''")
    for sql in (
        f"FROM {run}",
        f"SELECT (FROM {run} SELECT count(*))",
        f"SELECT 1 WHERE EXISTS (FROM {run})",
        f"WITH x AS MATERIALIZED (FROM {run}) FROM x",
        f"FROM events, LATERAL (FROM {run})",
        f"FROM query('FROM {again}')",
        f"EXPLAIN ANALYZE FROM {run}",
        f"CALL {run}",
    ):
        with pytest.raises(QueryError):
            engine.ask(sql)
    assert contents(store) == before


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "select 1 ; -- done",
        "SELECT 'é;' AS \"ü;\" ; -- done",
        "SELECT 'éééé;x', 1",
        "SELECT '\x9b;' AS a, 'éé;' AS b",
        "-- a comment\nSELECT 1",
        "(SELECT 1)",
        "VALUES (1)",
        "TABLE events",
        "FROM events",
        "WITH x AS (FROM events) FROM x",
        "WITH RECURSIVE x AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM x WHERE i < 5) FROM x",
        "DESCRIBE spans",
        "SUMMARIZE events",
        "SHOW TABLES",
        "EXPLAIN SELECT * FROM spans",
        "explain analyze from gaps",
        "PIVOT events ON kind IN ('span') USING count(*)",
        "SELECT unnest(range(3)), 'COPY x TO y'",
        "SELECT key FROM events, json_each(coalesce(attributes, '{}'))",
        "FROM generate_series(1, 3)",
        "FROM duckdb_functions() LIMIT 1",
        "SELECT count(*) OVER (ORDER BY start) FROM events",
        "FROM events TABLESAMPLE 1 ROWS",
    ],
)
def test_a_statement_that_asks_is_answered(engine, sql):
    assert engine.ask(sql).columns


def test_people_see_the_views_and_little_else(engine):
    tables = [table["name"] for table in dicts(engine.ask("SHOW TABLES"))]
    assert tables == [
        "all_gaps", "counters", "events", "gaps", "labels", "nesting", "programs", "sessions", "spans", "stored", "streams",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "line"),
    [("SELECT foo FROM events", 1), ("SELECT\n  1 +\n  foo", 3), ("SELEC 1", 1)],
)
def test_a_mistake_is_shown_in_the_line_it_is_in(engine, sql, line):
    with pytest.raises(QueryError, match=f"(?m)^LINE {line}: {sql.splitlines()[line - 1]}"):
        engine.ask(sql)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("", "not 0"),
        ("SELECT 1; SELECT 2", "not 2"),
        ("PIVOT events ON kind", "PIVOT"),
        ("DROP VIEW events", "this one is DROP"),
        ("FROM read_text('/etc/passwd')", "read_text is not available"),
    ],
)
def test_a_refusal_says_why(engine, sql, words):
    with pytest.raises(QueryError, match=words):
        engine.ask(sql)
