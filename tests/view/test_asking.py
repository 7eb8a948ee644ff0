"""Answers that are kept are those of the snapshot that they are kept for."""

from __future__ import annotations

from contextlib import closing

import msgspec
import pytest

from tailrace.clock import SystemClock
from tailrace.configuration import choose
from tailrace.view.answers import AnswerPool, Endpoint
from tailrace.view.leases import ServedStore, SnapshotLease
from tailrace.view.questions import OfNothing
from tests.query.tables import commit, make, row


class Counted(msgspec.Struct):
    rows: int


def count(lease):
    return sum(1 for _ in lease.snapshot().engine.rows("SELECT seq FROM events"))


@pytest.mark.parametrize("moves", [False, True])
def test_an_answer_of_two_snapshots_is_not_kept(tmp_path, moves):
    """As where upkeep deletes the files of a snapshot between two statements."""
    store = make(tmp_path / "store", [row(seq=0)])
    asked = []

    def answer(lease, _):
        asked.append(first := count(lease))
        if moves:
            commit(store, [row(seq=len(asked))])
            lease.snapshot().engine.refresh()
        return Counted(first + count(lease))

    endpoint = Endpoint("GET", "/count", "", OfNothing, Counted, answer)
    with closing(AnswerPool([ServedStore(choose(None, store), SystemClock())])) as asking:
        for _ in range(2):
            lease = SnapshotLease(asking.stores)
            asking._answer(endpoint, lease, OfNothing())
            lease.end(good=True)
        held = len(asking._kept._answers)
    assert (len(asked), held) == ((2, 0) if moves else (1, 1))
