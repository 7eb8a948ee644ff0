"""A stream that begins behind the numbers for which another session accounts."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from tailrace.ledger.counters import begin_behind
from tests.ledger.test_counters import LIMITS, SECOND, counters, events, feed, missing_numbers

FAR = 2**31 - 1


@given(
    st.lists(st.integers(0, 30), min_size=1, unique=True), st.integers(0, 31), st.integers(0, 31), st.booleans()
)  # fmt: skip
def test_only_missing_numbers_from_the_stream_s_beginning_on_are_left(numbers, first, more, closed):
    ledger = counters()
    feed(ledger, events(numbers))
    if closed:
        ledger.windows.expire(LIMITS.reorder_time.ns + SECOND)
    lacking = set(range(max(numbers) + 1)) - set(numbers)
    named = set(ledger.findings)
    begin_behind(ledger, "1", range(first, first + more))
    left = lacking.copy()
    if first == 0:
        for number in range(more):
            if number not in lacking:
                break
            left.discard(number)
    assert ledger.account.missing == len(left)
    assert ledger.account.imbalance == 0
    if closed:
        assert missing_numbers(ledger.findings) == left
        assert len(ledger.findings) <= len(named) + len(numbers)
    else:
        assert not ledger.findings
    ledger.windows.close()
    assert missing_numbers(ledger.findings) == left


@pytest.mark.parametrize("closed", [False, True], ids=["open hole", "gap"])
def test_many_numbers_cost_as_much_as_few(closed):
    """One by one, these would take half an hour; nothing is timed."""
    ledger = counters()
    feed(ledger, events([FAR]))
    if closed:
        ledger.windows.expire(LIMITS.reorder_time.ns + SECOND)
    assert ledger.account.missing == FAR
    begin_behind(ledger, "1", range(FAR - 1))
    assert (ledger.account.missing, ledger.account.imbalance) == (1, 0)
    assert len(ledger.findings) <= 2
