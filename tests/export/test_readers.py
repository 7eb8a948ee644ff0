"""Stores of awkward values, exported, as programs that are not ours read them: every row, and every value.

The readers are those that people use: DuckDB, polars, pandas and pyarrow for tables; the schemas of Perfetto and OpenTelemetry,
a reader of JSON, and otf2-print for what is drawn.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections import Counter

import duckdb
import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tailrace.errors import UnknownError
from tailrace.export.output import RowCount
from tests.cli.command import run
from tests.export.drawn import LATEST, READERS, asked
from tests.export.exports import make_export
from tests.export.test_otf2 import by_time, noted, printed
from tests.export.traces import EPOCH, awkward, grown
from tests.forms import examples
from tests.query.asking import ask
from tests.query.tables import clocked, gap, make, row

# A failing store is small already, and to look for a smaller one takes minutes.
MANY = settings(
    examples(9, suppress_health_check=list(HealthCheck)), phases=set(Phase) - {Phase.shrink}
)

NUMBERS = ["substream", "seq", "id", "parent", "start", "end", "time", "offset", "missing"]
TEXTS = ["source", "session", "stream", "kind", "name", "category", "attributes"]
COLUMNS = [*TEXTS, *NUMBERS, "wall"]
COMPUTED = {"time", "wall"}
CHOSEN = ", ".join("epoch_us(wall)" if name == "wall" else f'"{name}"' for name in COLUMNS)
"""The columns that are compared, as SQL; of a timestamp, its microseconds since 1970."""


CSV = "header = true, delim = ',', quote = '\"', escape = '\"', max_line_size = 8000000"
"""How DuckDB reads our CSV files, as SQL."""


def in_duckdb(relation, *values):
    """Rows as DuckDB reads them in another time zone than UTC."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'Europe/Berlin'")
        return Counter(connection.execute(f"SELECT {CHOSEN} FROM {relation}", values).fetchall())  # noqa: S608 - our own words


def in_pyarrow(table):
    assert table.schema.field("wall").type == pyarrow.timestamp("us", "UTC")
    columns = [table[name].cast("int64") if name == "wall" else table[name] for name in COLUMNS]
    return Counter(zip(*(column.to_pylist() for column in columns), strict=True))


def in_polars(frame):
    import polars

    assert frame.schema["wall"] == polars.Datetime("us", "UTC")
    chosen = frame.select(COLUMNS).with_columns(polars.col("wall").cast(polars.Int64))
    return Counter(chosen.rows())


def in_pandas(path):
    import pandas

    frame = pandas.read_parquet(path, dtype_backend="pyarrow")
    return in_pyarrow(pyarrow.Table.from_pandas(frame, preserve_index=False))


def csv_in_duckdb(path):
    names = next(csv.reader(io.StringIO(path.read_bytes().decode(), newline="")))
    types = dict.fromkeys(names, "BIGINT") | dict.fromkeys([*TEXTS, "day", "format"], "VARCHAR")
    types["wall"] = "TIMESTAMPTZ"
    listed = ", ".join(f"'{name}': '{type_}'" for name, type_ in types.items())
    return in_duckdb(
        f"read_csv(?, auto_detect = false, {CSV}, allow_quoted_nulls = false, columns = {{{listed}}})",
        str(path),
    )


def parquet_in_polars(path):
    import polars

    return in_polars(polars.read_parquet(path))


def arrow_in_polars(path):
    import polars

    return in_polars(polars.read_ipc(path))


def csv_in_polars(path):
    import polars

    types = dict.fromkeys(NUMBERS, polars.Int64) | dict.fromkeys([*TEXTS, "wall"], polars.String)
    wall = polars.col("wall").str.to_datetime(
        "%Y-%m-%d %H:%M:%S%.f%#z", time_unit="us", time_zone="UTC"
    )
    return in_polars(polars.read_csv(path, schema_overrides=types).with_columns(wall))


TABLES = {
    "parquet": [
        lambda path: in_pyarrow(pyarrow.parquet.read_table(path)),
        lambda path: in_duckdb("read_parquet(?)", str(path)),
        parquet_in_polars,
        in_pandas,
    ],
    "arrow": [
        lambda path: in_pyarrow(pyarrow.ipc.open_file(path).read_all()),
        arrow_in_polars,
    ],
    "csv": [csv_in_duckdb, csv_in_polars],
}


def written(store, to, path):
    """Export, and return the export with the count that the command prints."""
    progress = RowCount(None)
    return make_export(store, to, path, progress=progress), progress.rows


@MANY
@given(rows=awkward())
def test_every_reader_of_tables_finds_every_value(rows, tmp_path_factory):
    rows, directory = grown(rows), tmp_path_factory.mktemp("tables")
    store = make(directory / "store", rows)
    wanted = Counter(ask(store, f"SELECT {CHOSEN} FROM events"))  # noqa: S608 - our own words
    stored = [n for n, name in enumerate(COLUMNS) if name not in COMPUTED]
    given_ = Counter(tuple(row[COLUMNS[n]] for n in stored) for row in rows)
    assert Counter(tuple(row[n] for n in stored) for row in wanted.elements()) == given_
    for to, readers in TABLES.items():
        try:
            _, count = written(store, to, directory / "rows")
        except UnknownError:
            return  # no row is an event
        assert count == len(rows)
        for read in readers:
            found = read(directory / "rows")
            assert found - wanted == wanted - found == Counter(), to
    make_export(store, "jsonl", directory / "rows")
    lines = [json.loads(line) for line in (directory / "rows").read_bytes().splitlines()]
    assert len(lines) == len(rows)
    compared = [name for name in COLUMNS if name not in {"attributes", "wall"}]
    expected = [tuple(row[COLUMNS.index(name)] for name in compared) for row in wanted.elements()]
    assert Counter(tuple(line[name] for name in compared) for line in lines) == Counter(expected)
    names = Counter(row["name"] for row in rows)
    extracted = (
        "SELECT json ->> '$.name' FROM read_ndjson_objects(?, maximum_object_size = 8000000)"
    )
    with duckdb.connect() as connection:
        found = connection.execute(extracted, [str(directory / "rows")]).fetchall()
    assert Counter(name for (name,) in found) == names
    for view in ("gaps", "programs"):
        compare_beside(store, directory / "rows", view)


def compare_beside(store, path, view):
    """Compare the file of a view, beside the rows of each kind of table, with the view itself, value by value."""
    import polars

    wanted = ask(store, f"SELECT COLUMNS(*)::VARCHAR FROM {view}")  # noqa: S608 - our own words
    named = path.with_name(f"{path.name}.{view}")
    for to in TABLES:
        make_export(store, to, path)
        with duckdb.connect() as connection:
            if to == "csv":
                relation = f"read_csv(?, all_varchar = true, allow_quoted_nulls = false, {CSV})"
            else:
                relation = "read_parquet(?)" if to == "parquet" else "arrow"
            if to == "arrow":
                connection.register("arrow", polars.read_ipc(named).to_arrow())
            values = [] if to == "arrow" else [str(named)]
            found = connection.execute(f"SELECT COLUMNS(*)::VARCHAR FROM {relation}", values)  # noqa: S608 - our own words
            assert Counter(found.fetchall()) == Counter(wanted), (to, view)


@MANY
@given(rows=awkward())
def test_every_reader_of_drawings_finds_every_event(rows, tmp_path_factory):
    rows, directory = grown(rows), tmp_path_factory.mktemp("drawings")
    store = make(directory / "store", rows)
    wanted = asked(store)
    events = sum(row["kind"] not in {"session", "gap"} for row in rows)
    for to, read in READERS.items():
        try:
            exported, count = written(store, to, directory / "trace")
        except UnknownError:
            return  # no row is an event
        found = read(directory / "trace")
        drawn = Counter({each: n for each, n in found.items() if each.kind != "lost"})
        assert drawn - wanted == wanted - drawn == Counter(), to
        assert all(each.begin >= 0 and each.begin + (each.length or 0) <= LATEST for each in found)
        left = sum(n for what, n in exported.left.items() if what.endswith("without a time"))
        assert count + left == events
    if shutil.which("otf2-print"):
        assert by_time(printed(store, directory / "archive")) == +noted(store).events


@pytest.mark.parametrize("to", READERS)
def test_a_gap_beside_the_latest_time_ends_there(to, tmp_path):
    rows = [
        row(seq=1, start=LATEST - EPOCH - 5, end=LATEST, offset=1, name="last"),
        gap(3, 2, offset=2),
    ]
    store = make(tmp_path / "store", [clocked(epoch=EPOCH), *rows])
    make_export(store, to, tmp_path / "trace")
    (lost,) = (each for each in READERS[to](tmp_path / "trace") if each.kind == "lost")
    assert (lost.begin, lost.length) == (LATEST - 5, 5)


def test_a_number_of_a_row_that_is_not_drawn_does_not_count(tmp_path):
    rows = [row(seq=n, start=start, end=start, offset=n) for n, start in enumerate([-1, 0, 5])]
    store = make(tmp_path / "store", [clocked(epoch=0), *rows, row("begin", start=7, offset=9)])
    exported, count = written(store, "chrome", tmp_path / "trace")
    assert (count, exported.left) == (3, {"span without a time": 1})
    assert READERS["chrome"](tmp_path / "trace").total() == 3


def test_spans_that_share_an_id_have_ids_of_their_own_in_opentelemetry(tmp_path):
    """A reader checks that no id comes twice; a parent whose id several spans have is none that is in the file."""
    rows = [row(id=id_, start=n, end=n + 1, offset=n) for n, id_ in enumerate([7, 7, 8])]
    store = make(
        tmp_path / "store",
        [clocked(epoch=EPOCH), *rows, row(id=9, parent=8, start=3, end=4, offset=5)],
    )
    make_export(store, "otlp", tmp_path / "trace")
    READERS["otlp"](tmp_path / "trace")
    (line,) = (tmp_path / "trace").read_bytes().splitlines()
    spans = json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert len({span["spanId"] for span in spans}) == 4
    assert spans[3]["parentSpanId"] == spans[2]["spanId"]


def test_csv_for_a_spreadsheet_has_no_formulas(tmp_path):
    store = make(tmp_path / "store", [clocked(epoch=EPOCH), row(name="=1+1", start=1, end=2)])
    run("export", "--store", store, "--to", "csv", "--csv-safe", "-o", tmp_path / "rows.csv")
    rows = csv.DictReader(io.StringIO((tmp_path / "rows.csv").read_text(), newline=""))
    assert "'=1+1" in {each["name"] for each in rows}
    wrong = ("export", "--store", store, "--to", "jsonl", "--csv-safe", "-o", tmp_path / "rows")
    assert "--csv-safe is for --to csv" in run(*wrong, code=2)
