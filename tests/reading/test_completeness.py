"""Test what is missing of an answer: of exactly those rows where that can be told, of more where not."""

from __future__ import annotations

import re

import pytest

import tailrace
from tailrace.errors import IncompleteError
from tests.query.tables import SECOND, clocked, gap, heal, make, row, session
from tests.reading.stores import EPOCH, HOSTILE

HOUR = 3600 * SECOND


def said(result):
    whole = result.completeness
    assert (whole.awaited, whole.unasked) == (0, "")  # nobody writes to these stores
    return sum(whole.missing.values()), whole.unknown


@pytest.mark.parametrize(
    ("filters", "missing", "unknown"),
    [
        ({}, 11, 1),
        ({"source": "sim"}, 6, 0),
        ({"source": ["sim", "files"]}, 11, 1),
        ({"session": "aa"}, 2, 0),
        ({"session": "a"}, 6, 1),
        ({"session": HOSTILE}, 5, 0),
        ({"stream": 1}, 2, 1),
        ({"stream": 1, "session": "aa"}, 2, 0),
        ({"stream": "0"}, 0, 1),  # what is missing of no known stream may be of this one
        ({"stream": "0", "source": "sim"}, 0, 0),
        ({"name": "no such"}, 11, 1),
        ({"limit": 0, "columns": "name"}, 11, 1),
    ],
)
def test_it_is_of_the_sources_sessions_and_streams_that_were_asked_for(
    store, filters, missing, unknown
):
    for result in (store.spans(**filters), store.events(**filters)):
        assert said(result) == (missing, unknown)
        gaps = list(result.gaps())
        assert sum(each["remaining"] or 0 for each in gaps) == missing
        assert sum(each["remaining"] is None for each in gaps) == unknown


def test_of_a_statement_it_is_of_the_whole_table(store):
    result = store.sql("SELECT 1 AS x")
    assert result.completeness == store.completeness == store.events().completeness
    assert store.completeness.text == (
        "11 events are missing (malformed 5, network 6), and 1 gap of unknown size"
    )


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """One session after another, each of an hour and with a gap of another size; the last is open."""
    rows = []
    for number in range(4):
        begins, mine = EPOCH + 2 * number * HOUR, {"session": f"s{number}"}
        rows += [
            clocked(epoch=begins, **mine),
            session("open", opened=begins, **mine),
            row(seq=0, start=0, end=1, **mine),
            gap(10**number, 1, **mine),
            row(seq=1 + 10**number, start=HOUR // 2, end=HOUR, **mine),
        ]
        if number < 3:
            rows.append(session("close", offset=1, closed="x", closed_at=begins + HOUR, **mine))
    late = {"session": "late"}  # a file of the first hour, read in the fifth
    rows += [
        clocked(epoch=EPOCH, **late),
        session("open", opened=EPOCH + 4 * HOUR, **late),
        row(seq=0, start=5, end=6, **late),
        gap(10_000, 1, **late),
        session("close", offset=1, closed="x", closed_at=EPOCH + 5 * HOUR, **late),
    ]
    ahead = {"session": "ahead"}  # its clock is 13 hours ahead of the collector's
    rows += [
        clocked(epoch=EPOCH + 20 * HOUR, **ahead),
        session("open", opened=EPOCH + 7 * HOUR, **ahead),
        row(seq=0, start=5, end=6, **ahead),
        gap(100_000, 1, **ahead),
        session("close", offset=1, closed="x", closed_at=EPOCH + 8 * HOUR, **ahead),
    ]
    with tailrace.open(make(tmp_path_factory.mktemp("timed"), rows)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("since", "until", "missing"),
    [
        (None, None, 111_111),
        (None, 0, 0),
        (None, 1, 1),
        (None, 6, 10_001),
        (None, 4 * HOUR, 10_011),
        (HOUR + 1, 2 * HOUR, 10_000),
        (HOUR + 1, 2 * HOUR + 1, 10_010),
        (2.5 * HOUR, 3.5 * HOUR, 10_010),
        (5 * HOUR + 1, 6 * HOUR, 0),
        (6 * HOUR, None, 101_000),
        (19 * HOUR, None, 101_000),
        (20 * HOUR + 6, None, 1000),
        (1000 * HOUR, None, 1000),  # the open session may have lost something just now
    ],
)
def test_of_a_time_it_is_of_the_sessions_of_that_time(timed, since, until, missing):
    when = {
        key: EPOCH + int(value)
        for key, value in {"since": since, "until": until}.items()
        if value is not None
    }
    assert said(timed.spans(**when)) == (missing, 0)
    gaps = timed.gaps(**when).pl()
    assert gaps["remaining"].sum() == missing
    for result in (timed.sessions(**when), timed.streams(**when)):
        assert set(result.pl()["session"]) == set(gaps["session"])


def test_a_session_of_which_no_time_is_known_may_be_of_any(tmp_path):
    with tailrace.open(make(tmp_path, [row(seq=0), gap(1, 1)])) as store:
        assert said(store.spans(since=EPOCH)) == (1, 0)
        assert said(store.spans(until=EPOCH)) == (1, 0)


def test_what_came_after_all_is_not_missing(tmp_path):
    store = make(tmp_path, [row(seq=0), gap(2, 1), heal(1, 1)])
    with tailrace.open(store) as opened:
        result = opened.spans()
        assert said(result) == (1, 0)
        make(tmp_path, [heal(1, 2)])
        assert said(result) == (1, 0)
        opened.refresh()
        assert said(result) == (0, 0)
        assert result.completeness.complete
        assert result.completeness.text == "nothing is known to be missing"


SHAPES = {
    "rows": list,
    "one": lambda result: next(iter(result)),
    "arrow": lambda result: result.arrow(),
    "batches": lambda result: result.batches(),
    "df": lambda result: result.df(),
    "pl": lambda result: result.pl(),
    "count": lambda result: result.count(),
    "str": str,
    "html": lambda result: result._repr_html_(),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_completeness_that_is_demanded_is_in_every_shape(varied_store, shape):
    with tailrace.open(varied_store, complete_only=True) as store:
        for result in (store.spans(), store.sql("FROM spans"), store.streams(source="sim")):
            with pytest.raises(
                IncompleteError, match=r"events are missing .*`.gaps\(\)` says which"
            ):
                SHAPES[shape](result)
        SHAPES[shape](store.spans(source="sim", stream=1, session="ab"))
        SHAPES[shape](store.gaps())
        SHAPES[shape](store.spans().gaps())


@pytest.mark.parametrize(
    ("filters", "there_are"),
    [
        ({"source": "typo"}, "no source 'typo'; known: files, sim"),
        ({"source": ["sim", "Sim"]}, "no source 'Sim'; known: files, sim"),
        ({"source": ""}, "no source ''"),
        ({"session": "zz"}, "no session that begins with 'zz'; known: ' OR 1=1 --, aa, ab, ac"),
        ({"session": "ac", "source": "sim"}, "no session that begins with 'ac'; known: aa, ab"),
        ({"session": ["aa", "x"]}, "no session that begins with 'x'"),
        ({"stream": 7}, "no stream '7'; known: 0, 1, 2, 3"),
        ({"stream": [1, "7"], "session": "aa"}, "no stream '7'"),
    ],
)
def test_what_there_is_not_is_an_error_that_lists_what_there_is(store, filters, there_are):
    """In every way to ask, and of several names each by itself."""
    result = store.spans(**filters)
    for ask in (*SHAPES.values(), lambda r: r.completeness, lambda r: r.gaps().completeness, list):
        with pytest.raises(tailrace.UnknownError, match=re.escape(there_are)):
            ask(result)
    with pytest.raises(tailrace.UnknownError):
        result.require_complete()


def test_a_source_that_comes_later_is_known_from_then_on(tmp_path):
    with tailrace.open(make(tmp_path, [row(seq=0)])) as store:
        late = store.spans(source="late")
        with pytest.raises(tailrace.UnknownError):
            late.count()
        make(tmp_path, [row(seq=1, source="late")])
        store.refresh()
        assert (late.count(), late.completeness.complete) == (1, True)


@pytest.fixture(scope="module")
def silent(tmp_path_factory):
    """A store with sessions of which no event came, and with events of the daemon's own."""
    rows = [
        session("open", opened=EPOCH),
        clocked(epoch=EPOCH),
        session("open", opened=EPOCH, source="tailrace", session="d"),
        row("instant", source="tailrace", session="d", stream="heartbeat", seq=0),
        row(source="loud", session="l"),
    ]
    with tailrace.open(make(tmp_path_factory.mktemp("silent"), rows)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("filters", "complete"),
    [
        ({"source": "sim"}, False),
        ({"session": "a"}, False),
        ({"source": ["sim", "tailrace"]}, True),
        ({"source": "tailrace"}, True),
        ({"source": "loud"}, True),
        ({"source": []}, False),
        ({"session": []}, False),
        ({"source": "sim", "until": EPOCH - HOUR}, False),
        ({}, True),
    ],
)
def test_nothing_selected_is_never_complete(silent, filters, complete):
    for result in (silent.spans(**filters), silent.streams(**filters)):
        assert result.completeness.complete == complete
        assert (result.completeness.text == "nothing is known to be missing") == complete
        if not complete:
            assert result.completeness.text.startswith("no event matches")
            with pytest.raises(IncompleteError, match="no event matches"):
                result.require_complete()


def test_an_empty_store_is_not_complete_nor_is_one_with_the_daemons_own_events(tmp_path):
    with tailrace.open(make(tmp_path)) as store:
        assert not store.completeness.complete
        make(tmp_path, [row("instant", source="tailrace", session="d", seq=0)])
        store.refresh()
        assert not store.completeness.complete
        make(tmp_path, [row(seq=0)])
        store.refresh()
        assert store.completeness.complete


def test_completeness_can_be_demanded_of_one_result(store, whole_store):
    with pytest.raises(tailrace.IncompleteError, match="network 4"):
        store.spans(session="ab").require_complete()
    assert store.spans(session="ab", stream=1).require_complete().count() == 2
    with tailrace.open(whole_store) as whole:
        demanding = whole.spans().require_complete()
        assert demanding.count() == 3


def test_a_demand_stays_when_the_store_goes_on(tmp_path):
    with tailrace.open(make(tmp_path, [row(seq=0)])) as store:
        demanding = store.spans().require_complete()
        make(tmp_path, [gap(1, 1)])
        assert demanding.count() == 1
        assert store.refresh()
        with pytest.raises(IncompleteError):
            demanding.arrow()
