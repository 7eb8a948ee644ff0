"""The reference and the manual pages say what the code says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tailrace.model.gap import Reason
from tests.docs import manual
from tests.docs.reference import REASONS, render

ROOT = Path(__file__).parents[2]


def test_the_reference_is_what_the_code_says():
    assert (ROOT / "collector/REFERENCE.md").read_text() == render(), "run `make reference`"


def test_the_manual_pages_are_what_the_code_says():
    found = {path.name: path.read_text() for path in manual.DIRECTORY.iterdir()}
    assert found == manual.pages(), "run `make reference`"


@pytest.mark.parametrize(
    "command",
    [["mandoc", "-T", "lint", "-W", "error"], ["groff", "-man", "-ww", "-z"]],
    ids=["mandoc", "groff"],
)
def test_the_manual_pages_are_well_formed(command):
    """The pages have no date, about which mandoc warns."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]}: apt install {command[0]}")
    pages = sorted(manual.DIRECTORY.iterdir())
    done = subprocess.run([*command, *pages], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_reason_is_explained():
    assert set(REASONS) == set(Reason)
