"""One answer in every shape, exact in each."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pyarrow as pa
import pytest

import tailrace
from tailrace.errors import MissingPackageError, QueryError
from tailrace.query.views import VIEWS
from tests.cli.command import run
from tests.reading.stores import make_large, sorted_rows

HUGE = "SELECT 2::HUGEINT ** 100 AS big, NULL::BIGINT AS none, 9007199254740993 AS odd"


@pytest.mark.parametrize("view", [view.name for view in VIEWS])
def test_rows_are_those_of_tailrace_query(store, varied_store, view):
    printed = run("query", "--store", varied_store, "--json", f"FROM {view}").splitlines()
    rows = [json.loads(line) for line in printed]
    assert sorted_rows(getattr(store, view)()) == sorted_rows(rows)
    assert sorted_rows(store.sql(f"FROM {view}")) == sorted_rows(rows)


@pytest.mark.parametrize("command", ["streams", "gaps"])
def test_rows_have_the_order_of_the_commands(store, varied_store, command):
    printed = run(command, "--store", varied_store, "--json").splitlines()
    printed_rows = [json.loads(line) for line in printed]
    for row in printed_rows:
        del row["peer"]  # of the session, which Python's rows name
    assert list(getattr(store, command)()) == printed_rows


def test_arrow_is_that_of_tailrace_query(store, varied_store):
    sql = "FROM spans ORDER BY source, session, seq"
    printed = pa.ipc.open_stream(run("query", "--store", varied_store, "--arrow", sql)).read_all()
    table = store.sql(sql).arrow()
    assert table == printed
    assert pa.Table.from_batches(store.sql(sql).batches()) == printed
    assert pa.table(store.sql(sql)) == printed


ELSEWHERE = """
import sys, tailrace
with tailrace.open(sys.argv[1]) as store:
    for view in ("events", "spans", "counters", "stored"):
        print(store.sql(f"FROM {view}").arrow().schema.field("wall").type)
        assert {row["wall"][-3:] for row in store.sql(f"FROM {view}") if row["wall"]} <= {"+00"}
"""


def test_a_timestamp_is_in_utc_wherever_the_reader_is(varied_store):
    """DuckDB takes the host's time zone for each connection to which no other one was given."""
    variables = {"TZ": "Europe/Berlin"}
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, varied_store],
        capture_output=True, text=True, check=True, env=os.environ | variables,
    )  # fmt: skip
    assert done.stdout.splitlines() == 4 * ["timestamp[us, tz=UTC]"]
    arguments = ("query", "--store", varied_store, "--arrow", "FROM events")
    printed = pa.ipc.open_stream(run(*arguments, variables=variables)).read_all()
    assert printed.schema.field("wall").type == pa.timestamp("us", "UTC")


def test_frames_hold_the_same_numbers(store):
    import pandas
    import polars

    result = store.spans(order=["source", "session", "seq"])
    table = result.arrow()
    frame, other = result.df(), result.pl()
    assert polars.DataFrame(result).equals(other)
    microseconds = [time // 1000 for time in other["time"]]
    assert other["wall"].cast(polars.Int64).to_list() == microseconds
    assert frame["wall"].astype("int64").tolist() == microseconds
    assert str(frame["wall"].dt.tz) == other["wall"].dtype.time_zone == "UTC"
    for name in set(table.column_names) - {"wall"}:
        values = table[name].to_pylist()
        assert other[name].to_list() == values
        column = frame[name].astype(object)
        assert column.where(column.notna(), None).tolist() == values
    assert frame["substream"].dtype == pandas.Int64Dtype()


def test_whole_numbers_beside_nulls_are_exact_in_pandas(store):
    import pandas

    frame = store.sql("SELECT unnest([9007199254740993, NULL]) AS odd, unnest([true, NULL]) b").df()
    assert frame["odd"].tolist() == [9007199254740993, pandas.NA]
    assert frame["b"].tolist() == [True, pandas.NA]


def test_numbers_of_any_size_and_nested_values_are_python_objects(store):
    (row,) = store.sql(
        f"{HUGE}, [1, NULL] AS l, {{'a': [true]}} AS s, '{{\"x\":NaN}}'::JSON AS odd_json"
    )
    assert row == {
        "big": 2**100, "none": None, "odd": 9007199254740993, "l": [1, None], "s": {"a": [True]},
        "odd_json": '{"x":NaN}',
    }  # fmt: skip


def test_what_is_missing_travels_with_tables_and_frames(store):
    result = store.spans(source="sim")
    words = {
        "complete": False, "missing": {"network": 6}, "unknown": 0, "awaited": 0, "unasked": "",
        "selected": True,
    }  # fmt: skip
    table = result.arrow()
    assert json.loads(table.schema.metadata[b"tailrace.completeness"]) == words
    assert json.loads(result.batches().schema.metadata[b"tailrace.completeness"]) == words
    assert result.df().attrs["tailrace.completeness"] == words


def test_plans_can_be_seen(store):
    assert "PARQUET" in str(list(store.sql("EXPLAIN FROM stored"))).upper()


def test_a_statement_may_end_as_people_end_them(store):
    result = store.sql("SELECT ? AS x; -- so", [1])
    assert (result.count(), list(result), result.arrow().num_rows) == (1, [{"x": 1}], 1)


@pytest.mark.parametrize(("package", "method"), [("pandas", "df"), ("polars", "pl")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    store, monkeypatch, package, method
):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        MissingPackageError, match=rf"pip install 'tailrace\[{package}\]'"
    ) as caught:
        getattr(store.spans(), method)()
    assert isinstance(caught.value, ImportError)


def test_an_error_half_way_comes_out_of_every_shape(store):
    result = store.sql(
        "SELECT if(i = 900000, error('half way'), i) AS i FROM range(1000000) AS t(i)"
    )
    for shape in (list, lambda r: r.arrow(), lambda r: list(r.batches()), lambda r: r.pl()):
        with pytest.raises(QueryError, match="half way"):
            shape(result)


def test_nothing_is_asked_by_looking_at_it(store):
    result = store.sql("SELECT error('asked')")
    assert repr(result) == "<sql(\"SELECT error('asked')\"): rows when asked>"
    assert "rows when asked" in repr(store.spans(name="x", limit=3))


def test_print_shows_the_first_rows_and_what_is_missing(store, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    lines = str(store.spans(columns=["name", "seq"], stream=2, source="sim")).splitlines()
    assert lines[0].split() == ["name", "seq"]
    assert lines[-1] == "[4 rows; 4 events are missing (network 4)]"
    assert str(store.events()).endswith(
        "[the first 20 rows; 11 events are missing (malformed 5, network 6), and 1 gap of"
        " unknown size]"
    )


def test_a_notebook_gets_html_in_which_nothing_of_the_data_is_html(store, whole_store):
    evil = "<script>alert(1)</script>\x1b[2J\u202e&"
    html = store.sql('SELECT ? AS "<b>", NULL AS n, 3 AS x', [evil])._repr_html_()
    assert "<script>" not in html
    assert "<th>&lt;b&gt;</th>" in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[2J\\u202e&amp;" in html
    assert "<strong>11 events are missing" in html
    with tailrace.open(whole_store) as whole:
        assert "<p>3 rows; nothing is known to be missing</p>" in whole.spans()._repr_html_()


def test_interleaved_iterators_do_not_disturb_each_other(store):
    sql = "SELECT i + ? AS i FROM range(100000) AS t(i)"
    first, second = iter(store.sql(sql, [0])), iter(store.sql(sql, [10**6]))
    reader = store.sql(sql, [5]).batches()
    for number in range(5000):
        assert (next(first)["i"], next(second)["i"]) == (number, 10**6 + number)
        assert number % 1000 or store.spans(limit=1).count() == 1
    assert sum(batch.num_rows for batch in reader) == 100_000
    assert sum(1 for _ in first) == 95_000


LOCAL = """
import sys, tailrace
assert "duckdb" not in sys.modules and "pyarrow" not in sys.modules
from tailrace import open as reading, Store, Result, Completeness, IncompleteError, QueryError
assert reading is tailrace.open and "open" in dir(tailrace)
try:
    tailrace.nothing
except AttributeError:
    print("good")
"""


def test_importing_tailrace_imports_no_database():
    done = subprocess.run([sys.executable, "-c", LOCAL], capture_output=True, text=True, check=True)
    assert done.stdout == "good\n"


STREAMS = """
import resource, sys, tailrace
store = tailrace.open(sys.argv[1])
list(store.spans(limit=1))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = size = 0
for batch in store.events().batches():
    rows += batch.num_rows
    size += batch.nbytes
print(rows, size, 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before))
"""


def test_a_million_rows_stream_through_little_memory(tmp_path):
    """A gigabyte of them; what DuckDB reads ahead and the allocator keeps is a fraction."""
    make_large(tmp_path, files=10, rows=100_000)
    environ = os.environ | {"MALLOC_ARENA_MAX": "2"}
    done = subprocess.run(
        [sys.executable, "-c", STREAMS, tmp_path],
        capture_output=True, text=True, check=True, env=environ,
    )  # fmt: skip
    rows, size, grown = map(int, done.stdout.split())
    assert rows == 1_000_000
    assert size > 900 << 20
    assert grown < 400 << 20
