"""Test what a session's counters answer when they are asked, held against the list of what came.

The counter has eight bits here: each question is asked of every number that there is.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings, strategies as st

from tailrace.config.schema import LedgerConfig
from tailrace.ledger.bounds import Commons, CommonsState
from tailrace.ledger.counters import Counters, hand_over
from tailrace.ledger.statements import Statements
from tailrace.ledger.stream import HEAD, NEVER, CountersState, SeqRange, far_before
from tailrace.ledger.windows import parts_of
from tailrace.model.gap import Finding
from tailrace.units import Duration
from tests.forms import examples
from tests.ledger.test_counters import missing_numbers

SECOND = 10**9
BITS, WINDOW = 8, 16
LIMITS = LedgerConfig(reorder_events=WINDOW, reorder_time=Duration(2))
FAR = 5
"""A mark far before all others."""


def ledger(limits=LIMITS):
    commons = Commons(CommonsState())
    counters = Counters(limits, BITS, CountersState(), commons)
    return counters, Statements(counters)


def mark(number):
    """Times of an event that is not far before any other: times that grow a little."""
    return 10**9 + 1000 * number


def feed(counters, numbers, stream="1", now=0):
    for number in numbers:
        seqs, restart = counters.observe([stream], [number % 2**BITS], [mark(number)], now)
        assert not restart
        assert seqs[0] is not None
    assert counters.account.imbalance == 0


@st.composite
def courses(draw):
    """Numbers in order, the first and the last of which came."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    length = draw(st.integers(1, 300))
    share = draw(st.sampled_from([0, 0.1, 0.6]))
    return [n for n in range(length) if n in (0, length - 1) or rng.random() >= share]


def unwrapped(count, following):
    """The number with these bits that is nearest to the next one; half the range off is behind."""
    return next(n for n in range(following - 2**7, following + 2**7) if n % 2**BITS == count)


def remembered(came, number):
    """Whether the mark of a number is kept: of the last ones, and of the first ones since the counter wrapped."""
    return number in came and (number > came[-1] - WINDOW or is_near_zero(came, number))


def is_near_zero(came, number):
    """Whether a number is one of the newest ones near zero on the wire."""
    zero = max(n - n % 2**BITS for n in came if n % 2**BITS < HEAD)
    return zero <= number < zero + HEAD


@examples(100)
@given(came=courses(), what=st.sampled_from(["own", "another", "far"]), closed=st.booleans())
@example(came=list(range(100)), what="own", closed=False)
@example(came=list(range(100)), what="far", closed=False)
def test_what_is_answered_is_what_came(came, what, closed):
    counters, _ = ledger()
    feed(counters, came)
    if closed:
        counters.windows.close()
    following, have = came[-1] + 1, set(came)
    stream = counters.state.streams["1"]
    assert len(stream.recent) <= WINDOW
    assert len(stream.head) <= HEAD
    for count in range(2**BITS):
        number = unwrapped(count, following)
        own = {"own": mark(number), "another": mark(number) + 7, "far": FAR}[what]
        same = remembered(came, number) and what == "own"
        ahead, lacks = number >= following, 0 <= number < following and number not in have
        asked = ("1", count, own)
        if ahead:
            fits = None if what == "far" else "near" if number < following + WINDOW else "far"
        elif lacks and what != "far":
            fits = "near"
        elif lacks:
            fits = near_a_forgotten(came, number)
        elif number in have and not remembered(came, number):
            fits = "old"
        else:
            fits = "same" if same else None
        assert counters.numbers.fits(*asked) == fits
        assert counters.numbers.expects("1", count) == (number == following)
        contradicts = remembered(came, number) and what != "own"
        assert counters.numbers.contradicts(*asked) == contradicts
        anew = what == "far" and (
            number > following
            or (lacks and near_a_forgotten(came, number) is None)
            or (count < HEAD and 0 <= number < following and not lacks)
        )
        assert counters.begins_anew(*asked) == anew
    counters.announced = True
    assert not any(counters.begins_anew("1", count, FAR) for count in range(2**BITS))
    assert not counters.begins_anew("2", 5, FAR)
    assert not counters.numbers.expects("2", 1)
    assert counters.numbers.expects("2", 0)
    assert counters.numbers.fits("2", 0, mark(0)) == "far"
    assert not counters.numbers.contradicts("2", 0, mark(0))


def near_a_forgotten(came, number):
    """A hole behind an event whose mark is not kept fits an event of any time."""
    before = max(n for n in came if n < number)
    return None if remembered(came, before) else "near"


@settings(deadline=None)
@given(courses())
def test_the_newest_events_are_remembered_and_the_end_is_known(came):
    counters, statements = ledger()
    feed(counters, came)
    statements.goodbye({"1": (came[-1] + 40) % 2**BITS, "2": 3}, 0)
    following = came[-1] + 40
    kept_mark = came[-1] >= following - WINDOW or is_near_zero(came, came[-1])
    last = mark(came[-1]) if kept_mark else NEVER
    assert counters.numbers.ends() == {"1": (following, last), "2": (3, NEVER)}
    kept = [n for n in came if n >= following - WINDOW]
    assert list(counters.numbers.remembered()) == [("1", n % 2**BITS, mark(n)) for n in kept]


@settings(deadline=None)
@given(st.integers(1, WINDOW), st.integers(0, 5), st.sampled_from([0, 200]))
def test_all_that_came_is_handed_over_where_all_of_it_is_remembered(count, lost, begin):
    """From a number in the upper half on, too."""
    counters, _ = ledger()
    lost = max(lost, 1 if begin else 0)
    came = [begin + n for n in range(count) if n != lost or n == count - 1]
    feed(counters, came)
    feed(counters, range(3), stream="2")
    assert hand_over(counters) == [
        *(("1", n, mark(n)) for n in came), *(("2", n, mark(n)) for n in range(3)),
    ]  # fmt: skip
    assert (counters.account.expected, counters.account.seen, counters.account.missing) == (0, 0, 0)
    assert counters._commons.state.streams == counters._commons.state.ranges == 0
    assert not counters.windows.waiting
    assert list(counters.windows.awaited()) == []
    feed(counters, range(5), now=9 * SECOND)
    counters.windows.close()
    assert counters.findings == []


def too_many(counters):
    feed(counters, range(WINDOW + 1))


def a_gap(counters):
    feed(counters, [0, 2])
    counters.windows.close()


def a_forgotten_gap(counters):
    feed(counters, [0, 2])
    counters.windows.give_way(10**6)


def forgotten_marks(counters):
    feed(counters, [0, 1])
    counters.marks.give_way(10**6)


def a_duplicate(counters):
    feed(counters, [0, 1, 1])


def another_under_one_number(counters):
    feed(counters, [0, 1])
    counters.observe(["1"], [1], [mark(1) + 7], 0)


def an_uncounted_stream(counters):
    feed(counters, [0, 1])
    counters.observe(["2"], [0], [mark(0)], 0)


@pytest.mark.parametrize(
    "course",
    [
        too_many,
        a_gap,
        a_forgotten_gap,
        forgotten_marks,
        a_duplicate,
        another_under_one_number,
        an_uncounted_stream,
    ],
)
def test_nothing_is_handed_over_where_something_would_be_lost_by_it(course):
    counters, _ = ledger(LedgerConfig(reorder_events=WINDOW, streams_max=1))
    course(counters)
    before = counters.account
    assert hand_over(counters) == []
    assert counters.account == before
    assert list(counters.state.streams) == ["1"]


@settings(deadline=None)
@given(courses(), st.integers(1, 20))
def test_a_client_is_denied_what_came_after_it_said_that_it_was_not_sent(came, ahead):
    counters, statements = ledger()
    feed(counters, came)
    following, have = came[-1] + 1, set(came)
    for count in range(2**BITS):
        number = unwrapped(count, following)
        assert statements.deny([("1", count, 1)], {}) == (number in have)
        assert statements.deny([("2", 0, 1), ("1", count, 1)], {}) == (number in have)
        assert statements.deny([], {"2": 0, "1": count}) == (number < following)
    assert not statements.deny([("2", 0, 1)], {"2": 0})
    assert not statements.deny(
        [("1", (following + ahead) % 2**BITS, 1)], {"1": following % 2**BITS}
    )


@pytest.mark.parametrize("first", [200, 0])
def test_a_stream_began_with_the_lowest_number_that_comes_within_its_window(first):
    """A number in the upper half comes first; then some before it, the window's width at most."""
    counters, _ = ledger()
    feed(counters, [first + 20])
    if not first:
        counters.windows.close()
        assert missing_numbers(counters.findings) == set(range(20))
        return
    feed(counters, [first + 19, first + 16, first + 5])
    assert counters.state.streams["1"].base == first + 5
    counters.windows.close()
    assert missing_numbers(counters.findings) == {
        *range(first + 6, first + 16), first + 17, first + 18,
    }  # fmt: skip
    assert counters.observe(["1"], [first + 4], [mark(first + 4)], 0) == ([first + 4], False)
    assert counters.account.missing == 12
    assert counters.state.streams["1"].base == first + 5


def test_streams_counts_and_marks_are_as_many():
    counters, _ = ledger()
    with pytest.raises(ValueError, match="zip"):
        counters.observe(["1", "1"], [0], [mark(0)], 0)


def test_a_filled_hole_is_waited_for_no_more():
    counters, _ = ledger()
    feed(counters, [0, 2, 4])
    feed(counters, [1])
    assert counters.windows.waiting
    feed(counters, [3])
    assert not counters.windows.waiting


def test_a_hole_is_as_old_as_the_event_that_showed_it_and_its_stream_was_heard_before():
    counters, _ = ledger()
    feed(counters, [0], now=SECOND)
    feed(counters, [0], stream="2", now=2 * SECOND)
    feed(counters, [3], now=3 * SECOND)
    (hole,) = counters.state.streams["1"].holes
    assert (hole.before, hole.since) == (SECOND, 3 * SECOND)
    counters.windows.heard({"1"}, 5 * SECOND - 1)
    assert counters.findings == []


@pytest.mark.parametrize("dropped", [0, 1, 2, 3, 9])
def test_what_the_kernel_dropped_of_a_hole_is_its_beginning(dropped):
    counters, _ = ledger()
    feed(counters, [0], now=SECOND)
    if dropped:
        counters._commons.drops.add(SECOND, 2 * SECOND, dropped)
    feed(counters, [4], now=2 * SECOND)
    counters.windows.close()
    kernel = min(dropped, 3)
    sure = dropped <= 3
    expected = [Finding("gap", "1", 1, kernel, "kernel", estimate=not sure)] if kernel else []
    if kernel < 3:
        expected.append(Finding("gap", "1", 1 + kernel, 3 - kernel, "network", estimate=False))
    assert counters.findings == expected
    assert counters._commons.drops.unassigned == dropped - kernel
    assert [gap.reason for gap in counters.state.streams["1"].gaps] == [f.reason for f in expected]


def test_open_holes_are_awaited_by_stream_and_grow_no_older_while_nothing_can_come():
    counters, _ = ledger()
    for stream in ("b", "a"):
        feed(counters, [0, 3, 5], stream=stream, now=SECOND)
    feed(counters, [0, 1], stream="c", now=SECOND)
    assert list(counters.windows.awaited()) == [("a", 3), ("b", 3)]
    counters.windows.stood_still(9 * SECOND)
    counters.windows.heard({"c"}, 12 * SECOND - 1)
    assert counters.findings == []
    counters.windows.heard({"c"}, 12 * SECOND)
    assert missing_numbers(counters.findings, "a") == {1, 2, 4}
    counters.windows.stood_still(9 * SECOND)
    assert not counters.windows.waiting


def test_marks_that_are_forgotten_leave_every_number_seen():
    """The same holds for the numbers below: no event contradicts what is not known."""
    counters, _ = ledger()
    feed(counters, [*range(5), *range(6, 40)])
    counters.marks.forget_all()
    seqs, restart = counters.observe(["1"] * 3, [0, 39, 5], [mark(0) + 7, mark(39) + 7, mark(5)], 0)
    assert (seqs, restart) == ([-1, -1, 5], False)
    assert counters.numbers.last_mark("1") == counters.numbers.last_mark("2") == 0
    feed(counters, [40])
    assert counters.numbers.last_mark("1") == mark(40)


def test_of_a_gap_that_is_forgotten_nobody_knows_which_numbers_came():
    """Their slots still have the marks of events that came a window before."""
    counters, _ = ledger()
    feed(counters, [*range(WINDOW), WINDOW + 3])
    counters.windows.close()
    asked = ("1", WINDOW + 1, mark(WINDOW + 1))
    assert (counters.numbers.fits(*asked), counters.numbers.contradicts(*asked)) == ("near", False)
    counters.windows.give_way(10**6)
    assert (counters.numbers.fits(*asked), counters.numbers.contradicts(*asked)) == ("old", False)
    another = ("1", WINDOW + 3, mark(WINDOW + 1))
    assert (counters.numbers.fits(*another), counters.numbers.contradicts(*another)) == (None, True)


def test_events_whose_marks_are_given_up_may_be_of_the_run():
    counters, _ = ledger()
    feed(counters, range(5))
    counters.marks.give_way(10**6)
    assert counters.numbers.fits("1", 3, mark(3)) == "old"
    assert not counters.numbers.contradicts("1", 3, mark(3))


@given(st.lists(st.tuples(st.integers(-5, 35), st.integers(1, 6)), max_size=6))
def test_parts_of_a_hole_are_the_ranges_in_it_and_what_is_between(spans):
    """Ranges in order may touch, and lie before the hole, across its ends or behind it."""
    ranges, at = [], -50
    for begin, count in sorted(spans):
        first = max(begin, at + 1)
        ranges.append(SeqRange(first, first + count - 1, 7, 6, "x"))
        at = ranges[-1].last
    parts = parts_of(SeqRange(3, 30, 5, 4, "network"), ranges, "sender")
    inside = {n for r in ranges for n in range(r.first, r.last + 1)}
    assert [n for p in parts for n in range(p.first, p.last + 1)] == list(range(3, 31))
    for part in parts:
        numbers = set(range(part.first, part.last + 1))
        assert numbers
        assert (part.since, part.before) == (5, 4)
        assert numbers <= inside if part.reason == "sender" else not numbers & inside


def test_far_is_below_a_quarter_and_sizes_are_no_times():
    assert not far_before(10**6, 4 * 10**6 + 2**17)
    assert far_before(10**6, 4 * 10**6 + 2**17 + 1)


@pytest.mark.parametrize(("first", "missing"), [(127, 127), (128, 0), (255, 0)])
def test_a_stream_begins_where_its_first_number_is_in_the_upper_half(first, missing):
    counters, _ = ledger()
    feed(counters, [first])
    assert counters.account.missing == missing


def test_half_the_range_ahead_is_behind():
    counters, _ = ledger()
    feed(counters, [0])
    assert counters.observe(["1"], [1 + 127], [mark(128)], 0) == ([128], False)
    counters, _ = ledger()
    feed(counters, [0])
    assert counters.observe(["1"], [1 + 128], [mark(129)], 0) == ([None], False)
    assert counters.account.missing == 0


def test_a_hole_that_is_filled_as_late_as_can_be_is_remembered():
    counters, _ = ledger()
    feed(counters, [*range(101), *range(102, 117), 101])
    assert counters.numbers.fits("1", 101, mark(101)) == "same"
    assert counters.windows.waiting is False


@pytest.mark.parametrize(("following", "base"), [(7, 7), (None, 0)])
def test_a_stream_goes_on_where_an_earlier_session_left_it(following, base):
    asked = []

    def earlier(*about):
        asked.append(about)
        return following

    counters = Counters(LIMITS, BITS, CountersState(), Commons(CommonsState()))
    counters.earlier = earlier
    feed(counters, [9, 10], now=5)
    assert asked == [("1", 9, mark(9), 5)]
    assert counters.state.streams["1"].base == base
    assert counters.account.missing == 9 - base
