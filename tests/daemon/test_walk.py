"""ARCHITECTURE says which modules a datagram passes on its way to its commit."""

from __future__ import annotations

import re
from pathlib import Path

from tests.daemon.walk import follow

PAGE = Path(__file__).parents[2] / "collector/ARCHITECTURE.md"


def named():
    """The modules that the walk names."""
    (text,) = re.findall(
        r"^\*\*A datagram to its commit\.\*\*(.*?)^Measured",
        PAGE.read_text(),
        re.MULTILINE | re.DOTALL,
    )
    return [name.removesuffix(".py") for name in re.findall(r"`([^`]+)`", text)]


async def test_a_datagram_passes_the_modules_that_the_page_names(
    autojump_clock, monkeypatch, tmp_path
):
    walk = await follow(tmp_path, monkeypatch)
    ways = [f"/{file}" for file in walk.files]
    passed = {n for n in named() if any(f"/{n}.py" in way or f"/{n}/" in way for way in ways)}
    assert [name for name in named() if name not in passed] == []
    assert len(passed) > 20
