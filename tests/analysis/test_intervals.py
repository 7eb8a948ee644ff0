"""Random questions of stores that have lost something: each interval of `Store.stats` holds the truth."""

from __future__ import annotations

import pytest

from tests.analysis.questions import Twins


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_interval_holds_the_truth_and_is_a_value_where_nothing_is_lost(tmp_path, seed):
    stores = Twins(tmp_path, seed)
    asked = list(stores.answers(12))
    assert [answer for answers in asked for answer in answers if answer.wrong] == []
    assert any(answer.told for answers in asked for answer in answers)
