"""Each case of a test that runs in turn has its turn."""

from __future__ import annotations

import itertools
import os
from collections import Counter

import pytest

from tests.forms import TURN, in_turn
from tests.parts import today

LETTERS, DIGITS, SIGNS = "abcd", "123", "+-!"


def due(turn, monkeypatch, *axes, **options):
    monkeypatch.setenv(TURN, str(turn))
    return [case.values for case in in_turn(*axes, **options) if not case.marks]


def test_in_as_many_turns_as_ways_each_case_runs_once(monkeypatch):
    ran = Counter(
        case for turn in range(3) for case in due(turn, monkeypatch, LETTERS, DIGITS, SIGNS)
    )
    assert ran == Counter(itertools.product(LETTERS, DIGITS, SIGNS))
    halves = [due(turn, monkeypatch, LETTERS, ways=2) for turn in (8, 9)]
    assert halves == [[("a",), ("c",)], [("b",), ("d",)]]


@pytest.mark.parametrize("turn", [20_000, 20_001])
def test_in_each_turn_each_pair_of_values_runs(turn, monkeypatch):
    ran = due(turn, monkeypatch, LETTERS, DIGITS, SIGNS)
    for one, other in itertools.combinations(range(3), 2):
        axes = (LETTERS, DIGITS, SIGNS)
        assert {(case[one], case[other]) for case in ran} == {
            *itertools.product(axes[one], axes[other])
        }


def test_the_turn_is_the_date_unless_it_is_given(monkeypatch):
    monkeypatch.delenv(TURN, raising=False)
    before = today()
    cases = in_turn(range(400), ways=400)
    [now] = [case.values[0] for case in cases if not case.marks]
    assert now in {-before % 400, -today() % 400}
    assert os.environ[TURN] in {str(before), str(today())}
