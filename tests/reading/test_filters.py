"""Keywords choose what they say, whatever is in them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tailrace.errors import QueryError, UnknownError
from tailrace.query.views import VIEWS
from tailrace.reading.question import unix_ns
from tests.query.tables import SECOND
from tests.reading.stores import EPOCH, HOSTILE, sorted_rows

NASTY = [
    HOSTILE, "x' UNION ALL FROM stored --", '"; DROP VIEW spans; --', "\\", "%", "?", "$1", "", "a\x00b",
    "}{", "aa') OR starts_with(session, '",
]  # fmt: skip
TEXT_FILTERS = {
    "spans": ["source", "session", "stream", "name"],
    "events": ["source", "session", "stream", "name", "kind"],
    "gaps": ["source", "session", "stream", "reason"],
    "sessions": ["source", "session"],
    "streams": ["source", "session", "stream"],
}


@pytest.mark.parametrize("view", TEXT_FILTERS)
def test_a_keyword_of_another_view_is_refused_as_python_does(store, view):
    every = {"source", "session", "stream", "name", "kind", "reason"}
    for keyword in every - {*TEXT_FILTERS[view]} | {"nothing"}:
        with pytest.raises(TypeError, match=rf"{view}\(\) got an unexpected .* {keyword!r}"):
            getattr(store, view)(**{keyword: "x"})


def texts(*values):
    """A keyword's values: none, one, or several."""
    one = st.sampled_from(values)
    return st.none() | one | st.lists(one, max_size=3)


TIMES = st.integers(-10, 4 * 3600).map(lambda seconds: EPOCH + seconds * SECOND)


def several(values):
    return [values] if isinstance(values, str | int) else list(values)


def fits(row, given):
    """Whether a row is one that these keywords ask for."""
    for keyword in ("source", "stream", "name", "kind", "reason"):
        wanted = given.get(keyword)
        if wanted is not None and row[keyword] not in map(str, several(wanted)):
            return False
    sessions = given.get("session")
    if sessions is not None and not row["session"].startswith(tuple(several(sessions))):
        return False
    since, until = given.get("since"), given.get("until")
    if since is None and until is None:
        return True
    time = row["time"]
    return time is not None and (since is None or since <= time) and (until is None or time < until)


def is_there(rows, given):
    """Whether each source, session and stream asked for is that of a row, of those chosen before it."""
    for keyword, has in (
        ("source", lambda row, value: row["source"] == value),
        ("session", lambda row, value: row["session"].startswith(value)),
        ("stream", lambda row, value: row["stream"] == str(value)),
    ):
        if given.get(keyword) is None:
            continue
        values = several(given[keyword])
        if not all(any(has(row, value) for row in rows) for value in values):
            return False
        rows = [row for row in rows if any(has(row, value) for value in values)]
    return True


def assert_chosen(store, view, everything, filters, order=sorted_rows):
    """A view gives what Python would choose, and refuses what is not there."""
    chosen = getattr(store, view)(**filters)
    if is_there(everything["events"], filters):
        assert order(chosen) == order(row for row in everything[view] if fits(row, filters))
    else:
        with pytest.raises(UnknownError):
            list(chosen)


@pytest.fixture(scope="module")
def everything(store):
    """All rows, by view."""
    return {view: list(getattr(store, view)()) for view in TEXT_FILTERS}


@settings(max_examples=20, deadline=None)
@given(
    view=st.sampled_from(["spans", "events"]),
    source=texts("sim", "files", "no such"),
    session=texts("a", "aa", "ac", HOSTILE, ""),
    stream=texts("1", 2, 3, "", HOSTILE),
    name=texts("step", "Ünï", HOSTILE),
    since=st.none() | TIMES,
    until=st.none() | TIMES,
)
def test_they_choose_what_python_would(store, everything, view, **filters):
    assert_chosen(store, view, everything, filters)


@settings(max_examples=8, deadline=None)
@given(source=texts("sim", "files"), session=texts("a", HOSTILE), stream=texts(1, "2", ""))
def test_gaps_and_streams_are_chosen_alike(store, everything, source, session, stream):
    filters = {"source": source, "session": session, "stream": stream}
    for view in ("gaps", "streams"):
        assert_chosen(store, view, everything, filters, order=list)


@pytest.mark.parametrize(
    ("view", "keyword"), [(view, key) for view, keys in TEXT_FILTERS.items() for key in keys]
)
def test_no_text_is_ever_taken_for_sql(store, everything, view, keyword):
    """Each column has one of these in it somewhere."""
    for texts in ([text for text in NASTY if text], HOSTILE):
        assert_chosen(store, view, everything, {keyword: texts})


@pytest.mark.parametrize("view", TEXT_FILTERS)
@pytest.mark.parametrize("keyword", ["columns", "order", "since", "until", "limit"])
def test_what_is_no_column_time_or_number_is_refused(store, view, keyword):
    for text in NASTY:
        with pytest.raises(QueryError):
            getattr(store, view)(**{keyword: text})


@pytest.mark.parametrize(
    ("keyword", "value", "words"),
    [
        ("limit", "3", "not a whole number"),
        ("limit", 1.5, "not a whole number"),
        ("limit", -1, "is negative"),
        ("columns", [], "at least one"),
        ("columns", ["name", 3], "3 is not text"),
        ("source", 3, "source: 3 is not text"),
        ("name", [None], "None is not text"),
        ("stream", 1.5, "not text"),
        ("since", 1.5, "whole number of Unix nanoseconds"),
        ("since", datetime(2026, 11, 21), "has no time zone"),  # noqa: DTZ001 - what is tested
        ("until", "yesterday", "is not a time"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(store, keyword, value, words):
    with pytest.raises(QueryError, match=words):
        store.spans(**{keyword: value})


def test_columns_order_and_limit(store):
    longest = store.spans(columns=["end", "ticks"], order="-ticks", limit=3)
    assert [row["ticks"] for row in longest] == [27, 27, 27]
    assert longest.arrow().column_names == ["end", "ticks"]
    both = list(store.spans(columns=("stream", "seq"), order=["stream", "-seq"]))
    assert both == sorted(both, key=lambda row: (row["stream"], -row["seq"]))
    assert list(store.events(limit=0)) == []
    assert store.events(limit=True).count() == 1


@pytest.mark.parametrize("view", VIEWS)
def test_all_columns_can_be_chosen_and_sorted_by(store, view):
    """Some are words of SQL."""
    names = [column.name for column in view.columns]
    result = getattr(store, view.name)(columns=reversed(names), order=names, limit=1)
    assert result.arrow().column_names == names[::-1]


@given(st.datetimes(timezones=st.just(UTC)), st.integers(-14 * 60, 14 * 60))
def test_a_time_is_the_same_in_every_spelling(time, minutes):
    exact = unix_ns(time, "since")
    assert datetime.fromtimestamp(0, UTC) + timedelta(microseconds=exact // 1000) == time
    if timedelta(days=2) < time - datetime.min.replace(tzinfo=UTC) < timedelta(days=3_600_000):
        elsewhere = time.astimezone(timezone(timedelta(minutes=minutes)))
        assert unix_ns(elsewhere, "since") == unix_ns(elsewhere.isoformat(), "since") == exact
    assert unix_ns(time.replace(tzinfo=None).isoformat(" "), "since") == exact
    assert unix_ns(exact, "since") == exact


@given(st.integers(0, 2**62))
def test_what_wall_shows_is_a_time_to_the_nanosecond(ns):
    second = datetime.fromtimestamp(ns // SECOND, UTC)
    fraction = f"{ns % SECOND:09}".rstrip("0")
    text = f"{second:%Y-%m-%d %H:%M:%S}" + (f".{fraction}" if fraction else "")
    assert unix_ns(text, "since") == ns
    assert unix_ns(text + "+00:00", "since") == ns


def test_a_rows_own_wall_finds_it(store, everything):
    for row in everything["events"][20:100:40]:
        if row["wall"] is not None:
            assert row in list(store.events(since=row["wall"]))
            assert row not in list(store.events(until=row["wall"]))


def test_attributes_are_asked_for_in_sql_with_parameters(store):
    sql = "FROM spans WHERE (attributes ->> '$.cell')::INT = ? AND source = ? ORDER BY session"
    rows = list(store.sql(sql, [3, "sim"]))
    assert [row["attributes"]["cell"] for row in rows] == [3, 3]
    named = sql.replace("?", "$cell", 1).replace("?", "$source")
    assert list(store.sql(named, {"cell": 3, "source": "sim"})) == rows


@pytest.mark.parametrize(
    "parameters",
    [[], [1, 2], {"a": 1}, [object()], [10**50], ["\ud800"], "x", {1}, None, (n for n in [1])],
)
def test_parameters_that_do_not_fit_are_query_errors(store, parameters):
    with pytest.raises(QueryError):
        list(store.sql("FROM spans WHERE name = ?", parameters))


@pytest.mark.parametrize(
    "sql",
    [
        "DROP VIEW spans",
        "SELECT 1; SELECT 2",
        "FROM '/etc/passwd'",
        "SELEC",
        "",
        "COPY spans TO 'x'",
    ],
)
def test_sql_only_reads(store, sql):
    with pytest.raises(QueryError):
        store.sql(sql).arrow()
