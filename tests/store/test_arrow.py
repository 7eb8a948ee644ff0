from __future__ import annotations

from datetime import date, timedelta
from itertools import chain, groupby
from operator import attrgetter

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from tailrace.kernels import active
from tailrace.model.record import Kind, Record
from tailrace.rows import batch as module
from tailrace.rows.batch import Batch, BlockRows
from tailrace.rows.block import Integers
from tailrace.rows.schema import CODED, COLUMNS, ROW, RUN
from tailrace.store.data_files import to_arrow, with_day
from tests.forms import examples
from tests.rows.columns import column, rows_column
from tests.rows.packing import packed

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


@examples(100)
@given(RUNS)
def test_every_value_comes_out_in_its_row_and_column(runs):
    batch = Batch()
    expected = []
    for day, source, format_, session, rows in runs:
        columns = [list(column) for column in zip(*rows, strict=True)]
        batch.day = day
        batch.extend(source, format_, session, columns, 1)
        when = date(1970, 1, 1) + timedelta(days=day)
        expected += [(when, source, batch.runs[-1].format, session, *row) for row in rows]
    found = to_arrow(batch)
    assert [each.day for each in found] == [
        day for day, _ in groupby(batch.runs, attrgetter("day"))
    ]
    whole = [with_day(each) for each in found]
    assert all(each.schema.names == [column.name for column in COLUMNS] for each in whole)
    rows = [
        list(zip(*(each.column(name).to_pylist() for name in (*RUN, *ROW)), strict=True))
        for each in whole
    ]
    assert list(chain.from_iterable(rows)) == expected


def test_a_timestamp_is_the_rows_time_cut_to_microseconds(numbered):
    batch = numbered("s", 0, 5)
    batch.parts[0].rows[ROW.index("time")] = times = [None, 1999, 0, -1999, 2**63 - 1]
    ((_, rows),) = to_arrow(batch)
    walls = rows.column("wall")
    assert walls.type == pa.timestamp("us", "UTC")
    microseconds = walls.cast(pa.int64()).to_pylist()
    assert microseconds == [None, 1, 0, -1, (2**63 - 1) // 1000]
    assert column(batch, "wall") == microseconds
    assert column(batch, "time") == times


@examples(100)
@given(RUNS)
def test_a_dictionary_has_the_values_of_its_rows_and_no_others(runs):
    batch = Batch()
    for day, source, format_, session, rows in runs:
        columns = [list(column) for column in zip(*rows, strict=True)]
        batch.day = day
        batch.extend(source, format_, session, columns, 1)
    for _, rows in to_arrow(batch):
        for name in CODED:
            column = rows.column(name)
            assert len(set(column.chunk(0).dictionary.to_pylist())) == len(
                column.chunk(0).dictionary
            )
            assert set(column.chunk(0).dictionary.to_pylist()) == set(column.to_pylist()) - {None}


def test_a_batch_without_rows_has_no_day():
    assert to_arrow(Batch()) == []


def test_a_kind_is_stored_as_its_word(numbered):
    batch = numbered("s", 0, 2)
    batch.parts[0].rows[ROW.index("kind")] = [Kind.SPAN, "gap"]
    [(_, rows)] = to_arrow(batch)
    assert rows.column("kind").to_pylist() == ["span", "gap"]


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
    batch.parts[0].rows[ROW.index(column)] = [None, value, None]
    with pytest.raises(error) as caught:
        to_arrow(batch)
    assert f"in column {column!r}" in caught.value.__notes__


def test_a_missing_value_is_refused_where_there_must_be_one(numbered):
    batch = numbered("s", 0, 3)
    batch.parts[0].rows[ROW.index("kind")][1] = None
    with pytest.raises(TypeError, match="a row has no value") as caught:
        to_arrow(batch)
    assert caught.value.__notes__ == ["in column 'kind'"]


RECORDS = st.lists(
    st.builds(
        Record,
        offset=LONG, size=st.just(1), kind=st.sampled_from(["span", "counter"]), stream=TEXT,
        substream=LONG | st.none(), counter=LONG | st.none(), name=TEXT | st.none(),
        category=TEXT | st.none(), id=st.none(), parent=LONG | st.none(), start=LONG | st.none(),
        end=LONG | st.none(), attributes=TEXT | st.none(), flaw=st.none(), detail=st.none(),
    ),
    min_size=1,
    max_size=6,
)  # fmt: skip


@pytest.mark.skipif(not active(), reason="kernels are off or not built")
@examples(100)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 2), RECORDS), min_size=1, max_size=8),
    st.sampled_from([1, 4, 1024]),
    st.sampled_from([6, 8192]),
)
def test_blocks_and_lists_become_the_same_rows(parts, large, enough):
    """Whichever parts are joined, and however many."""
    mixed, lists = Batch(), Batch()
    for as_block, day, records in parts:
        times = [record.end for record in records]
        numbers = Integers.of([r.offset for r in records])
        spans = (numbers, Integers.of([None, *times[1:]])) if day == 1 else ()
        rows = BlockRows(packed(records), Integers.of(times), numbers, *spans)
        listed = [rows_column(rows, name) for name in ROW]
        mixed.day = day
        mixed.extend("s", "heph", "1", rows if as_block else listed, 1)
        lists.day = day
        lists.extend("s", "heph", "1", listed, 1)
    assert len(mixed) == len(lists)
    assert [column(mixed, c.name) for c in COLUMNS] == [column(lists, c.name) for c in COLUMNS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LARGE", large)
        patch.setattr(module, "ENOUGH", enough)
        found, expected = to_arrow(mixed), to_arrow(lists)
    assert [(day, rows.to_pydict()) for day, rows in found] == [
        (day, rows.to_pydict()) for day, rows in expected
    ]
    for _, rows in found:
        rows.validate(full=True)
        for name in CODED:
            chunks = rows.column(name).chunks
            assert set(chunks[0].dictionary.to_pylist()) == set(rows.column(name).to_pylist()) - {
                None
            }
            assert all(chunk.dictionary.equals(chunks[0].dictionary) for chunk in chunks)
