"""A real client and a real ledger, with a bad network between them, in virtual time."""

from __future__ import annotations

import pytest

from tests.simulation.lives import Simulation


def simulate(seed):
    simulation = Simulation(seed)
    simulation.run()
    simulation.check()


@pytest.mark.parametrize("seed", range(20))
def test_what_a_client_calls_delivered_is_stored_once_and_all_else_is_named(seed):
    simulate(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 1020))
def test_it_is_so_for_a_thousand_seeds(seed):
    simulate(seed)
