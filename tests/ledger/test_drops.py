"""Drops of the kernel set against holes, held against a plain model: every drop is a token."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings, strategies as st

from tailrace.ledger.bounds import _SAMPLES_MAX, Drops, DropsState

SECOND = 10**9


def explain(drops, events, since, until, *, seen=0, datagrams=0, alone=True):
    share = drops.explain(events, since, until, seen=seen, datagrams=datagrams, alone=alone)
    return share.events, share.estimate


def test_a_hole_takes_the_drops_of_its_time_and_no_others():
    drops = Drops(DropsState())
    drops.add(0, 1 * SECOND, 3)
    drops.add(1 * SECOND, 2 * SECOND, 4)
    drops.add(8 * SECOND, 9 * SECOND, 5)
    assert explain(drops, 10, int(1.5 * SECOND), 3 * SECOND) == (4, False)
    assert drops.unassigned == 8
    assert explain(drops, 10, int(1.5 * SECOND), 3 * SECOND) == (0, False)


def test_a_hole_takes_no_more_than_it_has_and_the_rest_is_another_ones_guess():
    drops = Drops(DropsState())
    drops.add(0, SECOND, 5)
    assert explain(drops, 3, 0, SECOND) == (3, True)
    assert explain(drops, 9, 0, SECOND) == (2, True)
    assert drops.unassigned == 0


def test_drops_beside_other_streams_are_an_estimate():
    drops = Drops(DropsState())
    drops.add(0, SECOND, 5)
    assert explain(drops, 5, 0, SECOND, alone=False) == (5, True)


def test_a_dropped_datagram_held_as_many_events_as_others_do():
    drops = Drops(DropsState())
    drops.add(0, SECOND, 4)
    assert explain(drops, 55, 0, SECOND, seen=2000, datagrams=100, alone=False) == (55, True)
    assert drops.unassigned == 1
    assert explain(drops, 90, 0, SECOND, seen=2000, datagrams=100, alone=False) == (18, True)
    assert drops.unassigned == 0


TENTHS = st.integers(0, 30)
"""Tenths of a second."""
ADD = st.tuples(st.just("add"), TENTHS, st.integers(1, 9))
HOLE = st.tuples(st.just("hole"), TENTHS, st.integers(1, 12))


@settings(max_examples=300, deadline=None)
@given(st.lists(ADD | HOLE, max_size=40))
@example([("add", 10, 5), ("add", 2, 1), ("hole", 1, 9)])
@example([("add", 10, 5), ("add", 2, 1), ("hole", 0, 9)])
def test_every_drop_is_taken_once_by_a_hole_of_its_time(course):
    """Single events: what is explained is exactly the tokens that the model lets the hole have."""
    drops = Drops(DropsState())
    tokens = []
    now = dropped = explained = 0
    for what, length, count in course:
        if what == "add":
            begin, now = now, now + length * SECOND // 10
            drops.add(begin, now, count)
            tokens += [(begin, now)] * count
            dropped += count
        else:
            since = now - length * SECOND // 10
            fitting = [token for token in tokens if token[1] >= since]
            taken = fitting[:count]
            events, estimate = explain(drops, count, since, now)
            assert events == len(taken)
            assert not estimate or taken
            for token in taken:
                tokens.remove(token)
            explained += events
        assert drops.unassigned == dropped - explained == len(tokens)


def test_memory_is_bounded_and_no_drop_is_forgotten():
    drops = Drops(DropsState())
    for n in range(3 * _SAMPLES_MAX):
        drops.add(n * SECOND, (n + 1) * SECOND, 2)
    assert len(drops.state.samples) == _SAMPLES_MAX
    assert explain(drops, 10**6, 0, 10**6 * SECOND)[0] == 6 * _SAMPLES_MAX


@pytest.mark.parametrize(
    ("seen", "datagrams", "events"),
    [(0, 0, 4), (5, 0, 4), (7, 7, 4), (10, 5, 8), (3, 1, 12), (10, 4, 10)],
)
def test_events_in_a_datagram_are_reckoned_by_those_that_came(seen, datagrams, events):
    """Four datagrams, for a hole that is much larger."""
    drops = Drops(DropsState())
    drops.add(0, SECOND, 4)
    told = explain(drops, 60, 0, SECOND, seen=seen, datagrams=datagrams, alone=False)
    assert told == (events, True)
    assert isinstance(told[0], int)
    assert drops.unassigned == 0


def test_one_dropped_event_beside_others_is_an_estimate_and_none_is_none():
    drops = Drops(DropsState())
    drops.add(5 * SECOND, 6 * SECOND, 1)
    assert explain(drops, 9, 0, SECOND, alone=False) == (0, False)
    assert explain(drops, 9, 5 * SECOND, 6 * SECOND, alone=False) == (1, True)


def test_drops_that_were_put_together_are_an_estimate_of_either():
    drops = Drops(DropsState())
    for n in range(_SAMPLES_MAX + 1):
        drops.add(n * SECOND, (n + 1) * SECOND, 2)
    assert explain(drops, 4, SECOND // 2, SECOND // 2) == (4, True)
    assert explain(drops, 4, 5 * SECOND // 2, 5 * SECOND // 2) == (2, False)


def test_the_kernels_count_is_that_of_the_socket_it_was_told_of():
    drops = Drops(DropsState())
    drops.tell(7, 40)
    assert (drops.told(7), drops.told(8)) == (40, 0)
    drops.tell(8, 3)
    assert (drops.told(7), drops.told(8)) == (0, 3)
