"""Test answers as JSON, CSV, Arrow and tables for people: they are exact, cannot harm a terminal, and have a bounded
size.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from tailrace.query import output
from tailrace.query.answer import AnswerColumn, Shape
from tailrace.query.engine import Engine
from tailrace.query.output import (
    cells,
    clip,
    fit,
    layout,
    wrap,
    write_arrow,
    write_csv,
    write_json,
)
from tailrace.query.views import EVENTS, VIEWS
from tailrace.terminal import printable
from tests.query.tables import make, row

TEXTS = st.text(st.characters(codec="utf-8"))
HOSTILE = "\x1b[2J\x00\x7f\x9b31m\r\n\u202e\"',;"


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    return Engine(make(tmp_path_factory.mktemp("store"), [row(name=HOSTILE)]))


def pages(answer):
    while page := answer.next_page():
        yield page


def as_json(engine, sql):
    answer, out = engine.ask(sql, Shape.JSON), io.BytesIO()
    write_json(answer.columns, pages(answer), out)
    return out.getvalue()


def as_csv(engine, sql):
    answer, out = engine.ask(sql), io.BytesIO()
    write_csv(answer.columns, pages(answer), out)
    return out.getvalue().decode()


def as_arrow(engine, sql):
    answer, out = engine.ask_arrow(sql), io.BytesIO()
    write_arrow(answer.schema, iter(answer.next_batch, None), out)
    return pa.ipc.open_stream(out.getvalue()).read_all()


def as_lines(engine, sql, width=None, spare=()):
    answer = engine.ask(sql)
    return list(layout(answer.columns, pages(answer), width=width, spare=spare))


def value(engine, sql):
    (line,) = as_json(engine, f"SELECT {sql} AS x").splitlines()
    return json.loads(line)["x"]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("9223372036854775807", 2**63 - 1),
        ("18446744073709551615::UBIGINT", 2**64 - 1),
        ("-170141183460469231731687303715884105727", -(2**127) + 1),
        ("'NaN'::DOUBLE", None),
        ("'-inf'::DOUBLE", None),
        ("0.1::DOUBLE", 0.1),
        ("true", True),
        ("NULL", None),
        ("''", ""),
        ("make_timestamp_ns(1795046400154570783)", "2026-11-19 00:00:00.154570783"),
        ("DATE '2026-11-21'", "2026-11-21"),
        ("INTERVAL 3 months", "3 months"),
        ("'\\xFF'::BLOB", "\\xFF"),
        ("'{\"a\": [1]}'::JSON", {"a": [1]}),
        ("'{\"a\": [1]}'", '{"a": [1]}'),
        ("[1, NULL]", [1, None]),
        ("{'a': make_timestamp_ns(7)}", {"a": "1970-01-01 00:00:00.000000007"}),
        ("map {'k': 2}", {"k": 2}),
        ("['NaN'::DOUBLE]", "[NaN]"),
    ],
)
def test_a_value_is_exact_in_json(engine, sql, expected):
    assert value(engine, sql) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("'{\"a\": [1]}' AS attributes", {"attributes": {"a": [1]}}),
        ("NULL AS attributes, 'x' AS totals", {"attributes": None, "totals": "x"}),
        (
            "'{\"a\":1' AS attributes, '[1]' AS producer",
            {"attributes": '{"a":1', "producer": "[1]"},
        ),
        (
            "'{}' AS attributes, '{\"b\":2}' AS attributes",
            {"attributes": {}, "attributes_1": {"b": 2}},
        ),
        ("7 AS totals, '{}' AS other", {"totals": 7, "other": "{}"}),
    ],
)
def test_the_views_columns_of_objects_are_objects_in_json(engine, sql, expected):
    assert json.loads(as_json(engine, f"SELECT {sql}")) == expected


def test_the_documented_columns_of_objects_are_written_as_objects():
    named = {c.name for view in VIEWS for c in view.columns if c.meaning.startswith("JSON object")}
    columns = [AnswerColumn(i, name, "VARCHAR", Shape.JSON) for i, name in enumerate(sorted(named))]
    out = io.BytesIO()
    write_json(columns, [[('{"a":1}',) * len(columns)]], out)
    assert json.loads(out.getvalue()) == {name: {"a": 1} for name in named}
    assert named == {"attributes", "labels", "producer", "totals"}


def test_a_decimal_keeps_its_digits_in_json(engine):
    line = as_json(engine, "SELECT 12345678901234567890.10::DECIMAL(38, 2) AS x")
    assert line == b'{"x":12345678901234567890.10}\n'


def test_columns_of_one_name_are_numbered_in_json(engine):
    assert json.loads(as_json(engine, "SELECT 1 AS a, 2 AS a")) == {"a": 1, "a_1": 2}


def test_the_order_of_an_answer_survives_its_conversion(engine):
    sql = "SELECT i, make_timestamp_ns(i) AS t FROM range(50000) AS r(i) ORDER BY hash(i)"
    plain = "SELECT i FROM range(50000) AS r(i) ORDER BY hash(i)"
    converted = [json.loads(line)["i"] for line in as_json(engine, sql).splitlines()]
    assert converted == [json.loads(line)["i"] for line in as_json(engine, plain).splitlines()]


def test_json_has_no_character_that_a_terminal_obeys(engine):
    line = as_json(engine, "SELECT name FROM events")
    assert json.loads(line)["name"] == HOSTILE
    assert line.rstrip(b"\n").decode().replace("\u202e", "").isprintable()


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(TEXTS, st.none() | TEXTS), min_size=1, max_size=5))
def test_any_text_comes_back_from_json_and_csv(rows):
    columns = [AnswerColumn(i, name, "VARCHAR", Shape.JSON) for i, name in enumerate("ab")]
    out = io.BytesIO()
    write_json(columns, [rows], out)
    lines = out.getvalue().decode().split("\n")[:-1]
    assert [tuple(json.loads(line).values()) for line in lines] == rows
    out = io.BytesIO()
    write_csv(columns, [rows], out)
    read = list(csv.reader(io.StringIO(out.getvalue().decode(), newline="")))
    assert read == [["a", "b"], *([a, b or ""] for a, b in rows)]


def test_csv_has_a_heading_and_text_of_everything(engine):
    text = as_csv(engine, "SELECT 1 AS a, NULL AS b, [1, 2] AS c, true AS d, 'x,\"y' AS e")
    assert text == 'a,b,c,d,e\n1,,"[1, 2]",true,"x,""y"\n'
    assert as_csv(engine, "SELECT 1 AS a WHERE false") == "a\n"


def test_an_empty_text_is_not_null(engine):
    text = as_csv(engine, "SELECT 0.5::DOUBLE AS a, '' AS b, NULL AS c, 'x,\"y' AS d, 1e16 AS e")
    assert text == 'a,b,c,d,e\n0.5,"",,"x,""y",1e+16\n'
    plain = as_csv(engine, "SELECT 0.5::DOUBLE AS a, 'z' AS b, NULL AS c, 'x,\"y' AS d, 1e16 AS e")
    assert plain == text.replace('""', "z", 1)


def test_arrow_has_duckdbs_types(engine):
    table = as_arrow(engine, "SELECT 1::BIGINT AS a, make_timestamp_ns(7) AS b FROM range(70000)")
    assert table.num_rows == 70_000
    assert table.schema.types == [pa.int64(), pa.timestamp("ns")]
    assert as_arrow(engine, "SELECT 1::BIGINT AS a WHERE false").num_rows == 0
    assert as_arrow(engine, "DESCRIBE events").num_rows > 10


# Tables for people


def test_a_table_is_aligned_and_nothing_is_cut(engine):
    sql = "SELECT * FROM (VALUES (1, 'a', NULL), (-20, 'bb''', 0.5)) AS t(number, text, x)"
    assert as_lines(engine, sql) == [
        "number  text    x",
        "     1  a       -",
        "   -20  bb'   0.5",
    ]


def test_later_pages_go_on_under_the_same_columns():
    columns = [
        AnswerColumn(0, "a", "VARCHAR", Shape.TEXT),
        AnswerColumn(1, "b", "BIGINT", Shape.TEXT),
    ]
    lines = list(layout(columns, [[("x", 1)], [("longer", 2), ("y", 30)]]))
    assert lines == ["a  b", "x  1", "longer  2", "y  30"]


def test_no_answer_is_a_heading(engine):
    assert as_lines(engine, "SELECT 1 AS number WHERE false") == ["number"]


def test_a_terminal_gets_lines_that_fit(engine):
    sql = "SELECT repeat('x', 200) AS a, 7 AS b, repeat('日本', 50) AS c"
    heading, line = as_lines(engine, sql, width=40)
    assert cells(line) in (39, 40)
    assert cells(heading) <= 40
    assert line.count("…") == 2
    assert " 7 " in line


def test_a_narrow_terminal_leaves_out_empty_columns_then_spare_ones_and_cuts_no_id(engine):
    sql = """SELECT 'source' AS source, NULL AS nothing, repeat('s', 17) AS session, 1234567890 AS id,
      '2026-11-28 13:00:00' AS first, '/scratch/someone/runs/a.trace' AS peer"""
    columns = ("source", "nothing", "session", "id", "first", "peer")
    shown = {width: as_lines(engine, sql, width=width, spare=("first",)) for width in (200, 80, 60)}
    headings = {width: heading.split() for width, (heading, _) in shown.items()}
    assert headings[200] == [*columns]
    assert headings[80] == [name for name in columns if name != "nothing"]
    assert headings[60] == [name for name in columns if name not in {"nothing", "first"}]
    for width, (_, line) in shown.items():
        assert cells(line) <= width
        assert "s" * 17 in line
        assert "1234567890" in line
        assert line.endswith("a.trace"), "the end of a path is what tells files apart"
    assert len(as_lines(engine, sql, width=30)) == 1 + len(columns)


WORDS = [
    ("collectors", "8c1f0a2b3c4d5e6f70819203", "node1.demo/4100/4101", 1_234_567_890, "unfinished?", "between two events",
     "/scratch/someone/with/a/long/name/runs/a.trace"),
    ("sim", "0123456789abcdef01234567", "7", 12, "open", "somewhere in its session", "127.0.0.1:5"),
]  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize(
    "names", [["source", "session", "stream", "missing", "state", "placed", "peer"]]
)
def test_headings_numbers_ids_and_words_are_whole_at_any_width(names, width):
    types = ["BIGINT" if name == "missing" else "VARCHAR" for name in names]
    columns = [
        AnswerColumn(i, *each, Shape.TEXT) for i, each in enumerate(zip(names, types, strict=True))
    ]
    lines = list(layout(columns, [WORDS], width=width, spare=("peer", "placed")))
    allowed = {*names, "row", "1", "2"} | {
        word for row in WORDS for cell in row for word in str(cell).split()
    }
    shown = " ".join(lines).split()
    for word in shown:
        assert word in allowed or word.rstrip("…") in allowed or word.startswith("…/"), word
    for _, session, stream, missing, *_ in WORDS:
        assert {session, stream, str(missing)} <= set(shown)
    if not lines[0].startswith("row"):
        assert all(cells(line) <= width for line in lines)
    assert lines[0].startswith("row") == (width in {60, 80})


@given(
    st.lists(st.text("abc/日", min_size=1, max_size=40), min_size=1, max_size=9),
    st.integers(20, 90),
)
def test_a_wrapped_text_has_all_parts_that_fit_into_a_line(parts, width):
    lines = wrap(parts, width)
    assert all(cells(line) <= width for line in lines)
    shown = " ".join(lines).split()
    for part in parts:
        assert part in shown or cells(part) > width - len(output.INDENT)


def test_a_column_that_is_empty_on_the_first_page_is_shown_if_more_pages_come():
    columns = [AnswerColumn(i, n, "VARCHAR", Shape.TEXT) for i, n in enumerate("ab")]
    assert next(layout(columns, [[("x x x x x", None)], [("y", "z")]], width=9)).split() == [
        "a",
        "b",
    ]


def test_too_many_columns_for_a_terminal_are_a_line_each(engine):
    lines = as_lines(engine, "FROM events", width=40)
    assert lines[0] == "row 1"
    assert [line.split()[0] for line in lines[1:4]] == ["day", "source", "format"]
    assert len(lines) == 1 + len(EVENTS.columns)


def test_a_table_shows_controls_and_obeys_none(engine):
    for width in (None, 30, 200):
        text = "".join(as_lines(engine, "SELECT name FROM events", width=width))
        assert text.isprintable()
    assert as_lines(engine, 'SELECT name AS "a\nb" FROM events')[0] == "a\\nb"


@given(TEXTS, st.integers(1, 30))
def test_a_clipped_text_never_exceeds_its_width(text, width):
    shown = clip(printable(text), width)
    assert cells(shown) <= width
    if cells(printable(text)) <= width:
        assert shown == printable(text)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=20), st.integers(1, 400))
def test_columns_are_cut_from_the_widest_on_and_no_more_than_needed(widths, room):
    fitting = fit(widths, room)
    least = [min(width, output.LEAST) for width in widths]
    if fitting is None:
        assert sum(least) > room
        return
    if sum(widths) <= room:
        assert fitting == widths
        return
    assert room - len(widths) < sum(fitting) <= room
    cut = [new for new, old in zip(fitting, widths, strict=True) if new < old]
    kept = [new for new, old in zip(fitting, widths, strict=True) if new == old]
    assert all(low <= new for low, new in zip(least, fitting, strict=True))
    if cut:
        assert max(cut) - min(cut) <= 1
        assert not kept or max(kept) <= max(cut)


def test_numbers_of_any_kind_are_to_the_right(engine):
    answer = engine.ask("SELECT 1::TINYINT, 2::HUGEINT, 1.5, 2::DOUBLE, 'x', true, now()")
    assert [column.number for column in answer.columns] == [True] * 4 + [False] * 3
    assert all(math.isfinite(cell) for cell in answer.next_page()[0][:4])


@pytest.mark.parametrize("numbers", [[], [1, 2, 3]])
def test_all_of_an_arrow_stream_is_written_on_return(numbers):
    """The process of a statement exits without closing its output."""
    schema = pa.schema([("n", pa.int64())])
    batches = [pa.record_batch([numbers], schema=schema)] if numbers else []
    read, write = os.pipe()
    os.set_blocking(read, False)
    with io.FileIO(read) as answer, io.BufferedWriter(io.FileIO(write, "w"), 2**16) as out:
        write_arrow(schema, batches, out)
        found = pa.ipc.open_stream(io.BytesIO(answer.read(2**16) or b"")).read_all()
        assert found.to_pylist() == [{"n": number} for number in numbers]
