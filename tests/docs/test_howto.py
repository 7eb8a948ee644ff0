"""The short pages that each solve one task: a reader has time for them, and they do what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Shell, blocks, environment
from tests.docs.test_tutorials import NEEDS, PRODUCERS, without

PAGES = sorted((ROOT / "docs/howto").glob("*.md"))
TRACED = {"training-to-perfetto"}
LONGEST_WORDS = 300


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_short_and_does_what_it_shows(page, tmp_path):
    assert len(page.read_text().split()) <= LONGEST_WORDS
    if page.stem in TRACED and not PRODUCERS.exists():
        pytest.skip(f"needs {NEEDS['dftracer']}")
    with Shell(environ=environment(tmp_path)) as shell, without(Path(f"/tmp/{page.stem}")):  # noqa: S108
        shown = [block for block in blocks(page) if shell.read(block) and block.output]
    assert len(shown) >= 2
