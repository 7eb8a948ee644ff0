"""A real client and a real ledger, with a bad network between them, in virtual time."""

from __future__ import annotations

import pytest

from tests.simulation.lives import Simulation


def simulate(seed, crowd=None):
    simulation = Simulation(seed, crowd)
    simulation.run()
    simulation.check()
    return simulation


@pytest.mark.parametrize("seed", range(12))
def test_what_a_client_calls_delivered_is_stored_once_and_all_else_is_named(seed):
    assert not simulate(seed).uncounted


@pytest.mark.parametrize("seed", range(4))
def test_it_is_so_when_strangers_want_all_places_for_streams(seed):
    simulation = simulate(seed, "strangers")
    assert not simulation.uncounted
    assert simulation.collector.ingest.account("s").uncounted > 0


def test_what_is_not_known_of_streams_without_a_place_is_named_and_not_called_delivered():
    assert any(simulate(seed, "own streams").uncounted for seed in range(4))


@pytest.mark.slow
@pytest.mark.parametrize("crowd", [None, "strangers", "own streams"])
@pytest.mark.parametrize("seed", range(12, 312))
def test_it_is_so_for_three_hundred_seeds(seed, crowd):
    simulate(seed, crowd)
