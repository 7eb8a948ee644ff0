"""A reader of the repository has the repository: it cites no paper that is not in it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PARTS = ("benchmarks", "clients", "collector", "config", "deploy", "docs", "examples", "tests")
"""Directories of the repository; further ones are made by builds."""

TEXTS = {".c", ".h", ".html", ".md", ".py", ".rs", ".sh", ".toml", ".yaml", ".yml"}
OURS = Path(__file__).relative_to(ROOT)

PAPER = re.compile(r"(?<![\w/:.%-])[\w./-]*[\w-]\.(?:md|rst)\b")
"""A document by its name or path, but for one behind an address."""

OUTSIDE = re.compile(
    r"§|\bDESIGN\b|\bin the wild\b|\bour notes\b|\bthe design'?s? (?:floor|goal|spoke|had|rests)"
)
"""How papers were cited that nobody has who has the repository: sections, the design, notes."""


@cache
def texts():
    """The repository's files by their path within it."""
    top = [path for path in ROOT.iterdir() if path.is_file()]
    inside = [path for part in PARTS for path in (ROOT / part).rglob("*")]
    chosen = (path for path in (*top, *inside) if path.suffix in TEXTS or path.name == "Makefile")
    return {path.relative_to(ROOT): path.read_text() for path in chosen if path.is_file()}


def is_there(paper: str, file: Path) -> bool:
    """Return whether a document is here: as seen from the file, from the top, or by the end of its path."""
    if (ROOT / file.parent / paper).exists() or (ROOT / paper).exists():
        return True
    return any(f"/{other}".endswith(f"/{paper.lstrip('./')}") for other in texts())


def cited_outside(text: str, file: Path) -> list[str]:
    papers = [paper for paper in PAPER.findall(text) if not is_there(paper, file)]
    return papers + OUTSIDE.findall(text)


def test_no_file_cites_a_document_that_is_not_here():
    assert len(texts()) > 500
    found = {str(file): cited_outside(text, file) for file, text in texts().items() if file != OURS}
    assert {file: cited for file, cited in found.items() if cited} == {}


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("as notes/plan.md says", ["notes/plan.md"]),
        ("see heph.md and formats/none.md", ["formats/none.md"]),
        ("the floor (DESIGN 6)", ["DESIGN"]),
        ("formats in the wild §3.1", ["in the wild", "§"]),
    ],
)
def test_a_document_that_is_elsewhere_is_found(text, cited):
    assert cited_outside(text, OURS) == cited


@pytest.mark.parametrize(
    "text",
    [
        "docs/formats/heph.md, ../../README.md, ARCHITECTURE.md",
        "https://github.com/ripopov/jets/blob/bfdf564/JETS.md",
        "a design at 500 MHz, as its designers have it",
    ],
)
def test_what_is_here_or_has_an_address_is_no_such_document(text):
    assert cited_outside(text, OURS) == []
