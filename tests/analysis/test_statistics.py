"""Statistics of spans equal the same figures computed row by row."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import pytest
from deltalake import DeltaTable
from hypothesis import example, given, strategies as st

from tailrace.analysis.durations import LengthFigures, LengthRank, SpanLengths, _in_order, _Row
from tailrace.analysis.statistics import MEASURED, PERCENTILES, parse, statistics
from tailrace.errors import BrokenOffError, UnknownError
from tailrace.query.completeness import Window, completeness
from tailrace.query.engine import Engine
from tailrace.query.filters import RowCondition, Selection
from tailrace.store.layout import table_root
from tests.forms import examples
from tests.query.memory import Views
from tests.query.tables import SECOND, clocked, gap, later, make, row, vacuum

EPOCH = 1_000
EVER = Window()


@pytest.fixture(scope="module")
def views():
    return Views()


def span(start, end, name="n", **values):
    return row("span", name=name, start=start, end=end, **values)


def figures(views, rows, window=EVER, by=("name",), **options):
    views.hold(rows)
    whole = completeness(views, window.scope)
    return statistics(views, window, whole, parse(by), **options)


def timed(*spans):
    """Spans on a clock of nanoseconds that began at EPOCH."""
    return [clocked(epoch=EPOCH), *spans]


def test_a_group_has_its_count_total_self_time_and_percentiles(views):
    rows = timed(span(0, 100, "outer"), *(span(i, i + 1, "inner", offset=i) for i in range(10)))
    outer, inner = figures(views, rows)
    assert outer[:12] == (("outer",), "ns", 1, 0, 100, 90, 100, 100, 100, 100, 100, 100)
    assert inner[:12] == (("inner",), "ns", 10, 0, 10, 10, 1, 1, 1, 1, 1, 1)


def test_nothing_has_no_figures(views):
    assert figures(views, []) == []
    assert figures(views, timed(row("instant", name="i", start=1))) == []


@pytest.mark.parametrize("streams", [None, ("1",)])
def test_a_lost_counter_is_no_lost_span(views, streams):
    rows = timed(span(0, 5), gap(3, 1, attributes={"count": 3, "of": "counter"}))
    [found] = figures(views, rows, Window(Selection(streams=streams)))
    assert found.bounds["count"] == (1, 1)


def test_an_open_span_is_counted_apart_and_has_no_duration(views):
    begin = row("begin", name="n", id=1, start=0)
    (only,) = figures(views, timed(begin))
    assert only[1:12] == ("ns", 0, 1, *[None] * 8)


def test_a_span_without_times_counts_and_has_no_duration(views):
    untimed = [row("span", name="n", offset=place, **times)
               for place, times in enumerate([{}, {"start": 4}, {"end": 4}], 1)]  # fmt: skip
    (known,) = figures(views, [*timed(span(0, 5)), *untimed])
    assert known[1:6] == ("ns", 4, 0, 5, 5)
    (unknown,) = figures(views, timed(*untimed))
    assert unknown[1:12] == ("ns", 3, 0, *[None] * 8)


def test_ticks_without_a_rate_are_never_added_to_nanoseconds(views):
    logical = span(0, 7, session="b")
    ns, ticks = figures(views, [*timed(span(0, 5)), logical])
    assert (ns.unit, ns.total, ns.self_time) == ("ns", 5, 5)
    assert (ticks.unit, ticks.total, ticks.self_time) == ("ticks", 7, 7)


def test_self_time_is_in_nanoseconds_on_any_clock(views):
    rows = [clocked(epoch=0, ticks_per_second=SECOND / 4), span(0, 10), span(2, 5, "in")]
    assert {each.group: each.self_time for each in figures(views, rows)} == {
        ("n",): 28,
        ("in",): 12,
    }


def test_without_self_time_the_figure_is_unknown_and_not_zero(views):
    (only,) = figures(views, timed(span(0, 5)), self_time=False)
    assert only.self_time is None


LENGTHS = st.lists(
    st.tuples(st.integers(990, 1020) | st.integers(-3, 2**62), st.sampled_from([True, False, False])), min_size=1, max_size=60
)  # fmt: skip
"""Durations, many of which lie in one range, and whether each is in doubt."""

SPANS_OF = """
SELECT 'a' AS name, 'ns' AS unit, false AS open, false AS unnumbered,
  unnest(?::BIGINT[])::HUGEINT AS length, unnest(?::BOOLEAN[]) AS doubtful
"""


@examples(60)
@given(LENGTHS)
@example([(n, n > 1006) for n in range(1004, 1010)])
def test_a_duration_is_found_by_each_rank(views, lengths):
    spans = RowCondition(SPANS_OF, tuple(map(list, zip(*lengths, strict=True))))
    views.hold([])
    counted = SpanLengths(views, ["name"], spans)
    group = (("a",), "ns")
    for certain in (False, True):
        ordered = sorted(length for length, doubtful in lengths if not (certain and doubtful))
        ranks = [LengthRank(group, rank, certain) for rank in range(1, len(ordered) + 1)]
        found = counted.at(ranks)
        assert [found[each] for each in ranks] == ordered


def test_ranges_that_overlap_by_rounding_are_one():
    rows = [
        _Row._make((bucket, *[False] * 3, LengthFigures(2, 2, low + high, low, high)))
        for bucket, low, high in ((1, 10, 20), (2, 20, 30), (3, 31, 40))
    ]
    ordered = _in_order(rows, certain=True)
    assert [(each.buckets, each.figures.lengths) for each in ordered] == [([1, 2], 4), ([3], 2)]


def test_spans_of_another_version_than_the_counted_ones_are_no_durations(tmp_path):
    """Upkeep may delete files between the two passes over the spans. The engine then reads the newest version."""
    days = ([span(0, n, day=later(day)) for n in range(1000, 1050)] for day in range(2))
    store = make(tmp_path, *days)
    sql = "SELECT *, false AS unnumbered, false AS doubtful FROM ({})"
    spans = RowCondition(sql.format(MEASURED.format(rows="true")))
    lengths = SpanLengths(Engine(store), ["name"], spans)
    [group] = lengths.groups
    assert lengths.at([LengthRank(group, 70, certain=False)])
    DeltaTable(table_root(store)).delete(f"day = '{later(0)}'")
    vacuum(tmp_path)
    for rank in (50, 70):
        with pytest.raises(BrokenOffError):
            lengths.at([LengthRank(group, rank, certain=False)])


def test_a_window_takes_spans_by_their_begin(views):
    rows = timed(span(0, 9, "a"), span(10, 90, "b"), span(20, 30, "c"), span(100, 200, "d"))
    found = figures(views, rows, Window(since=EPOCH + 10, until=EPOCH + 20))
    assert [(each.group, each.total, each.self_time) for each in found] == [(("b",), 80, 70)]


def test_children_behind_the_window_are_no_self_time_of_their_parent(views):
    rows = timed(span(0, 100, "a"), span(60, 80, "b"), span(500, 600, "c"))
    (only,) = figures(views, rows, Window(until=EPOCH + 50))
    assert (only.total, only.self_time) == (100, 80)


def test_times_at_the_ends_of_the_range_are_figures_and_no_error(views):
    largest = 2**63 - 1
    rows = [clocked(epoch=0), span(1, largest, "a"), span(largest - 1, largest, "b")]
    rows.append(span(-(2**63), largest, "c", session="x"))
    found = {each.group[0]: each for each in figures(views, rows, Window(until=largest))}
    assert (found["a"].total, found["a"].self_time) == (largest - 1, largest - 2)
    late = span(0, 9, "d", time=largest - 1, session="y")
    more = [*rows, clocked(epoch=0, session="y"), late]
    found = {each.group[0]: each for each in figures(views, more, Window(until=largest))}
    assert found["d"].total == 9
    assert figures(views, rows)[-1].total == 2**64 - 1


def test_a_span_without_a_wall_time_is_in_no_range(views):
    assert figures(views, [span(0, 5)], Window(since=0)) == []


@pytest.mark.parametrize("key", ["k", "a/b", "~0", "it's", "$x.y", "ü"])
def test_groups_may_be_members_of_the_attributes(views, key):
    rows = timed(span(0, 5, attributes={key: "x"}), span(5, 7, attributes={key: 3}), span(7, 8))
    found = figures(views, rows, by=["name", f"attributes.{key}"])
    assert {each.group: each.total for each in found} == {
        ("n", "x"): 5,
        ("n", "3"): 2,
        ("n", None): 1,
    }


@pytest.mark.parametrize("word", ["nam", "attributes", "attributes.", "duration", ""])
def test_an_unknown_key_is_refused_with_the_known_keys(word):
    with pytest.raises(UnknownError, match="name, category, source"):
        parse([word])


SPANS = st.lists(
    st.tuples(
        st.sampled_from("ab"),  # session
        st.sampled_from("12"),  # stream
        st.sampled_from(["x", "y", "z", None]),
        st.integers(0, 60),
        st.integers(0, 30) | st.none(),
    ),
    max_size=15,
)
BOUND = st.integers(EPOCH, EPOCH + 70) | st.none()


@examples(60)
@given(SPANS, BOUND, BOUND, st.sampled_from([None, ("1",)]))
def test_figures_equal_those_computed_row_by_row(views, spans, since, until, streams):
    rows = [*timed(), clocked(epoch=EPOCH, session="b")]
    for place, (session, stream, name, start, length) in enumerate(spans):
        kind, end = ("begin", None) if length is None else ("span", start + length)
        rows.append(
            row(
                kind,
                name=name,
                start=start,
                end=end,
                session=session,
                stream=stream,
                seq=place,
                id=place,
                offset=place,
            )
        )
    window = Window(Selection(streams=streams), since, until)
    found = {each.group: each for each in figures(views, rows, window)}
    chosen = [
        s
        for s in spans
        if (since is None or s[3] + EPOCH >= since)
        and (until is None or s[3] + EPOCH < until)
        and (streams is None or s[1] in streams)
    ]
    assert {group[0] for group in found} == {s[2] for s in chosen}
    lengths, still_open = defaultdict(list), Counter()
    for each in chosen:
        if each[4] is None:
            still_open[each[2]] += 1
        else:
            lengths[each[2]].append(each[4])
    for (name,), each in found.items():
        ended = sorted(lengths[name])
        assert (each.ended, each.open) == (len(ended), still_open[name])
        assert each.total == (sum(ended) if ended else None)
        for word, share in PERCENTILES.items():
            rank = max(math.ceil(share * len(ended)), 1)
            assert getattr(each, word) == (ended[rank - 1] if ended else None)
    if since is None and until is None:
        assert sum(each.self_time or 0 for each in found.values()) == covered(chosen)


def covered(spans):
    """The ticks during which some ended span is open, summed over the lanes."""
    return len({
        (session, stream, tick)
        for session, stream, _, start, length in spans
        for tick in range(start, start + (length or 0))
    })  # fmt: skip
