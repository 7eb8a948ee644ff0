"""Each moment of a lane belongs to the span that began last and is still open, with the kernel and without."""

from __future__ import annotations

from array import array
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from tailrace.analysis.innermost import NOBODY, DivisionRules, LaneDivision
from tailrace.kernels import active
from tests.forms import examples

if active():
    from tailrace.analysis._innermost import LaneDivision as KernelDivision

LEAST, GREATEST = -(2**63), 2**63 - 1
SPANS = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 7]), st.integers(-20, 20), st.integers(-2, 15), st.integers(NOBODY, 2)
    ),
    max_size=14,
).map(lambda spans: sorted(spans, key=lambda s: (s[0], s[1], -s[2])))  # fmt: skip
"""Spans of three lanes in order: the lane, the begin, the end, and the owner or name."""
FAR = st.sampled_from([LEAST, LEAST + 1, -1, 0, 1, GREATEST - 1, GREATEST])
FAR_SPANS = st.lists(st.tuples(st.just(0), FAR, FAR, st.integers(0, 2)), max_size=9).map(
    lambda spans: sorted(spans, key=lambda s: (s[1], -s[2]))
)
BOUND = st.integers(-25, 40) | st.none()
RULES = st.builds(DivisionRules, BOUND, BOUND, st.none() | st.integers(1, 3))
EVER = DivisionRules()


def fed(division, spans, cut, convert):
    """The times of each lane, and the nodes, of spans that come in two batches."""
    found = []
    for batch in (spans[:cut], spans[cut:]):
        columns = zip(*batch, strict=True) if batch else ((),) * 4
        found += division.add(*map(convert, columns, "iqqi"))
    return found + division.finish(), division.nodes()


def packed(values, form):
    return memoryview(array(form, values))


def divided(spans, rules=EVER, cut=0):
    """The same from Python, after a comparison with the kernel if it runs."""
    found = fed(LaneDivision(rules), spans, cut, lambda values, _: values)
    if active():
        assert fed(KernelDivision(*rules), spans, cut, packed) == found
    return found


def by_the_tick(spans, since, until):
    """The times of each owner, found by asking at each tick which spans are open."""
    found = Counter()
    for tick in range(-20, 40):
        last = [owner for _, start, end, owner in spans if start <= tick < end][-1:]
        if (since is None or tick >= since) and (until is None or tick < until):
            found.update(owner for owner in last if owner != NOBODY)
    return found


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 10, 1)], {1: 10}),
        ([(0, 10, 1), (2, 5, 2)], {1: 7, 2: 3}),
        ([(0, 10, 1), (2, 5, 2), (5, 10, 2)], {1: 2, 2: 8}),
        ([(0, 10, 1), (0, 10, 2)], {2: 10}),
        ([(0, 6, 1), (4, 9, 2)], {1: 4, 2: 5}),
        ([(0, 4, 1), (8, 9, 1)], {1: 5}),
        ([(0, 10, 1), (3, 3, 2)], {1: 10}),
        ([(0, 10, 1), (3, 1, 2)], {1: 10}),
        ([(0, 10, 1), (3, 5, NOBODY)], {1: 8}),
        ([(LEAST, GREATEST, 1)], {1: 2**64 - 1}),
    ],
)
def test_the_innermost_span_gets_the_time(spans, expected):
    assert divided([(4, *span) for span in spans]) == ([(4, expected)], [])


def test_nothing_has_no_lane():
    assert divided([]) == ([], [])


@examples(300)
@given(SPANS, RULES, st.integers(0, 14))
def test_every_tick_is_divided_as_if_it_were_asked_for_alone(spans, rules, cut):
    found, nodes = divided(spans, rules, cut)
    assert [lane for lane, _ in found] == sorted({lane for lane, *_ in spans})
    for lane, times in found:
        mine = [span for span in spans if span[0] == lane]
        if rules.deepest is None:
            assert times == by_the_tick(mine, rules.since, rules.until)
        else:
            named = [(*span[:3], 0) for span in mine]
            assert sum(times.values()) == by_the_tick(named, rules.since, rules.until).total()
    if rules.deepest is not None:
        assert sum(spans for _, _, spans in nodes) == len(spans)


@examples(100)
@given(
    FAR_SPANS,
    st.builds(DivisionRules, FAR | st.none(), FAR | st.none(), st.sampled_from([None, 2])),
)
def test_times_may_be_as_large_as_the_table_holds(spans, rules):
    divided(spans, rules)


def test_many_nodes_are_found_again():
    spans = [(0, at, 5_000 - at, at % 1_777) for at in range(2_000)]
    assert (
        len(divided([*spans, *((1, *span[1:]) for span in spans)], DivisionRules(deepest=3_000))[1])
        == 2_000
    )


def test_times_beyond_64_bits_are_exact_in_python():
    spans = [(0, GREATEST - 1, GREATEST + 9, 1), (0, GREATEST, GREATEST + 2, 2)]
    division = LaneDivision(EVER)
    assert fed(division, spans, 1, lambda values, _: values)[0] == [(0, {1: 8, 2: 2})]


@pytest.mark.skipif(not active(), reason="kernels are off or not built")
def test_the_kernel_refuses_what_it_cannot_divide():
    with pytest.raises(ValueError, match="no node has a depth of 0"):
        KernelDivision(None, None, 0)
    division = KernelDivision(*EVER)
    with pytest.raises(ValueError, match="row 0 has code -2"):
        fed(division, [(0, 1, 2, -2)], 0, packed)
    with pytest.raises(ValueError, match="differ in length"):
        division.add(array("i", [1]), array("q"), array("q"), array("i"))
