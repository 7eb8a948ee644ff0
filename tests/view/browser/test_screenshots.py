"""The pictures of docs/view.md are made of real runs. No two are equal to the byte, since times are in them.
They are written only when asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.view.browser.pages import PHONE
from tests.view.browser.programs import STEP

IMAGES = Path(__file__).parents[3] / "docs/images"
SHOTS = {
    "view-overview": ("overview", "light", (1200, 760)),
    "view-timeline": ("timeline", "dark", (1200, 560)),
    "view-statistics": ("statistics", "light", (1200, 820)),
    "view-phone": ("timeline", "light", PHONE),
}


@pytest.mark.parametrize("name", SHOTS)
def test_pictures_can_be_made(open_page, runs_viewer, run_of, tmp_path, name):
    """Write the pictures of the docs anew with TAILRACE_PICTURES=1; without it, look that they can be made."""
    view, scheme, size = SHOTS[name]
    begin = run_of.second + 26 * STEP
    hash_ = f"#/{view}?from={begin}&to={begin + 9 * STEP}" if view == "timeline" else f"#/{view}"
    page = open_page(runs_viewer, hash_, scheme=scheme, size=size)
    wanted = {
        "overview": (".verdict h1", "missing"),
        "timeline": (".status", "gap"),
        "statistics": (".grid", "solve"),
    }
    page.until_text(*wanted[view])
    page.page.wait_for_timeout(2500)
    page.page.evaluate(
        "for (const each of document.querySelectorAll('.head .mono')) each.textContent = 'store/events'"
    )
    directory = IMAGES if os.environ.get("TAILRACE_PICTURES") else tmp_path
    page.shoot(directory / f"{name}.png")
    assert (IMAGES / f"{name}.png").exists()
