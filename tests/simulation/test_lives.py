"""A real client and a real ledger, with a bad network between them, in virtual time."""

from __future__ import annotations

import pytest

from tests.simulation.lives import Simulation


def simulate(seed):
    simulation = Simulation(seed)
    simulation.run()
    simulation.check()


@pytest.mark.parametrize("seed", range(12))
def test_what_a_client_calls_delivered_is_stored_once_and_all_else_is_named(seed):
    simulate(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 312))
def test_it_is_so_for_three_hundred_seeds(seed):
    simulate(seed)
