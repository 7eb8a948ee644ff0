"""Every command and program in the README and in the first steps is run, in order, as a reader would."""

from __future__ import annotations

import pytest

from tests.docs.pages import ROOT, Block, Shell, blocks, environment

README, START = ROOT / "README.md", ROOT / "docs" / "start.md"
STORE, LOG = "$HOME/.local/share/tailrace", "$HOME/tailrace.log"
"""The store and the log of the pages; replaced here."""
ELSEWHERE = ("make demo\n", "python3 -m venv $HOME/tailrace-env\n")
"""Beginnings of blocks that have tests of their own: tests/demo, tests/packaging/test_first_trace.py."""


def test_the_readme_is_short():
    assert len(README.read_text().splitlines()) <= 60


@pytest.mark.parametrize(
    ("page", "clone", "least", "shown"),
    [
        (README, True, 1, ("service", "no gaps")),
        (START, False, 7, ("step", "spike", "no gaps", "0 missing", "final ledger")),
    ],
    ids=["README", "start"],
)
def test_every_command_does_what_it_says(page, clone, least, shown, tmp_path):
    """A reader of the first steps needs no clone."""
    printed = []
    with Shell(environ=environment(tmp_path), cwd=ROOT if clone else tmp_path) as shell:
        for block in blocks(page):
            if not block.text.startswith(ELSEWHERE):
                text = block.text.replace(STORE, str(tmp_path / "store"))
                text = text.replace(LOG, str(tmp_path / "serve.log"))
                printed.append(shell.read(block._replace(text=text)))
        assert shell.run(Block("sh", "jobs\n", 0, None)) == (0, ""), "all that it starts it ends"
    assert len(printed) >= least
    assert all(words in "".join(printed) for words in shown)
    assert not (tmp_path / "data").exists(), "one store throughout: nothing goes to the default one"
