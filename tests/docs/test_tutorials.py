"""The tutorials and the operator's guide, walked here but for the set-up that they begin with, which is
`tests/deploy/test_fresh.py`'s."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Shell, blocks, environment, matches

TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))
PAGES = [*TUTORIALS, ROOT / "docs/OPERATING.md"]
NEEDS = {"dftracer": "the real DFTracer (CPython 3.11 on Linux): make producers"}
PRODUCERS = ROOT / ".venv/producers/bin/python"


def test_there_is_one_for_each_format_and_for_each_kind_of_job():
    formats = ["dftracer", "et3", "heph", "jets", "ovni"]
    assert [page.stem for page in TUTORIALS] == sorted([*formats, "data-science", "ranks"])


@pytest.mark.slow  # CI walks them in a fresh root, which takes as long
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_shows(page, tmp_path):
    if page.stem in NEEDS and not PRODUCERS.exists():
        pytest.skip(f"needs {NEEDS[page.stem]}")
    first, *rest = blocks(page)
    make, _, set_up = first.text.partition("\n")
    if make.startswith("make setup"):
        rest.insert(0, first._replace(text=set_up))
    assert sum(block.output is not None for block in rest) >= 5
    with Shell(environ=environment(tmp_path)) as shell, without(Path(f"/tmp/{page.stem}")):  # noqa: S108
        for block in rest:
            shell.read(block)


@contextlib.contextmanager
def without(directory):
    """The directory in which a tutorial works is not there before it, nor after."""
    shutil.rmtree(directory, ignore_errors=True)
    try:
        yield
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a  b\n", "a b\n"),
        ("a … c\n", "a 17 and c\n"),
        ("a\n…\nz\n", "a\nb\nc\nz\n"),
        ("session …  x\n", "session 1a2  x\n"),
    ],
)
def test_what_is_as_shown(shown, printed):
    assert matches(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("a\n", "a\nb\n"),
        ("a 1\n", "a 2\n"),
        ("a\nb\n", "a\n"),
        ("a … c\n", "a\n17 c\n"),
        ("", "a\n"),
    ],
)
def test_what_is_not(shown, printed):
    assert not matches(shown, printed)
