"""Heat maps equal the same counts made row by row."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from tailrace.analysis.statistics import ROWS_MAX, heat_map
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


def at(edges, duration):
    """Return the row of a duration."""
    return bisect(edges, max(duration, 0)) - 1


def test_nothing_has_no_cell(views):
    views.hold([])
    assert heat_map(views, Window(), None, 10) == (None, 1, 0, [], [], 0)
    assert heat_map(views, Window(since=5), None, 10) == (5, 1, 0, [], [], 0)


@pytest.mark.parametrize("duration", [0, 1, 2, 3, 1000, 2**53, 2**62 - 1, 2**62, -5])
def test_equal_durations_have_one_row(views, duration):
    views.hold([clocked(epoch=EPOCH), span(0, duration)])
    found = heat_map(views, Window(), None, 10)
    row = at(found.edges, duration)
    assert cells(found) == {(0, row): 1}
    low, high = found.edges[row : row + 2]
    assert low <= max(duration, 0) < high
    assert high - low <= max(1, duration * 0.01)


@pytest.mark.parametrize(
    ("low", "high", "widest"),
    [(9_000_000, 12_000_000, 0.007), (20, 40, 0.06), (1_000, 4_000_000, 0.092), (1, 10**9, 0.25)],
)
def test_rows_are_as_narrow_as_the_durations_in_sight_allow(views, low, high, widest):
    lengths = [low + (high - low) * n // 999 for n in range(1000)]
    views.hold([clocked(epoch=EPOCH), *(span(n, length) for n, length in enumerate(lengths))])
    edges = heat_map(views, Window(), None, 10).edges
    assert edges[0] == low
    assert edges[-1] == high + 1
    assert len(edges) - 1 <= ROWS_MAX
    assert all(high - low <= widest * low + 1 for low, high in pairwise(edges))


@examples(100)
@given(
    st.lists(st.integers(0, 62).flatmap(lambda bits: st.integers(-3, 2**bits)), max_size=30),
)
def test_each_duration_is_in_its_row_however_long_it_is(views, lengths):
    views.hold([clocked(epoch=EPOCH), *(span(n, length) for n, length in enumerate(lengths))])
    found = heat_map(views, Window(), None, 1)
    assert found.edges == sorted(set(found.edges))
    assert cells(found) == Counter((0, at(found.edges, length)) for length in lengths)


def test_durations_at_the_edges_are_in_the_row_that_begins_there(views):
    ends = [span(0, 1_000), span(0, 1_000_000)]
    views.hold([clocked(epoch=EPOCH), *ends])
    edges = heat_map(views, Window(), None, 1).edges
    lengths = [each - less for each in edges[1:-1] for less in (0, 1)]
    views.hold([clocked(epoch=EPOCH), *ends, *(span(0, length) for length in lengths)])
    found = heat_map(views, Window(), None, 1)
    assert found.edges == edges
    assert cells(found) == {(0, row): 2 for row in range(len(edges) - 1)}


def test_an_open_span_is_counted_and_is_in_no_cell(views):
    views.hold([clocked(epoch=EPOCH), row("begin", name="n", id=1, start=3)])
    found = heat_map(views, Window(), "n", 10)
    assert (found.cells, found.open) == ([], 1)


def test_open_spans_are_counted_where_no_span_has_a_wall_time(views):
    views.hold([clocked(), row("begin", id=1, start=5)])
    assert heat_map(views, Window(), None, 10) == (None, 1, 0, [], [], 1)


def test_a_span_without_a_wall_time_is_in_no_cell(views):
    untied = [clocked(session="b"), row("span", name="n", start=0, end=4, session="b")]
    views.hold(untied)
    assert heat_map(views, Window(), None, 10).cells == []
    views.hold([*untied, clocked(epoch=EPOCH), span(0, 5)])
    assert len(heat_map(views, Window(), None, 10).cells) == 1


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
        began = EPOCH + start
        inside = (since is None or began >= since) and (until is None or began < until)
        if inside and name in {None, its}:
            expected[(began - found.since) // found.width, at(found.edges, length)] += 1
    assert cells(found) == expected
    assert all(column < found.columns <= columns for column, _ in expected)
