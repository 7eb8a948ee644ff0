"""The spans that DuckDB's statements join are those of the table, in some of their columns."""

from __future__ import annotations

import duckdb
import pytest

import tailrace
from benchmarks.inputs.trace import trace
from benchmarks.peers.duckdb import convert
from tests.cli.command import run

ROWS = {
    "jets": ("name, category, id, parent, begun, ended", "name category id parent start end"),
    "et3": ("begun, ended", "start end"),
    "dftracer": ("name, cat, begun, ended, fname", "name category start end fname"),
}


@pytest.mark.parametrize("format_", ROWS)
def test_the_spans_are_those_of_the_table(tmp_path, format_):
    made, output, store = trace(format_, 3000), tmp_path / "rows.parquet", tmp_path / "store"
    convert(f"duckdb-{format_}-rows.sql", str(made.path), str(output))()
    run("import", "--store", str(store), str(made.path))
    theirs, ours = ROWS[format_]
    # DFTracer's beginning and end of a process are no spans.
    others = "cat <> 'dftracer'" if format_ == "dftracer" else "kind = 'span'"
    rows = duckdb.read_parquet(str(output)).filter(f"{others} AND ended IS NOT NULL")
    found = rows.project(theirs).fetchall()
    with tailrace.open(store) as opened:
        spans = list(opened.sql('SELECT * FROM spans WHERE "end" IS NOT NULL'))
    wanted = [(span["attributes"] or {}) | span for span in spans]
    assert len(found) > 200
    assert sorted(map(str, found)) == sorted(
        str(tuple(map(each.get, ours.split()))) for each in wanted
    )
