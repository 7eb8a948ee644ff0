"""The reference says what the code says."""

from __future__ import annotations

from pathlib import Path

from tailrace.model.gap import Reason
from tests.docs.reference import REASONS, render

ROOT = Path(__file__).parents[2]


def test_the_reference_is_what_the_code_says():
    assert (ROOT / "collector/REFERENCE.md").read_text() == render(), "run `make reference`"


def test_every_reason_is_explained():
    assert set(REASONS) == set(Reason)
