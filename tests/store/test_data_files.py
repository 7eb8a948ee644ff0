"""The data files that we write: what is in them, what the log says of them, and who can read them."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import given, strategies as st
from pyarrow import parquet

from tailrace.rows.batch import Batch
from tailrace.rows.schema import COLUMNS, ROW, RUN, Row
from tailrace.store import layout
from tailrace.store.data_files import CODED, TEXT_MAX, to_arrow, write_rows
from tailrace.store.layout import DataFile, TableSnapshot
from tests.forms import examples
from tests.store.writer import commit

DAY = 20_000
NUMBERS = [column.name for column in COLUMNS if column.type in {"long", "timestamp"}]
LONG = st.none() | st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=3)
ROWS = st.lists(
    st.builds(
        Row,
        stream=TEXT, substream=LONG, seq=LONG, kind=TEXT, name=st.none() | TEXT, category=st.none() | TEXT,
        id=LONG, parent=LONG, start=LONG, end=LONG, time=LONG, attributes=st.none() | TEXT,
        offset=st.integers(0, 2**63 - 1), depth=LONG, missing=LONG, end_offset=LONG,
    ),
    min_size=1, max_size=9,
)  # fmt: skip
MANY = [
    Row(
        stream=f"s{i % 7}", substream=None, seq=i, kind="span", name=None if i % 5 == 0 else f"näme{i % 3}", category=None,
        id=i**5 - 2**40, parent=None, depth=None, start=2**63 - 1 - i, end=-i, time=None if i % 2 else 10**18 + i,
        missing=None, attributes=f'{{"a":{i}}}' if i % 3 else None, offset=64 * i, end_offset=None,
    )
    for i in range(3000)
]  # fmt: skip


def batch_of(rows, *, session="session", day=DAY):
    batch = Batch()
    batch.day = day
    batch.extend("test", "heph", session, list(zip(*rows, strict=True)), 1)
    return batch


def written(root, rows, **more):
    [day_rows] = to_arrow(batch_of(rows, **more))
    return write_rows(root, day_rows)


@pytest.fixture
def read_back(open_table, root):
    """Commit MANY rows; `read_back` says what `found`, rows of all columns but the day, must be."""
    commit(open_table(), batch_of(MANY), 1)
    return sorted([("test", "heph", "session", *row) for row in MANY], key=lambda row: row[-2])


READ = [*RUN[1:], *ROW]
COLUMN_LIST = ", ".join(f'"{name}"' for name in READ)


def test_duckdb_reads_the_rows(read_back, root):
    query = f"SELECT {COLUMN_LIST} FROM read_parquet('{root}/day=*/*.parquet') ORDER BY \"offset\""  # noqa: S608
    assert duckdb.sql(query).fetchall() == read_back


def test_the_tables_library_reads_the_rows(read_back, root):
    table = QueryBuilder().register("events", DeltaTable(str(root)))
    query = f'SELECT {COLUMN_LIST} FROM events ORDER BY "offset"'  # noqa: S608
    found = pa.table(table.execute(query).read_all())
    assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == read_back


def test_pyarrow_reads_the_rows(read_back, root):
    found = DeltaTable(str(root)).to_pyarrow_table().select(READ).sort_by("offset")
    assert list(zip(*(column.to_pylist() for column in found.columns), strict=True)) == read_back


def test_polars_reads_the_rows(read_back, root):
    import polars

    found = polars.read_parquet(f"{root}/day=*/*.parquet", hive_partitioning=False)
    assert found.sort("offset").select(READ).rows() == read_back


def test_names_are_dictionaries_numbers_are_packed_and_text_is_plain(tmp_path):
    add = written(tmp_path, MANY)
    footer = parquet.read_metadata(tmp_path / add.path)
    group = footer.row_group(0)
    found = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert footer.num_row_groups == 1
    assert footer.metadata is None  # no schema of Arrow's
    assert all(column.compression == "ZSTD" for column in found.values())
    for name, column in found.items():
        if name in CODED:
            assert "RLE_DICTIONARY" in column.encodings, name
        else:
            assert not {"RLE_DICTIONARY", "PLAIN_DICTIONARY"} & set(column.encodings), name
            assert ("DELTA_BINARY_PACKED" in column.encodings) == (name in NUMBERS), name


def test_columns_that_have_no_null_say_so_in_the_file(tmp_path):
    add = written(tmp_path, MANY)
    schema = parquet.read_schema(tmp_path / add.path)
    stated = [(field.name, field.nullable) for field in schema]
    assert stated == [(c.name, c.nullable) for c in COLUMNS if c.name != "day"]


def walled(time):
    """A time (Unix ns) as the log spells timestamps: cut to microseconds."""
    cut = timedelta(microseconds=abs(time) // 1000)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return f"{epoch + cut if time >= 0 else epoch - cut:%Y-%m-%dT%H:%M:%S.%fZ}"


@examples(100)
@given(rows=ROWS)
def test_the_log_says_the_least_and_the_greatest_of_each_column(tmp_path_factory, rows):
    add = written(tmp_path_factory.mktemp("table"), rows)
    stated = json.loads(add.stats)
    columns = dict(zip(ROW, zip(*rows, strict=True), strict=True))
    columns |= {"source": ["test"], "format": ["heph"], "session": ["session"]}
    columns["wall"] = [None if time is None else walled(time) for time in columns["time"]]
    values = {n: [v for v in columns[n] if v is not None] for n in layout.STATED}
    assert stated == {
        "numRecords": len(rows),
        "minValues": {name: min(those) for name, those in values.items() if those},
        "maxValues": {name: max(those) for name, those in values.items() if those},
        "nullCount": {name: sum(v is None for v in columns[name]) for name in layout.STATED},
    }


WRITER = """
import sys
from pathlib import Path
from tailrace.rows.batch import Batch
from tailrace.rows.schema import Row
from tailrace.store.data_files import to_arrow
from tests.forms import examples
from tailrace.store.data_files import write_rows

row = dict.fromkeys(Row._fields) | {"stream": "1", "kind": "span", "time": 10**18, "offset": 0}
batch = Batch()
batch.day = 20_000
batch.extend("test", "heph", "session", [[row[name]] * 20_000 for name in Row._fields], 1)
row["kind"] = "gap"
batch.extend("test", "heph", "session", [[row[name]] for name in Row._fields], 1)
[day_rows] = to_arrow(batch)
print("2001-09-09" in write_rows(Path(sys.argv[1]), day_rows).stats, "pandas" in sys.modules)
"""


def test_writing_a_file_with_times_imports_no_pandas(tmp_path):
    """It is installed here, and would take 45 MB of a collector."""
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"


def test_text_that_is_too_long_has_no_bounds_in_the_log(tmp_path):
    add = written(tmp_path, MANY, session="x" * (TEXT_MAX + 1))
    stated = json.loads(add.stats)
    assert "session" not in stated["minValues"] | stated["maxValues"]
    assert stated["nullCount"]["session"] == 0
    assert stated["minValues"]["stream"] == "s0"
    longest = json.loads(written(tmp_path, MANY, session="x" * TEXT_MAX).stats)
    assert longest["maxValues"]["session"] == "x" * TEXT_MAX


def test_the_log_action_is_of_the_file(tmp_path):
    add = written(tmp_path, MANY, day=20_001)
    path = tmp_path / add.path
    assert path.parent.name == "day=2024-10-05"
    assert add.partition_values == {"day": "2024-10-05"}
    assert (add.size, add.modification_time) == (path.stat().st_size, path.stat().st_mtime_ns // 10**6)  # fmt: skip
    assert (DataFile.of(add).rows, add.data_change) == (len(MANY), True)


def test_files_have_names_of_their_own(tmp_path):
    assert len({written(tmp_path, MANY[:2]).path for _ in range(3)}) == 3


def test_rows_of_a_day_that_comes_again_keep_their_order(open_table, root):
    """As when the wall clock is set back over midnight."""
    batch = Batch()
    for number, day in enumerate((DAY, DAY + 1, DAY)):
        rows = [row._replace(seq=number) for row in MANY[:2]]
        batch.day = day
        batch.extend("test", "heph", "session", list(zip(*rows, strict=True)), 1)
    commit(open_table(), batch, 1)
    files = TableSnapshot.open(str(root.parent), options={}).files()
    assert [(file.day, file.rows) for file in files] == [(DAY, 2), (DAY, 2), (DAY + 1, 2)]
    assert len(DeltaTable(str(root)).file_uris()) == 3


def test_without_a_place_to_write_the_reason_is_told(tmp_path):
    (tmp_path / "day=2024-10-04").write_text("in the way")
    with pytest.raises(OSError, match="File exists"):
        written(tmp_path, MANY)
    assert [path.name for path in tmp_path.iterdir()] == ["day=2024-10-04"]
