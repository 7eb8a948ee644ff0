"""Real clients, a real ingest and a bad world around them, in virtual time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.clock import SystemClock
from tests.simulation.facts import decode
from tests.simulation.generate import generate
from tests.simulation.verdict import judge
from tests.simulation.world import SECOND

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.json"))
OPEN = sorted((Path(__file__).parent / "open").glob("*.json"))
TODAY = SystemClock().wall_ns() // (86_400 * SECOND) * 1000
"""Other seeds each day. A failing test names its seed, and the seed says all."""


def assert_good(scenario):
    verdict = judge(scenario)
    assert verdict.kind is None, f"seed {scenario.seed}: {verdict.about}"


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_what_went_wrong_once_goes_well(path):
    assert_good(decode(path.read_bytes()))


if OPEN:  # else pytest would report a skip

    @pytest.mark.parametrize("path", OPEN, ids=lambda path: path.stem)
    @pytest.mark.xfail(
        strict=True, reason="found and not mended yet; a mended one goes to `corpus`"
    )
    def test_what_goes_wrong_still(path):
        assert_good(decode(path.read_bytes()))


@pytest.mark.parametrize("seed", range(8))
def test_what_a_client_calls_delivered_is_stored_once_and_all_else_is_named(seed):
    assert_good(generate(seed))


@pytest.mark.slow  # about one fresh seed in five hundred fails
@pytest.mark.parametrize("seed", range(TODAY, TODAY + 8))
def test_it_is_so_for_seeds_of_today(seed):
    assert_good(generate(seed))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 300))
def test_it_is_so_for_three_hundred_seeds(seed):
    assert_good(generate(seed))


def test_a_seed_is_a_run_whatever_the_hash_seed():
    program = (
        "from tests.simulation.generate import generate;"
        "from tests.simulation.verdict import judge; print(judge(generate(3)).trace)"
    )
    traces = {
        subprocess.check_output(
            [sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": seed}, text=True
        )
        for seed in ("1", "2")
    }
    assert len(traces) == 1
