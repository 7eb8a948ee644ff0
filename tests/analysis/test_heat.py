"""Heat maps equal the same counts made row by row."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from tailrace.analysis.statistics import heat_map
from tailrace.query.completeness import Window
from tests.forms import examples
from tests.query.memory import Views
from tests.query.tables import clocked, row

EPOCH = 1_000


@pytest.fixture(scope="module")
def views():
    return Views()


def span(start, length, name="n"):
    return row("span", name=name, start=start, end=start + length, time=EPOCH + start)


def cells(found):
    return {(cell.column, cell.row): cell.spans for cell in found.cells}


def test_nothing_has_no_cell(views):
    views.hold([])
    assert heat_map(views, Window(), None, 10) == (None, 1, [], 0)
    assert heat_map(views, Window(since=5), None, 10) == (5, 1, [], 0)


@pytest.mark.parametrize(
    ("duration", "expected"),
    [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (2**53, 54), (2**62 - 1, 62), (2**62, 63), (-5, 0)],
)
def test_a_row_is_a_power_of_two(views, duration, expected):
    views.hold([clocked(epoch=EPOCH), span(0, duration)])
    assert cells(heat_map(views, Window(), None, 10)) == {(0, expected): 1}


def test_an_open_span_is_counted_and_is_in_no_cell(views):
    views.hold([clocked(epoch=EPOCH), row("begin", name="n", id=1, start=3)])
    found = heat_map(views, Window(), "n", 10)
    assert (found.cells, found.open) == ([], 1)


def test_a_span_without_a_wall_time_is_in_no_cell(views):
    untied = [clocked(session="b"), row("span", name="n", start=0, end=4, session="b")]
    views.hold(untied)
    assert heat_map(views, Window(), None, 10).cells == []
    views.hold([*untied, clocked(epoch=EPOCH), span(0, 5)])
    assert cells(heat_map(views, Window(), None, 10)) == {(0, 3): 1}


@examples(60)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 70), st.sampled_from("ab")), max_size=20),
    st.integers(EPOCH, EPOCH + 60) | st.none(),
    st.integers(EPOCH, EPOCH + 60) | st.none(),
    st.integers(1, 9),
    st.sampled_from(["a", None]),
)
def test_cells_equal_the_counts_row_by_row(views, spans, since, until, columns, name):
    views.hold([clocked(epoch=EPOCH), *(span(*each) for each in spans)])
    found = heat_map(views, Window(since=since, until=until), name, columns)
    expected = Counter()
    for start, length, its in spans:
        at = EPOCH + start
        inside = (since is None or at >= since) and (until is None or at < until)
        if inside and name in {None, its}:
            expected[(at - found.since) // found.width, length.bit_length()] += 1
    assert cells(found) == expected
    assert all(column < columns for column, _ in expected)
