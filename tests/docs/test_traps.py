"""Everything that `tests/vectors/TRAPS.md` names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tailrace.decoding.formats import FORMATS
from tests.faults import test_growth

TESTS = Path(__file__).parents[1]
VECTORS = TESTS / "vectors"
TITLES = {
    "dftracer": "DFTracer",
    "et3": "Elephant Tracks 3",
    "heph": "Heph",
    "jets": "JETS",
    "ovni": "ovni",
}
GROWTH = re.compile(r"growth\[(\w+)-([a-z ]+)\]")


def sections():
    """The lines of each format's table, by its title."""
    _, *parts = re.split(r"^## (.+)$", (VECTORS / "TRAPS.md").read_text(), flags=re.MULTILINE)
    lines = [[line for line in part.splitlines() if line.startswith("| ")] for part in parts[1::2]]
    return {title: found[1:] for title, found in zip(parts[::2], lines, strict=True)}


def traps():
    for title, lines in sections().items():
        for line in lines:
            _, _, trap, shown, _ = line.split("|")
            yield pytest.param(shown, id=f"{title}: {trap.strip()}")


@cache
def functions_of(path):
    """The test functions that pytest finds in a file."""
    assert path.name.startswith("test_")
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = [node.name for node in ast.parse(path.read_text()).body if isinstance(node, functions)]
    return {name for name in names if name.startswith("test_")}


def test_every_format_has_its_traps():
    found = sections()
    assert found.keys() == set(TITLES.values())
    assert TITLES.keys() == FORMATS.keys()
    assert all(found.values())


@pytest.mark.parametrize("shown", list(traps()))
def test_every_trap_is_shown_somewhere(shown):
    references = re.findall(r"`([^`]+)`", shown)
    assert references
    for reference in references:
        path, _, name = reference.partition("::")
        if growth := GROWTH.fullmatch(reference):
            assert growth.groups() in test_growth.LONG
        elif name:
            assert name in functions_of(TESTS / path), reference
        else:
            assert path.endswith(".in")
            assert (VECTORS / path).is_file(), reference
