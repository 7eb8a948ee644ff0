"""docs/walks.md lists the stops of three walks. The real collector makes them, in this order."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

import tailrace
from tailrace.kernels import active
from tests.daemon.walk import follow, follow_file, follow_gap

PAGE = Path(__file__).parents[2] / "docs/walks.md"
PACKAGE = Path(tailrace.__file__).parent
WALKS = ("A datagram to its commit", "A followed file to the spool", "A gap to its row")
OF_KERNELS = frozenset({"PumpedSocket.read"})
"""Stops that only an installation with kernels makes."""


class Step(NamedTuple):
    file: str
    functions: list[str]


def steps(walk: str) -> list[Step]:
    """Return the numbered steps of a walk. The names in front of a step's text are its functions."""
    (text,) = re.findall(
        rf"^\*\*{walk}\.\*\*.*?\n\n((?:\d+\. .*\n)+)", PAGE.read_text(), re.MULTILINE
    )
    found = []
    for line in text.splitlines():
        file, names = re.match(r"\d+\. `([^`]+)`: (`[^`]+`(?:, `[^`]+`)*)", line).groups()
        found.append(Step(file, re.findall(r"`([^`]+)`", names)))
    return found


def stops(walk: str) -> list[tuple[str, str]]:
    return [(step.file, function) for step in steps(walk) for function in step.functions]


def taken(walk: str) -> list[tuple[str, str]]:
    """Return the stops that this installation makes."""
    return [stop for stop in stops(walk) if active() or stop[1] not in OF_KERNELS]


def functions_of(file: str) -> set[str]:
    """Return the functions of a module as `co_qualname` spells them."""
    tree = ast.parse((PACKAGE / file).read_text())
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    found = {node.name for node in tree.body if isinstance(node, kinds)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, kinds)}
    return found


async def test_a_datagram_makes_the_stops_that_the_page_names(
    autojump_clock, monkeypatch, tmp_path
):
    walk = await follow(tmp_path, monkeypatch)
    assert list(walk.passes(taken(WALKS[0]))) == taken(WALKS[0])


async def test_so_does_a_file(autojump_clock, monkeypatch, tmp_path):
    walk = await follow_file(tmp_path, monkeypatch)
    assert list(walk.passes(taken(WALKS[1]))) == taken(WALKS[1])


def test_so_does_a_gap(monkeypatch):
    walk = follow_gap(monkeypatch)
    assert list(walk.passes(taken(WALKS[2]))) == taken(WALKS[2])


def test_a_stop_that_is_not_made_or_not_in_this_order_is_missed(monkeypatch):
    walk = follow_gap(monkeypatch)
    first, second, *_, last = stops(WALKS[2])
    assert list(walk.passes([first, (first[0], "Counters.nothing")])) == [first]
    assert list(walk.passes([last, first])) == [last]
    assert list(walk.passes([first, second, last])) == [first, second, last]


@pytest.mark.parametrize("walk", WALKS)
def test_every_file_and_function_of_a_walk_exists(walk):
    assert [stop for stop in stops(walk) if stop[1] not in functions_of(stop[0])] == []


@pytest.mark.parametrize("walk", WALKS)
def test_the_table_counts_what_is_listed(walk):
    (row,) = re.findall(
        rf"^\| {walk.lower()} \| (\d+), (\d+), (\d+) \|$", PAGE.read_text(), re.MULTILINE
    )
    files = {step.file for step in steps(walk)}
    counted = (len(set(stops(walk))), len(files), len(steps(walk)) - len(files))
    assert tuple(map(int, row)) == counted
