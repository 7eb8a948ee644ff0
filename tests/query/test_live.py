"""Test the answers of running collectors about awaited events, together with a snapshot: a commit in between must not
make an answer seem complete.
"""

from __future__ import annotations

import pytest

from tailrace.query.completeness import completeness
from tailrace.query.engine import Engine
from tailrace.query.live import OVERTAKEN, TRIES, AwaitedEvents, Live, beside
from tests.query.tables import commit, gap, make, row

HOLE = Live(awaited=(AwaitedEvents("sim", "heph", "a", "1", 3),))


@pytest.fixture
def store(tmp_path):
    return make(tmp_path, [row(seq=0)])


def test_a_hole_that_opens_between_the_question_and_the_snapshot_is_awaited(store):
    """The collector is asked first. Then it receives a later event and commits it."""
    engine, asked = Engine(store), []

    def ask():
        if asked:
            return HOLE
        asked.append(1)
        commit(store, [row(seq=4)])
        return Live()

    whole = completeness(engine, live=beside(engine, ask))
    assert engine.count("SELECT * FROM stored") == 2
    assert (whole.awaited, whole.complete) == (3, False)


def test_a_table_that_is_always_newer_is_not_complete(store):
    engine = Engine(store)

    def ask():
        commit(store, [row(seq=1)])
        return Live()

    whole = completeness(engine, live=beside(engine, ask))
    assert engine.count("SELECT * FROM stored") == 1 + TRIES
    assert (whole.unasked, whole.complete) == (OVERTAKEN, False)


def test_a_quiet_table_is_asked_about_once(store):
    asked = []
    assert beside(Engine(store), lambda: asked.append(1) or HOLE) is HOLE
    assert asked == [1]


def test_whatever_producers_claim_the_answer_says_what_is_missing(tmp_path):
    """If the sum of missing events does not fit the column, the answer has the greatest number that fits."""
    most = 2**63 - 1
    gaps = [gap(most, 1, stream=str(n), offset=n) for n in range(3)]
    engine = Engine(make(tmp_path / "store", [row(seq=0), *gaps]))
    assert completeness(engine).missing == {"network": most}
