"""Answers that are kept are those of the snapshot that they are kept for."""

from __future__ import annotations

from contextlib import closing

import msgspec
import pytest

from tailrace.chosen import choose
from tailrace.clock import SystemClock
from tailrace.view.answers import Asking, Endpoint
from tailrace.view.desk import DeskTurn, Shelf
from tailrace.view.questions import OfNothing
from tests.query.tables import commit, make, row


class Counted(msgspec.Struct):
    rows: int


def count(turn):
    return sum(1 for _ in turn.snapshot().engine.rows("SELECT seq FROM events"))


@pytest.mark.parametrize("moves", [False, True])
def test_an_answer_of_two_snapshots_is_not_kept(tmp_path, moves):
    """As where upkeep deletes the files of a snapshot between two statements."""
    store = make(tmp_path / "store", [row(seq=0)])
    asked = []

    def answer(turn, _):
        asked.append(first := count(turn))
        if moves:
            commit(store, [row(seq=len(asked))])
            turn.snapshot().engine.refresh()
        return Counted(first + count(turn))

    endpoint = Endpoint("GET", "/count", "", OfNothing, Counted, answer)
    with closing(Asking([Shelf(choose(None, store), SystemClock())])) as asking:
        for _ in range(2):
            turn = DeskTurn(asking.shelves)
            asking._answer(endpoint, turn, OfNothing())
            turn.end(good=True)
        held = len(asking._kept._answers)
    assert (len(asked), held) == ((2, 0) if moves else (1, 1))
