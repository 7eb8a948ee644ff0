"""Equal datagrams, held against a plain list of those that came."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tailrace.config.schema import LedgerConfig
from tailrace.ledger.copies import COPY_BYTES, Copies
from tailrace.units import Duration

SECOND = 10**9
LIMITS = LedgerConfig(reorder_events=4, reorder_time=Duration(2))
ARRIVALS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 4).map((SECOND // 2).__mul__)), max_size=60
)


@given(ARRIVALS)
def test_a_datagram_is_a_copy_while_the_first_is_among_the_last_and_young_enough(arrivals):
    state = {}
    copies = Copies(LIMITS, state)
    came = []  # which datagram, when, with how many events
    now = 0
    for which, pause in arrivals:
        now += pause
        datagram = bytes([which]) * 50
        came = [first for first in came[-4:] if first[1] > now - 2 * SECOND]
        known = [events for other, _, events in came if other == which]
        assert copies.events_of(datagram, now) == (known[0] if known else None)
        if not known:
            came.append((which, now, len(came) + now % 7))
            copies.remember(datagram, came[-1][2], now)
        assert len(state) == min(len(came), 4)
        assert {len(digest) for digest in state} <= {16}


@pytest.mark.parametrize(("pause", "events"), [(2 * SECOND - 1, 0), (2 * SECOND, None)])
def test_a_copy_without_events_is_one_too_until_its_time_is_over(pause, events):
    copies = Copies(LIMITS, {})
    copies.remember(b"", 0, 5)
    assert copies.events_of(b"", 5 + pause) == events


def test_what_is_given_up_is_known_no_more():
    copies = Copies(LIMITS, {})
    for which in range(4):
        copies.remember(bytes([which]), 1, SECOND)
    assert copies.held == 4 * COPY_BYTES
    copies.give_way(COPY_BYTES + 1)
    assert [copies.events_of(bytes([which]), SECOND) for which in range(4)] == [None, None, 1, 1]
    assert (copies.held, copies.evicted) == (2 * COPY_BYTES, 2)
