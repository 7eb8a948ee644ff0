"""Test that files are left out according to the statistics in the table's log, and that no matching row is left out
with them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, strategies as st

from tailrace.analysis.statistics import statistics
from tailrace.query.completeness import Window, completeness
from tailrace.query.engine import Engine
from tailrace.query.statement import regions_of
from tailrace.query.table import Bounds
from tests.forms import examples
from tests.query.opened import opened_in
from tests.query.tables import DAY, SECOND, clocked, gap, make, row, session

FILES = 12


def commits():
    """Return commits: one with session rows, then one file of spans each. A file has ten spans of one of three streams."""
    spans = [
        [
            row(seq=10 * f + i, stream=str(f % 3), start=10 * f + i, end=10 * f + i + 1, time=1000 + 10 * f + i)
            for i in range(10)
        ]
        for f in range(FILES)
    ]  # fmt: skip
    return [[clocked(epoch=1000)], *spans]


def files_opened(store, sql, parameters=()):
    """Return the rows of a statement, and how many files were opened for it after its views had been prepared.

    The first file has a session row without a time. It belongs to no event."""
    engine = Engine(store)
    engine.count("FROM events UNION ALL BY NAME FROM spans")
    with opened_in(Path(store) / "events" / f"day={DAY}") as names:
        rows = list(engine.rows(sql, parameters))
    engine.close()
    return rows, len(names)


@pytest.mark.parametrize(
    ("sql", "parameters", "count", "opened"),
    [
        ("SELECT count(*) FROM spans WHERE start BETWEEN 41 AND 48", (), 8, 1),
        ("SELECT count(*) FROM spans WHERE start >= ? AND start < ?", (38, 42), 4, 2),
        ("SELECT count(*) FROM spans AS s WHERE s.time > $t AND s.name IS NULL", {"t": 1115}, 4, 1),
        ("SELECT count(*) FROM spans WHERE 1110 <= time", (), 10, 1),
        ("SELECT count(*) FROM events WHERE stream = '1' AND kind = 'span'", (), 40, 4),
        ("SELECT count(*) FROM spans WHERE seq IN (5, 115)", (), 2, FILES),
        ("SELECT count(*) FROM spans WHERE (seq = 5 OR seq = 14) AND starts_with(source, 's')", (), 2, 2),
        ("WITH few AS (FROM spans WHERE start < 3) SELECT count(*) FROM few", (), 3, 1),
        ("SELECT count(*) FROM spans WHERE start < 3 OR stream = 'none'", (), 3, FILES),
        ("SELECT count(*) FROM spans WHERE start + 0 < 3", (), 3, FILES),
        ("SELECT count(*) FROM spans WHERE start > 1000000", (), 0, 1),
    ],
)  # fmt: skip
def test_a_narrow_question_opens_the_files_that_may_have_its_rows(
    store, sql, parameters, count, opened
):
    rows, names = files_opened(store, sql, parameters)
    assert rows == [(count,)]
    assert names in ({opened} if opened < FILES else {FILES, FILES + 1})


@pytest.mark.parametrize(
    ("gaps", "few"), [([], True), ([gap(3, 5, session="worded")], True), ([gap(3, 5)], False)]
)
def test_what_a_narrow_answer_lacks_is_found_in_few_files(tmp_path, gaps, few):
    """If the session rows do not state when a session was open, its events must be read. This is necessary only for
    sessions with gaps."""
    words = [session("open", session="worded", opened=1000), *gaps]
    spans = [[row(start=f, end=f + 1, time=1000 + 10 * f, offset=f)] for f in range(FILES)]
    engine = Engine(make(tmp_path, words, *spans))
    engine.count("FROM gaps")
    window = Window(since=1029, until=1031)
    with opened_in(tmp_path / "events" / f"day={DAY}") as names:
        found = completeness(engine, window.scope)
        figures = statistics(engine, window, found, self_time=False)
    assert (sum(found.missing.values()), found.selected) == (3 * len(gaps), True)
    assert [each.ended for each in figures] == [1]
    # DuckDB opens one more file to find out the columns, and opens the first file each time it binds a view.
    assert len(names) <= 3 if few else len(names) == FILES + 1


def test_what_narrows_nothing_is_found(store):
    engine = Engine(store)

    def found(sql, parameters=()):
        return regions_of(engine.connection, sql, parameters)

    assert found("SELECT 1 FROM spans WHERE start > 5 AND stream = 7") == [{"start": Bounds(5)}]
    assert found("SELECT 1 FROM spans WHERE start > '5'") == [{}]
    assert found("SELECT 1 FROM spans WHERE start > ?", [True]) == [{}]
    for whole in (
        "SELECT 1 FROM spans JOIN events USING (seq) WHERE start > 5",
        "SELECT 1 FROM spans AS s(start) WHERE start > 5",
        "SELECT 1 FROM spans TABLESAMPLE 10% WHERE start > 5",
        "SELECT 1 FROM spans WHERE start > (SELECT max(last_time) FROM streams)",
        "SELECT 1 FROM spans, part.shown",
        "nothing of spans that could be parsed",
    ):
        assert found(whole) is None


def test_a_begin_is_superseded_by_a_span_in_a_file_that_is_left_out(tmp_path):
    begin = row("begin", id=1, start=5, stream="1", offset=7)
    span = row("span", id=1, start=5, end=9, stream="1", offset=7, end_offset=20)
    store = make(tmp_path, [begin], [span], [row("instant", start=100, stream="2", offset=9)])
    engine = Engine(store)
    assert list(engine.rows("SELECT count(*) FROM events WHERE start < 50")) == [(1,)]
    assert list(engine.rows("SELECT kind FROM events WHERE kind = 'begin'")) == []
    assert list(engine.rows("SELECT open FROM spans WHERE start < 50")) == [(False,)]


@pytest.mark.parametrize("column", ["start", "time"])
def test_narrow_questions_one_after_another_find_the_open_spans_of_each(tmp_path, column):
    """Only begins in the regions of the statements so far are compared with spans."""

    def begin(number):
        return row("begin", start=number, time=number, stream="1", offset=number)

    starts = range(0, 200, 10)
    ended = [row(start=at, end=at + 1, time=at, stream="1", offset=at) for at in starts[::2]]
    engine = Engine(make(tmp_path, [begin(at) for at in starts], ended[:5], ended[5:]))
    for least in (0, 45, 0, 130, *range(0, 190, 7)):
        asked = f"SELECT start, open FROM spans WHERE {column} BETWEEN {least} AND {least + 30} ORDER BY ALL"  # noqa: S608 - numbers
        found = list(engine.rows(asked))
        assert found == [(at, at % 20 == 10) for at in starts if least <= at <= least + 30]
    assert list(engine.rows("SELECT count(*) FILTER (open), count(*) FROM spans")) == [(10, 20)]


def test_a_row_that_gets_its_time_from_its_clock_is_never_left_out(tmp_path):
    store = make(
        tmp_path,
        [row(start=5), row(time=10, start=3)],
        [clocked(epoch=1000, ticks_per_second=SECOND)],
    )
    assert list(Engine(store).rows("SELECT start FROM spans WHERE time = 1005")) == [(5,)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT name AS kind FROM spans WHERE kind = 'step 60'", [("step 60",)]),
        ('SELECT count(*) FROM (SELECT value AS "end" FROM counters WHERE "end" = 7)', [(1,)]),
    ],
)
def test_a_name_of_the_statements_own_is_no_column_of_the_files(tmp_path, sql, expected):
    """`spans` has no column `kind`, so the word is a name that the statement defines."""
    spans = [[row(seq=n, start=n, name=f"step {n}")] for n in (10, 60, 70)]
    counter = row("counter", seq=80, start=80, name="c", attributes={"value": 7})
    store = make(tmp_path, [counter], *spans)
    assert list(Engine(store).rows(sql)) == expected


@pytest.mark.parametrize("prefix", ["a", "a\U0010ffff", "\ud7ff", "\U0010ffff", ""])
def test_a_text_of_the_greatest_characters_begins_with_its_prefix(tmp_path, prefix):
    streams = [f"{prefix}\U0010ffff\U0010ffffz", f"{prefix}\U0010ffff", "b"]
    store = make(tmp_path, *([row(seq=n, stream=each)] for n, each in enumerate(streams)))
    rows = Engine(store).rows("SELECT count(*) FROM spans WHERE starts_with(stream, ?)", [prefix])
    assert list(rows) == [(sum(each.startswith(prefix) for each in streams),)]


VALUES = st.none() | st.integers(-3, 3)
ROWS = st.builds(
    row,
    kind=st.sampled_from(["span", "instant", "counter", "begin", "annotation"]),
    stream=st.sampled_from(["", "1", "2", "é"]), session=st.sampled_from(["a", "ab", "b"]),
    seq=VALUES, start=VALUES, time=VALUES, end=VALUES, offset=st.integers(0, 9),
)  # fmt: skip
COMPARISONS = st.builds(
    lambda column, operator, number: f'"{column}" {operator} {number}',
    st.sampled_from(["seq", "start", "time", "end"]),
    st.sampled_from(["=", "<", "<=", ">", ">=", "<>", "IS DISTINCT FROM"]), st.integers(-4, 4),
) | st.sampled_from([
    "stream = '1'", "stream IN ('', 'é')", "starts_with(session, 'a')", "session > 'a'", "seq BETWEEN -1 AND 1",
    "NOT start < 0", "time IS NULL",
])  # fmt: skip
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.builds(lambda a, word, b: f"({a} {word} {b})", inner, st.sampled_from(["AND", "OR"]), inner),
    max_leaves=4,
)  # fmt: skip


@examples(9, suppress_health_check=list(HealthCheck))
@given(
    commits=st.lists(st.lists(ROWS, min_size=1, max_size=4), min_size=1, max_size=5),
    conditions=st.lists(CONDITIONS, min_size=6, max_size=12), clock=st.booleans(),
)  # fmt: skip
def test_no_row_is_left_out(commits, conditions, clock):
    clocks = [[clocked(epoch=2, ticks_per_second=SECOND)]] if clock else []
    with tempfile.TemporaryDirectory() as directory:
        engine = Engine(make(Path(directory) / "store", *clocks, *commits))
        for view in ("events", "spans"):
            whole = f"CREATE OR REPLACE TEMP TABLE whole AS FROM {view}"
            engine.count(f"FROM {view}")
            engine._pick(None)
            engine.connection.execute(whole)
            for condition in conditions:
                picked = list(
                    engine.rows(
                        f"SELECT session, stream, seq, start, time FROM {view} WHERE {condition}"  # noqa: S608 - our own words
                    )
                )
                engine.connection.execute(
                    f"SELECT session, stream, seq, start, time FROM whole WHERE {condition}"  # noqa: S608 - our own words
                )
                assert sorted(map(json.dumps, picked)) == sorted(
                    map(json.dumps, engine.connection.fetchall())
                )
        engine.close()
