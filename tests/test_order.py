"""The files that begin first are there."""

from __future__ import annotations

from tests.order import LONGEST, ROOT, turn


def test_every_file_that_begins_first_is_there_and_named_once():
    assert len(set(LONGEST)) == len(LONGEST)
    assert all((ROOT / file).is_file() for file in LONGEST)


def test_files_that_are_named_come_before_all_others_in_their_order():
    paths = [ROOT / "tests/test_order.py", *(ROOT / file for file in reversed(LONGEST))]
    assert sorted(paths, key=turn) == [*(ROOT / file for file in LONGEST), paths[0]]
