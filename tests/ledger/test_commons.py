"""The bounds that a source's sessions share, and sums of accounts."""

from __future__ import annotations

import pytest

from tailrace.ledger.bounds import Commons, CommonsState
from tailrace.model.gap import Account


class Session:
    """A session that holds streams, and nothing else."""

    def __init__(self, commons, name):
        self.commons, self.name = commons, name
        self.streams = 0

    def add(self, most):
        took = self.commons.add_stream(self, most, 0)
        self.streams += took
        return took

    def free_places(self, count, _now):
        assert 0 < count <= self.streams
        self.streams -= count
        self.commons.remove_streams(self, count)


def test_the_session_with_the_most_streams_gives_way_until_shares_are_equal():
    commons = Commons(CommonsState())
    large, small, newcomer = (Session(commons, name) for name in "lsn")
    assert all(large.add(12) for _ in range(11))
    assert small.add(12)
    assert not large.add(12)
    assert [newcomer.add(12) for _ in range(6)] == [True] * 5 + [False]
    assert (large.streams, small.streams, newcomer.streams) == (6, 1, 5)
    assert (commons.state.streams, commons.state.known) == (12, 17)


def test_no_session_with_its_share_or_less_gives_way_whatever_others_want():
    commons = Commons(CommonsState())
    honest = Session(commons, "honest")
    assert all(honest.add(64) for _ in range(4))
    greedy = [Session(commons, f"greedy {n}") for n in range(15)]
    for _ in range(64):
        for session in greedy:
            session.add(64)
    assert honest.streams == 4
    assert {session.streams for session in greedy} == {4}


def test_of_sessions_of_one_size_the_first_by_name_gives_way_in_whatever_order_they_are_taken_up():
    for order in ("ab", "ba"):
        commons = Commons(CommonsState(streams=6))
        held = {name: Session(commons, name) for name in order}
        for session in held.values():
            session.streams = 3
            commons.shares.add(session, 3)
        assert Session(commons, "c").add(6)
        assert (held["a"].streams, held["b"].streams) == (2, 3)


def test_a_session_that_waits_is_let_go_of_for_one_within_its_share_alone():
    waiting = [1, 1]

    def forget_first():
        if waiting:
            commons.state.streams -= waiting.pop()
            return True
        return False

    commons = Commons(CommonsState(streams=2), forget_first)
    session = Session(commons, "s")
    assert [session.add(4) for _ in range(7)] == [True] * 4 + [False] * 3
    assert len(waiting) == 0

    waiting = [1, 1]
    commons = Commons(CommonsState(streams=2), forget_first)
    one, other = Session(commons, "one"), Session(commons, "other")
    assert one.add(5)
    assert other.add(5)
    assert one.add(5)
    assert one.add(5)  # the first that waits gives way
    assert not one.add(5)  # it has more than its share
    assert len(waiting) == 1


@pytest.mark.parametrize(
    ("streams", "mixed", "alone"), [(0, False, True), (1, False, True), (1, True, False), (2, False, False)]
)  # fmt: skip
def test_a_stream_is_alone_if_there_was_never_another_nor_a_mixed_datagram(streams, mixed, alone):
    commons = Commons(CommonsState(mixed=mixed))
    session = Session(commons, "s")
    for _ in range(streams):
        assert session.add(9)
        session.free_places(1, 0)
    assert commons.alone is alone


def test_accounts_add_up():
    total = Account(1, 2, 3, 4, 5)
    total.add(Account(10, 20, 30, 40, 50))
    assert total == Account(11, 22, 33, 44, 55)
    assert total.imbalance == 11 - (22 + 33 - 44)
