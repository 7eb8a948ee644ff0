"""Tables read back, against the same question in SQL over the views."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from pathlib import Path

import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tailrace
from tailrace.errors import UnknownError
from tailrace.export import WRITERS
from tailrace.query.answer import Shape
from tailrace.query.engine import Engine
from tests.export.exports import make_export
from tests.export.traces import EPOCH, crowds, stores
from tests.query.tables import clocked, dicts, gap, make, session

MANY = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
FEW = settings(MANY, max_examples=2)
"""Each example makes a table and exports it up to eight times, which takes 1 s of CPU: so few of them have many stores. CI
runs both."""

CHOICES = [
    ({}, "true", "true"),
    ({"source": "sim"}, "source = 'sim'", "source = 'sim'"),
    (
        {"session": ["a"], "stream": "1"},
        "starts_with(session, 'a') AND stream = '1'",
        "(starts_with(session, 'a') OR session = 'damaged') AND stream IN ('1', '')",
    ),
    ({"until": EPOCH + 20}, f"time < {EPOCH + 20}", None),
    ({"since": EPOCH, "until": EPOCH + 20}, f"time >= {EPOCH} AND time < {EPOCH + 20}", None),
]
"""Filters, and what they select of `events` and of `gaps` (None: see the test of times)."""


def of_parquet(path):
    return pyarrow.parquet.read_table(path)


def of_arrow(path):
    return pyarrow.ipc.open_file(path).read_all()


def in_any_order(rows):
    return sorted(rows, key=repr)


@FEW
@given(rows=crowds(), chosen=st.sampled_from(CHOICES))
def test_a_table_is_what_the_views_have(rows, chosen):
    compare(rows, *chosen)


@pytest.mark.slow
@MANY
@given(rows=stores(), chosen=st.sampled_from(CHOICES))
def test_so_it_is_of_many_stores(rows, chosen):
    compare(rows, *chosen)


def compare(rows, filters, of_events, of_gaps):
    with tempfile.TemporaryDirectory() as directory:
        half = len(rows) // 2
        store = make(Path(directory) / "store", rows[:half], rows[half:])
        engine = Engine(store)
        path = Path(directory) / "rows"
        for view, where, name in [("events", of_events, "rows"), ("gaps", of_gaps, "rows.gaps")]:
            if where is None:
                continue
            sql = f"SELECT * FROM {view} WHERE {where}"  # noqa: S608 - the texts above
            try:
                for to in ("parquet", "arrow", "csv", "jsonl"):
                    make_export(store, to, path, **filters)
                    same(engine, sql, to, Path(directory) / name)
            except UnknownError:
                counted = f"{sql} AND kind NOT IN ('session', 'gap', 'heal', 'name')"
                assert view == "gaps" or engine.count(counted) == 0
        engine.close()


def as_object(text):
    """The object that a text is, or the text."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return text
    return found if isinstance(found, dict) else text


def same(engine, sql, to, path):
    if to in {"parquet", "arrow"}:
        found = (of_parquet if to == "parquet" else of_arrow)(path)
        asked = engine.ask_arrow(sql)
        batches = list(iter(asked.next_batch, None))
        wanted = pyarrow.Table.from_batches(batches, asked.schema)
        assert found.schema.equals(wanted.schema)
        assert in_any_order(found.to_pylist()) == in_any_order(wanted.to_pylist())
    elif to == "csv":
        answer = engine.ask(sql)
        names = [column.name for column in answer.columns]
        wanted = [
            ["" if value is None else str(value) for value in row]
            for page in iter(answer.next_page, [])
            for row in page
        ]
        heading, *found = csv.reader(io.StringIO(path.read_bytes().decode(), newline=""))
        assert heading == names
        assert in_any_order(found) == in_any_order(wanted)
    else:
        wanted = [
            row | {"attributes": as_object(row["attributes"])}
            for row in dicts(engine.ask(sql, Shape.JSON))
        ]
        found = [json.loads(line) for line in path.read_bytes().splitlines()]
        assert in_any_order(found) == in_any_order(wanted)


@pytest.mark.parametrize("to", ["parquet", "arrow"])
def test_a_file_that_can_says_what_is_missing(varied_store, tmp_path, to):
    make_export(varied_store, to, tmp_path / "rows", source="sim")
    read = of_parquet if to == "parquet" else of_arrow
    for name in ("rows", "rows.gaps"):
        words = json.loads(read(tmp_path / name).schema.metadata[b"tailrace.completeness"])
        assert words["missing"] == {"network": 6}
        assert words["complete"] is False


@pytest.mark.parametrize(
    "filters", [{}, {"source": "files"}, {"session": "aa"}, {"until": EPOCH}, {"stream": "3"}]
)
def test_it_lacks_what_the_same_question_lacks_in_python(varied_store, tmp_path, filters):
    if "until" in filters:
        filters = {"until": "2026-11-21 08:59:00Z"}
    with tailrace.open(varied_store) as store:
        asked = store.events(**filters)
        exported = make_export(varied_store, "csv", tmp_path / "rows", **filters)
        assert exported.selected.whole == asked.completeness
        gaps = csv.DictReader(io.StringIO((tmp_path / "rows.gaps").read_text(), newline=""))
        assert [(g["session"], g["offset"]) for g in gaps] == [
            (g["session"], str(g["offset"])) for g in asked.gaps()
        ]


@pytest.mark.parametrize("to", WRITERS)
def test_losses_without_an_event_are_said_where_nothing_is_exported(tmp_path, to):
    rows = [session("open", opened=EPOCH), clocked(epoch=EPOCH), gap(3, 0)]
    store = make(tmp_path / "store", rows)
    with pytest.raises(
        UnknownError,
        match=r"no event is selected; not complete: 3 events are missing \(network 3\)",
    ):
        make_export(store, to, tmp_path / "rows")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_nothing_selected_is_an_error_that_lists_what_there_is(varied_store, tmp_path):
    with pytest.raises(
        UnknownError,
        match=r"no event is selected; not complete: 4 .* there are: files \(2026-11-21 10:00:00 to",
    ):
        make_export(varied_store, "csv", tmp_path / "rows", since="2027-01-01")
    assert list(tmp_path.iterdir()) == []
