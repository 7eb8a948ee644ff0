"""Test the view `nesting`: spans of one stream get parents by containment of their times, although no producer named
parents.
"""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tests.forms import examples
from tests.query.memory import Views
from tests.query.tables import clocked, row

ASKED = 'SELECT stream, substream, "offset", level, parent_offset, parent_name FROM nesting'


@pytest.fixture(scope="module")
def views():
    return Views()


def span(offset, start, end, **values):
    return row(start=start, end=end, offset=offset, name=f"n{offset}", **values)


def parents(views, rows):
    return {offset: (level, parent) for _, _, offset, level, parent, _ in asked(views, rows)}


def asked(views, rows):
    views.hold([clocked(), *rows])
    return views.rows(ASKED)


def test_a_span_is_inside_the_shortest_that_encloses_it(views):
    rows = [span(1, 0, 100), span(2, 10, 50), span(3, 20, 30), span(4, 50, 60), span(5, 100, 120)]
    assert parents(views, rows) == {1: (0, None), 2: (1, 1), 3: (2, 2), 4: (1, 1), 5: (0, None)}


def test_equal_spans_are_inside_one_another_in_the_order_of_the_bytes(views):
    assert parents(views, [span(2, 0, 9), span(1, 0, 9)]) == {1: (0, None), 2: (1, 1)}


def test_a_span_without_a_length_encloses_nothing(views):
    rows = [span(1, 0, 9), span(2, 5, 5), span(3, 5, 5), span(4, 5, 4), span(5, 9, 9)]
    assert parents(views, rows) == {1: (0, None), 2: (1, 1), 3: (1, 1), 4: (1, 1), 5: (0, None)}


def test_an_open_span_encloses_all_that_begin_later(views):
    rows = [row("begin", start=3, offset=1, id=1, name="open"), span(2, 1, 2), span(3, 7, 9)]
    assert {(o, p, n) for _, _, o, _, p, n in asked(views, rows)} == {
        (1, None, None), (2, None, None), (3, 1, "open"),
    }  # fmt: skip


def test_streams_and_substreams_do_not_enclose_one_another(views):
    lanes = [
        {"stream": s, "substream": n, "session": i} for s in "12" for n in (None, 0) for i in "ab"
    ]
    rows = [span(offset, 10 * offset, 100 - offset, **lane) for offset, lane in enumerate(lanes)]
    assert {level for _, _, _, level, _, _ in asked(views, rows)} == {0}


def test_overlapping_spans_are_never_inside_one_another(views):
    assert parents(views, [span(1, 0, 5), span(2, 3, 10)]) == {1: (0, None), 2: (1, None)}


NESTED = st.recursive(st.just(()), lambda inner: st.lists(inner, max_size=3), max_leaves=25)


def laid_out(tree, rows, start=0, parent=None, level=0):
    """Give times to the nodes of a tree, so that children lie within their parents. Return the end of the last node."""
    for node in tree:
        mine = len(rows)
        rows.append(None)
        end = laid_out(node, rows, start + 1, mine, level + 1) + 1
        rows[mine] = (start, end, level, parent)
        start = end
    return start


@examples(100)
@given(NESTED)
def test_any_tree_is_found_again(tree):
    rows = []
    laid_out(tree, rows)
    found = parents(VIEWS, [span(n, start, end) for n, (start, end, _, _) in enumerate(rows)])
    assert found == {n: (level, parent) for n, (_, _, level, parent) in enumerate(rows)}


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 8)), max_size=12))
def test_a_parent_encloses_and_levels_count_what_is_open(spans):
    rows = {n: (start, start + length) for n, (start, length) in enumerate(spans)}
    found = parents(VIEWS, [span(n, *times) for n, times in rows.items()])
    assert found.keys() == rows.keys()
    for n, (level, parent) in found.items():
        start, end = rows[n]
        before = [m for m in rows if (rows[m][0], -rows[m][1], m) < (start, -end, n)]
        assert level == sum(rows[m][1] > max(start, rows[m][0]) for m in before)
        assert parent is None or (parent in before and rows[parent][1] >= end)


VIEWS = Views()
