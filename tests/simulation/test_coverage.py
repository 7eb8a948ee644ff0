"""Tell by branch what seeds reach."""

from __future__ import annotations

import re

from tests.simulation.coverage import FILES, ROOT, TABLE, Branch, Reach


def test_a_branch_is_reached_rare_or_lost():
    reach = Reach()
    for seed in range(100):
        rare = [[3, 4]] if seed == 7 else []
        often, lost = [[1, 2], *rare], [[1, 9]] + ([] if rare else [[3, 4]])
        reach.add(seed, {"a.py": {"executed_branches": often, "missing_branches": lost}})
    assert reach.seeds[Branch("a.py", 3, 4)] == [7]
    assert reach.rare_seeds == [7]
    assert "| `a.py` | 3 | 2 | 1 | 1 |" in reach.table("0-100")


def test_a_file_that_no_seed_reaches_is_said():
    reach = Reach()
    reach.add(0, {"a.py": {"executed_branches": [], "missing_branches": [[1, 2], [1, 3]]}})
    assert "| `a.py` | 2 | 0 | 0 | all: not simulated |" in reach.table("0")


def test_the_table_is_of_the_files_that_there_are():
    listed = re.findall(r"^\| `(\S+)` \|", TABLE.read_text(), re.MULTILINE)
    assert [pattern for pattern in FILES if not [*ROOT.glob(pattern)]] == []
    there = {str(path.relative_to(ROOT)) for pattern in FILES for path in ROOT.glob(pattern)}
    assert len(listed) > 30
    assert set(listed) <= there
