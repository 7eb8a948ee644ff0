"""The bounds that a source's sessions share, and sums of accounts."""

from __future__ import annotations

import pytest

from tailrace.ledger.commons import Commons, CommonsState
from tailrace.ledger.findings import Account


def test_streams_are_followed_while_there_is_room_or_room_is_made():
    idle = [1, 1]

    def make_room():
        if idle:
            commons.state.streams -= idle.pop()
            return True
        return False

    commons = Commons(CommonsState(), make_room)
    assert [commons.add_stream(2) for _ in range(5)] == [True] * 4 + [False]
    assert (commons.state.streams, commons.state.known) == (2, 4)


@pytest.mark.parametrize(
    ("streams", "mixed", "alone"), [(0, False, True), (1, False, True), (1, True, False), (2, False, False)]
)  # fmt: skip
def test_a_stream_is_alone_if_there_was_never_another_nor_a_mixed_datagram(streams, mixed, alone):
    commons = Commons(CommonsState(mixed=mixed))
    for _ in range(streams):
        assert commons.add_stream(9)
        commons.state.streams -= 1
    assert commons.alone is alone


def test_accounts_add_up():
    total = Account(1, 2, 3, 4, 5)
    total.add(Account(10, 20, 30, 40, 50))
    assert total == Account(11, 22, 33, 44, 55)
    assert total.imbalance == 11 - (22 + 33 - 44)
