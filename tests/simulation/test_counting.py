"""The checks of figures, answers and ways to give way: each sees what it is there to see."""

from __future__ import annotations

import pytest

from tailrace.config.schema import LedgerConfig
from tailrace.ledger.bounds import Commons, CommonsState
from tailrace.ledger.counters import Counters
from tailrace.ledger.stream import CountersState
from tests.simulation import counting
from tests.simulation.facts import Scenario
from tests.simulation.violation import Violation
from tests.simulation.watch import ANSWER_MAX, Watch


def counters():
    """Counters of a stream with ten events, and a hole behind each."""
    made = Counters(LedgerConfig(), 32, CountersState(), Commons(CommonsState()))
    for number in range(0, 20, 2):
        made.observe(["1"], [number], [1000 + number], 10**9 + number)
    return made


def test_figures_are_what_is_held():
    counting._check_session(counters())


def test_another_number_of_marks_is_seen():
    made = counters()
    made.marks.count += 1
    with pytest.raises(Violation, match="another number of marks"):
        counting._check_session(made)


def test_another_number_of_ranges_is_seen():
    made = counters()
    made.windows.count(1)
    with pytest.raises(Violation, match="another number of ranges"):
        counting._check_session(made)


@pytest.mark.parametrize("what", ["marks", "ranges"])
def test_who_says_how_much_is_given_up_is_believed(what):
    with counting.watched():
        made = counters()
        holding = made.marks if what == "marks" else made.windows
        holding.give_way(holding.held // 2)
    assert holding.evicted > 0


def test_who_says_another_number_is_not_believed(monkeypatch):
    give_up = counting.Windows._give_up

    def says_more(self, *about):
        give_up(self, *about)
        self.evicted += 1

    monkeypatch.setattr(counting.Windows, "_give_up", says_more)
    with counting.watched(), pytest.raises(Violation, match="another number given up"):
        counters().windows.give_way(1)


def test_an_answer_that_is_too_long_is_seen():
    with pytest.raises(Violation, match="an answer that is too long"):
        Watch(Scenario(seed=0, facts=[], fates={})).answered(bytes(ANSWER_MAX + 1))
