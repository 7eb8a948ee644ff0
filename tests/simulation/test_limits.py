"""Small limits are drawn where the collector can keep its word with them."""

from __future__ import annotations

from random import Random

import pytest

from tailrace.config.schema import LedgerConfig
from tests.simulation.limits import FORGETFUL, LIMITS, TELLING_RUNS_APART, draw, ledger

SEEDS = range(400)


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_a_seed_draws_only_limits_of_which_the_oracle_knows_the_effect(announced, shared):
    drawn = {n for s in SEEDS for n in draw(Random(s), announced=announced, shared=shared)}
    without = (set() if announced else set(FORGETFUL)) | (
        set(TELLING_RUNS_APART) if shared else set()
    )
    if shared and not announced:
        without.add("reorder_events")
    assert drawn == set(LIMITS) - without


def test_limits_are_those_of_the_ledger_and_smaller_or_longer_than_its_defaults():
    for name, one_of in LIMITS.items():
        limits = ledger({name: one_of(Random(1))}, 99)
        assert limits.source_streams_max == 99
        assert getattr(limits, name) != getattr(LedgerConfig(), name)
