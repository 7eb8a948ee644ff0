"""Rows of few kinds stand before all others, in a row group of their own."""

from __future__ import annotations

import json
import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from pyarrow import parquet

from tailrace.rows.batch import Batch
from tailrace.rows.schema import FEW_KINDS, ROW, Row
from tailrace.store import data_files as module
from tailrace.store.data_files import ROWS_MIN, RUNS_MAX, few_first, to_arrow, write_rows

EVENT_KINDS = ("span", "counter", "instant", "annotation")


def table_of(kinds, chunk=None):
    """Return rows of these kinds, numbered, in chunks that share a dictionary as those of a commit do."""
    coded = pa.array(kinds).dictionary_encode()
    chunk = chunk or len(kinds)
    pieces = [coded.slice(at, chunk) for at in range(0, len(kinds), chunk)]
    return pa.table({"kind": pa.chunked_array(pieces), "number": range(len(kinds))})


def moved(table):
    rows, few = few_first(table)
    return rows.column("number").to_pylist(), few


@pytest.fixture
def _any_size(monkeypatch):
    monkeypatch.setattr(module, "ROWS_MIN", 0)


@pytest.mark.usefixtures("_any_size")
@given(
    st.lists(st.sampled_from([*FEW_KINDS, *EVENT_KINDS]), min_size=1, max_size=40),
    st.integers(1, 9),
)
def test_both_keep_their_order(kinds, chunk):
    few = [number for number, kind in enumerate(kinds) if kind in FEW_KINDS]
    rest = [number for number, kind in enumerate(kinds) if kind not in FEW_KINDS]
    expected = ([*few, *rest], len(few)) if few and rest else ([*few, *rest], 0)
    assert moved(table_of(kinds, chunk)) == expected


@pytest.mark.usefixtures("_any_size")
def test_many_runs_are_left_where_they_are():
    most = ["gap", "span"] * RUNS_MAX
    assert moved(table_of(most))[1] == RUNS_MAX
    more = [*most, "gap", "span"]
    assert moved(table_of(more)) == (list(range(len(more))), 0)


def test_runs_beyond_the_limit_take_no_memory():
    """Where every second row is of a few kinds, runs are nearly as many as rows."""
    table = table_of(["gap", "span"] * 100_000)
    few_first(table)
    tracemalloc.start()
    try:
        few_first(table)
        assert (
            tracemalloc.get_traced_memory()[1] < 3_000_000
        )  # codes and marks: 200,000 rows of 13 bytes at once
    finally:
        tracemalloc.stop()


def test_short_tables_are_left_as_they_are():
    kinds = ["span"] * (ROWS_MIN - 1) + ["gap"]
    assert moved(table_of(kinds))[1] == 1
    assert moved(table_of(kinds[1:])) == (list(range(ROWS_MIN - 1)), 0)


def test_a_file_has_them_in_a_row_group_of_their_own_and_the_log_has_the_bounds_of_all(tmp_path):
    empty = Row._make([None] * len(Row._fields))
    spans = [
        empty._replace(stream="1", kind="span", seq=n, start=n, offset=64 * n) for n in range(ROWS_MIN)
    ]  # fmt: skip
    gap = empty._replace(stream="1", kind="gap", seq=-5, missing=3, offset=2**40)
    batch = Batch()
    batch.day = 20_000
    batch.extend("test", "heph", "a", list(zip(*[*spans, gap], strict=True)), 1)
    [day_rows] = to_arrow(batch)
    add = write_rows(tmp_path, day_rows)
    file = parquet.ParquetFile(tmp_path / add.path)
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [1, ROWS_MIN]  # fmt: skip
    assert file.read_row_group(0).column("kind").to_pylist() == ["gap"]
    found = file.read().select(ROW)
    assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == [gap, *spans]  # fmt: skip
    stated = json.loads(add.stats)
    assert stated["numRecords"] == ROWS_MIN + 1
    assert (stated["minValues"]["seq"], stated["maxValues"]["seq"]) == (-5, ROWS_MIN - 1)
    assert (stated["minValues"]["start"], stated["maxValues"]["start"]) == (0, ROWS_MIN - 1)
    assert stated["nullCount"]["start"] == 1
