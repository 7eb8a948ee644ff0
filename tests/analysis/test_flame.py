"""Flame graphs equal the shares of time computed moment by moment."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from tailrace.analysis.flame import DEEPEST, flame
from tailrace.query.completeness import Window
from tailrace.query.filters import Selection
from tests.forms import examples
from tests.query.memory import Views
from tests.query.tables import SECOND, clocked, row

EPOCH = 1_000
EVER = Window()


@pytest.fixture(scope="module")
def views():
    return Views()


def span(start, end, name="n", **values):
    return row("span", name=name, start=start, end=end, offset=start, **values)


def drawn(views, rows, window=EVER, unit="ns"):
    """Each node as its path of names: count, total, own time."""
    views.hold(rows)
    graph = flame(views, window, unit)
    paths = []
    for node in graph.nodes:
        paths.append((*(() if node.parent is None else paths[node.parent]), node.name))
    assert len(set(paths)) == len(paths)
    return {path: node[2:] for path, node in zip(paths, graph.nodes, strict=True)}


def timed(*spans):
    return [clocked(epoch=EPOCH), *spans]


def test_nothing_has_no_node(views):
    assert drawn(views, timed()) == {}


def test_a_node_has_the_time_of_the_nodes_inside(views):
    rows = timed(span(0, 100, "a"), span(10, 30, "b"), span(15, 20, "c"), span(40, 45, "b"))
    assert drawn(views, rows) == {
        ("a",): (1, 100, 75),
        ("a", "b"): (2, 25, 20),
        ("a", "b", "c"): (1, 5, 5),
    }


def test_lanes_are_added_and_do_not_enclose_one_another(views):
    rows = timed(span(0, 10, "a"), span(2, 4, "b", stream="2"), span(3, 5, "a", substream=7))
    assert drawn(views, rows) == {("a",): (2, 12, 12), ("b",): (1, 2, 2)}


def test_a_window_cuts_spans_and_takes_those_that_overlap_it(views):
    rows = timed(span(0, 100, "a"), span(10, 30, "b"), span(90, 95, "b"))
    window = Window(since=EPOCH + 20, until=EPOCH + 50)
    assert drawn(views, rows, window) == {("a",): (1, 30, 20), ("a", "b"): (1, 10, 10)}


def test_an_open_span_is_counted_and_has_no_time(views):
    views.hold(timed(row("begin", name="a", id=1, start=0), span(5, 6, "b")))
    graph = flame(views, Window(since=EPOCH + 5, until=EPOCH + 9))
    assert graph.open == 1
    assert [node.name for node in graph.nodes] == ["b"]


def test_ticks_without_a_rate_are_a_graph_of_their_own(views):
    rows = [*timed(span(0, 5, "a")), span(0, 7, "b", session="x")]
    assert drawn(views, rows) == {("a",): (1, 5, 5)}
    assert drawn(views, rows, unit="ticks") == {("b",): (1, 7, 7)}


def test_a_clock_without_wall_time_has_time_but_is_in_no_window(views):
    rows = [clocked(ticks_per_second=SECOND / 2), span(0, 3, "a")]
    assert drawn(views, rows) == {("a",): (1, 6, 6)}
    assert drawn(views, rows, Window(since=0)) == {}


def test_a_span_whose_begin_or_end_is_unknown_has_no_time(views):
    rows = timed(span(0, 5, "a"), row("span", name="b", end=4), row("span", name="c", start=1))
    assert drawn(views, rows) == {("a",): (1, 5, 5)}


def test_a_deep_recursion_ends_in_one_node(views):
    rows = timed(*(span(i, 10_000 - i, "r", id=i) for i in range(DEEPEST + 50)))
    found = drawn(views, rows)
    assert len(found) == DEEPEST
    assert sum(count for count, _, _ in found.values()) == DEEPEST + 50
    assert found["r",][1] == 10_000


def test_the_smallest_nodes_are_left_out_and_their_time_stays_above(views):
    views.hold(timed(span(0, 100, "a"), span(1, 3, "b"), span(10, 90, "c"), span(20, 30, "d")))
    nodes, left_out = flame(views, EVER).pruned(3)
    assert [(node.name, node.total) for node in nodes] == [("a", 100), ("c", 80), ("d", 10)]
    assert [node.parent for node in nodes] == [None, 0, 1]
    assert left_out == 1


SPANS = st.lists(
    st.tuples(
        st.sampled_from("12"), st.sampled_from("xyz"), st.integers(0, 40), st.integers(0, 30)
    ),
    max_size=12,
)
BOUND = st.integers(EPOCH, EPOCH + 60) | st.none()


@examples(60)
@given(SPANS, BOUND, BOUND)
def test_own_times_equal_the_innermost_spans_of_every_moment(views, spans, since, until):
    rows = timed(
        *(
            row("span", name=name, start=start, end=start + length, stream=stream, offset=place)
            for place, (stream, name, start, length) in enumerate(spans)
        )
    )
    found = drawn(views, rows, Window(Selection(), since, until))
    own = Counter()
    for path, (_, _, time) in found.items():
        own[path[-1]] += time
    expected = Counter()
    for stream in "12":
        mine = [
            (start, -length, place, name)
            for place, (where, name, start, length) in enumerate(spans)
            if where == stream and length
        ]
        for moment in range(80):
            at = EPOCH + moment
            if (since is None or at >= since) and (until is None or at < until):
                open_now = [each for each in mine if each[0] <= moment < each[0] - each[1]]
                if open_now:
                    expected[max(open_now)[3]] += 1
    assert +own == +expected
    roots = sum(total for path, (_, total, _) in found.items() if len(path) == 1)
    assert roots == sum(own.values())
