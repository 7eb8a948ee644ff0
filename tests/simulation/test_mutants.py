"""The mutants that are kept are changes of the code as it is; a small change is found again in its file."""

from __future__ import annotations

import pytest

from tests.simulation.defects import ROOT
from tests.simulation.mutants import TABLE, change, kill, load, seeds_of, table

KEPT = load()


@pytest.mark.parametrize("mutant", KEPT, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place_of_the_code(mutant):
    assert (ROOT / mutant.file).read_text().count(mutant.mended) == 1
    assert mutant.broken != mutant.mended


def test_the_table_says_what_is_kept():
    assert TABLE.read_text() == table(KEPT)


def test_a_change_has_as_many_lines_around_it_as_it_takes():
    before = "if a:\n    go()\nif b:\n    go()\nend\n"
    after = "if a:\n    go()\nif b:\n    stay()\nend\n"
    mended, broken = change(before, after)
    assert before.count(mended) == 1
    assert before.replace(mended, broken) == after


def test_seeds_are_numbers_and_ranges_in_their_order():
    assert seeds_of("7,3,10-13") == [7, 3, 10, 11, 12]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [m for m in KEPT if m.found], ids=lambda mutant: mutant.name)
def test_a_mutant_that_was_killed_is_killed_again(mutant):
    assert kill(mutant, [mutant.found.seed]) is not None
