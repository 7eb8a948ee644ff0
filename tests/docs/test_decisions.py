"""Decisions in `docs/decisions`: each has a number of its own, and each number that is cited exists."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs/decisions").glob("*.md"))
DECISIONS = [
    number
    for page in PAGES
    for number in re.findall(r"^\*\*D(\d+)\.", page.read_text(), re.MULTILINE)
]
TOUR_WORDS = 5000
"""Words of ARCHITECTURE, which a new contributor reads in half an hour. Details belong to `docs/decisions`."""
LINTER = {"D100", "D104", "D300", "D401", "D403"}  # rules of ruff that pyproject.toml names
CITED = r"(?<![\w.&])D[1-9][0-9]{0,2}(?![\w.-]*[A-Za-z0-9])"


def test_no_two_decisions_share_a_number():
    assert len(DECISIONS) > 50
    assert [number for number, times in Counter(DECISIONS).items() if times > 1] == []


def test_the_tour_stays_short():
    assert len((ROOT / "collector/ARCHITECTURE.md").read_text().split()) <= TOUR_WORDS


def test_each_decision_that_is_cited_exists():
    found = subprocess.run(
        ["git", "grep", "-hoP", CITED, "--", "*.py", "*.pyx", "*.pxd", "*.md", "*.toml", "*.c", "*.h"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert len(found) > len(DECISIONS)
    assert {number.removeprefix("D") for number in set(found) - LINTER} - set(DECISIONS) == set()
