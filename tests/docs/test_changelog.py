"""The tests that the changelog names exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.test_threats import functions_of

ROOT = Path(__file__).parents[2]
NAMED = re.findall(
    r"`((?:clients/python/)?tests/[\w/]+\.py)(?:::(\w+))?`", (ROOT / "CHANGELOG.md").read_text()
)


def test_each_test_that_is_named_exists():
    assert NAMED
    for path, name in NAMED:
        assert (ROOT / path).is_file(), path
        assert not name or name in functions_of(ROOT / path), f"{path}::{name}"
