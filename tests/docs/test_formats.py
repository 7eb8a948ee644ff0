"""The pages about the formats: what they show is what the decoders do, and they explain every word
that a row of their format may say is wrong."""

from __future__ import annotations

import re

import pytest

from tailrace.decoding.formats import FORMATS
from tailrace.rows.fields import FLAWS
from tests.docs.examples import examples, rows_of
from tests.docs.pages import ROOT

PAGES = sorted((ROOT / "docs/formats").glob("*.md"))
HEADINGS = [
    "In the file",
    "Against the specification",
    "In the table",
    "Losses",
    "Blind spots",
    "Example",
    "Flaws and malformed bytes",
    "Further reading",
]

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def test_there_is_one_for_each_format():
    assert {page.stem for page in PAGES} == set(FORMATS)


@each_page
def test_all_have_the_same_headings(page):
    assert re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE) == HEADINGS


@each_page
def test_an_example_becomes_the_rows_that_are_shown(page):
    found = list(examples(page.read_text()))
    assert found
    for example in found:
        rows = rows_of(page.stem, example)
        assert rows == example.shown, f"{page.name} should show:\n{rows}"


@each_page
def test_an_example_loses_something(page):
    shown = "".join(example.shown for example in examples(page.read_text()))
    assert re.search(r"\bgap\b", shown)


@each_page
def test_every_flaw_is_explained(page):
    """The rules about ids, which hold for several formats, are explained where most of them come from."""
    format_ = FORMATS[page.stem]
    words = format_.flaws | format_.malformed | (FLAWS if page.stem == "jets" else set())
    section = page.read_text().split("## Flaws and malformed bytes")[1].split("\n## ")[0]
    assert {word for word in words if f"| `{word}` |" not in section} == set()
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) <= words
