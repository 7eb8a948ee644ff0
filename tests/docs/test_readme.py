"""Every command and program in the README is run, in order, as a reader would."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT, Block, Shell, blocks, environment

README = ROOT / "README.md"
STORE, LOG = "$HOME/.local/share/tailrace", "$HOME/tailrace.log"
"""The store and the log of the README; replaced here."""
DEMO = "make demo\n"  # it has tests of its own, and CI runs it as it stands


def test_the_readme_is_short():
    assert len(README.read_text().splitlines()) <= 150


def test_every_link_in_the_readme_leads_somewhere():
    for target in re.findall(r"\]\((?!http)([^)#]+)", README.read_text()):
        assert (ROOT / target).exists(), target


def test_every_command_of_the_readme_does_what_it_says(tmp_path):
    printed = []
    with Shell(environ=environment(tmp_path)) as shell:
        for block in blocks(README):
            if block.text != DEMO:
                text = block.text.replace(STORE, str(tmp_path / "store"))
                text = text.replace(LOG, str(tmp_path / "serve.log"))
                printed.append(shell.read(block._replace(text=text)))
        assert shell.run(Block("sh", "jobs\n", 0, None)) == (0, ""), "all that it starts it ends"
    assert len(printed) >= 7
    shown = ("step", "spike", "no gaps", "0 missing", "final ledger")
    assert all(words in "".join(printed) for words in shown)
    assert not (tmp_path / "data").exists(), "one store throughout: nothing goes to the default one"
