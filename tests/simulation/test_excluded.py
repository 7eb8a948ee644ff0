"""The exclusions are no wider than they have to be: each violates what holds everywhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.facts import decode
from tests.simulation.verdict import judge

HERE = Path(__file__).parent
BLIND_SPOTS = (
    (HERE.parents[1] / "collector/ARCHITECTURE.md").read_text().partition("## Blind spots")[2]
)

EXCLUDED = {
    "event-after-the-reorder-time": "arrives more than `reorder_time` after the next incarnation's first event",
    "event-after-the-clock-was-set-while-no-collector-ran": "if the wall clock was set while no collector ran",
    "event-before-the-next-announcement": "says it in eight datagrams, which others of a burst may overtake",
    "event-before-the-next-epoch": "events that come before the first word of the next program at their address",
    "event-later-than-the-programs-are-apart": "it comes later than the two incarnations' beginnings are apart",
    "header-lost-with-the-disk": "lines that overtake their header, or whose header is lost",
    "noise-on-a-connection-that-broke": "after the next connection ended, behind noise for instance",
}
"""By scenario, words of the row of ARCHITECTURE.md that says why nobody can tell."""

VIOLATIONS = {
    "header-lost-with-the-disk": "two lives in a session",
    "noise-on-a-connection-that-broke": "in two gaps",
}


def test_each_exclusion_has_its_scenario():
    assert {path.stem for path in (HERE / "excluded").glob("*.json")} == EXCLUDED.keys()


@pytest.mark.parametrize("name", EXCLUDED)
def test_an_exclusion_violates_what_must_be_true(name):
    verdict = judge(decode((HERE / "excluded" / f"{name}.json").read_bytes()))
    assert verdict.kind == VIOLATIONS.get(name, "two programs in a session")


@pytest.mark.parametrize("name", EXCLUDED)
def test_an_exclusion_is_an_admitted_blind_spot(name):
    assert EXCLUDED[name] in BLIND_SPOTS
