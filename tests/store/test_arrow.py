from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given, settings, strategies as st

from tailrace.model.columns import COLUMNS, ROW, Batch
from tailrace.model.record import Kind
from tailrace.store.arrow import to_arrow
from tailrace.store.schema import SCHEMA

TEXT = st.text(max_size=20)
LONG = st.integers(-(2**63), 2**63 - 1)
BY_TYPE = {"string": TEXT, "long": LONG}
CELLS = [
    BY_TYPE[column.type] | st.none() if column.nullable else BY_TYPE[column.type]
    for column in COLUMNS
    if column.name in ROW
]
RUNS = st.lists(
    st.tuples(
        st.integers(0, 40_000),
        TEXT,
        TEXT,
        TEXT,
        st.lists(st.tuples(*CELLS), min_size=1, max_size=5),
    ),
    max_size=6,
)


@settings(deadline=None)
@given(RUNS)
def test_every_value_comes_out_in_its_row_and_column(runs):
    batch = Batch()
    expected = []
    for day, source, format_, session, rows in runs:
        columns = [list(column) for column in zip(*rows, strict=True)]
        batch.extend(day, source, format_, session, columns, 1)
        when = date(1970, 1, 1) + timedelta(days=day)
        expected += [(when, source, batch.runs[-1].format, session, *row) for row in rows]
    table = to_arrow(batch)
    assert table.schema == SCHEMA
    columns = [table.column(column.name).to_pylist() for column in COLUMNS]
    assert list(zip(*columns, strict=True)) == expected


def test_an_empty_batch_has_all_columns_and_no_rows():
    assert to_arrow(Batch()).num_rows == 0
    assert to_arrow(Batch()).schema == SCHEMA


def test_a_kind_is_stored_as_its_word(numbered):
    batch = numbered("s", 0, 2)
    batch.columns[ROW.index("kind")] = [Kind.SPAN, "gap"]
    assert to_arrow(batch).column("kind").to_pylist() == ["span", "gap"]


@pytest.mark.parametrize(
    ("column", "value", "error"),
    [
        ("seq", 2**63, OverflowError),
        ("seq", 1.5, TypeError),
        ("name", 7, TypeError),
        ("attributes", "\ud800", UnicodeError),
    ],
)
def test_a_value_that_its_column_cannot_hold_is_refused_by_name(numbered, column, value, error):
    batch = numbered("s", 0, 3)
    batch.columns[ROW.index(column)] = [None, value, None]
    with pytest.raises(error) as caught:
        to_arrow(batch)
    assert f"in column {column!r}" in caught.value.__notes__


def test_a_missing_value_is_refused_where_there_must_be_one(numbered):
    batch = numbered("s", 0, 3)
    batch.columns[ROW.index("kind")][1] = None
    with pytest.raises(Exception, match="'kind' is declared as non-nullable"):
        to_arrow(batch)
