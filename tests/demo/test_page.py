"""The page beside the demonstration: when it opens a browser, and what is said when there is no page."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tailrace.demo.tour import page, page_command
from tailrace.errors import TailraceError

STORE = Path("/runs/7")


@pytest.mark.parametrize("name", ["BROWSER", "DISPLAY", "WAYLAND_DISPLAY"])
def test_a_browser_opens_where_a_window_can_be_shown(name):
    assert page_command(STORE, {name: "x"}) == ["view", "--store", "/runs/7", "--open"]


def test_no_text_browser_takes_the_terminal(monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    assert page_command(STORE, {"TERM": "xterm"}) == ["view", "--store", "/runs/7"]


def test_why_there_is_no_page_is_said(tmp_path):
    async def show():
        async with page(page_command(tmp_path / "nothing", {}), tmp_path / "view.log"):
            pytest.fail("there is no store")

    with pytest.raises(TailraceError, match=r"the page was not served:\ntailrace: .*nothing"):
        trio.run(show)
