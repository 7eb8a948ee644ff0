"""The pictures of docs/view.md and docs/gallery.md are made of real runs. No two are equal to the byte, since times are
in them. They are written only when asked for: with TAILRACE_PICTURES=1. Without it, the tests look that they can be made."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from random import Random
from urllib.parse import quote

import pytest

from tests.export.traces import EPOCH
from tests.query.tables import SECOND, clocked, commit_many, gap, make, row, session
from tests.view.browser.conftest import runs
from tests.view.browser.pages import PHONE
from tests.view.browser.programs import STEP, flowing

IMAGES = Path(__file__).parents[3] / "docs/images"
LARGEST = 150 * 1024
DAY = 86_400 * SECOND
SHOTS = {
    "view-overview": ("overview", "light", (1200, 760)),
    "view-timeline": ("timeline", "dark", (1200, 560)),
    "view-statistics": ("statistics", "light", (1200, 820)),
    "view-compare": ("compare", "light", (1200, 620)),
    "view-phone": ("timeline", "light", PHONE),
}
WANTED = {
    "overview": (".verdict h1", "missing"),
    "timeline": (".status", "gap"),
    "statistics": (".grid", "solve"),
    "compare": (".grid", "grew"),
}


@pytest.fixture
def shoot(tmp_path):
    """A function that writes a picture of a page, or of a part of it."""

    def shoot_(page, name, part=None, rest=2500):
        page.page.wait_for_timeout(rest)
        page.page.evaluate(
            "for (const each of document.querySelectorAll('.head .mono')) each.textContent = 'store/events'"
        )
        directory = IMAGES if os.environ.get("TAILRACE_PICTURES") else tmp_path
        if part is None:
            page.shoot(directory / f"{name}.png")
        else:
            page.page.locator(part).screenshot(path=directory / f"{name}.png")
        assert (directory / f"{name}.png").stat().st_size <= LARGEST
        assert (IMAGES / f"{name}.png").stat().st_size <= LARGEST

    return shoot_


@pytest.fixture
def page_of(viewer_of, open_page):
    """A function that opens the timeline of a store of these rows, or another view."""
    pages = []

    def open_(store, view="timeline", **options):
        pages.append(open_page(viewer_of("--store", store), f"#/{view}", **options))
        return pages[-1]

    yield open_
    for page in pages:
        page.close()


@pytest.mark.parametrize("name", SHOTS)
def test_pictures_can_be_made(open_page, runs_viewer, run_of, shoot, name):
    view, scheme, size = SHOTS[name]
    begin = run_of.second + 26 * STEP
    sides = "&".join(
        f"{side}={quote('0:' + each['session'])}"
        for side, each in zip("ab", runs(runs_viewer), strict=True)
    )
    query = {"timeline": f"?from={begin}&to={begin + 9 * STEP}", "compare": f"?{sides}&figure=p50"}
    page = open_page(runs_viewer, f"#/{view}{query.get(view, '')}", scheme=scheme, size=size)
    page.until_text(*WANTED[view])
    shoot(page, name)


def test_a_flame_graph_can_be_shown(open_page, runs_viewer, shoot):
    page = open_page(runs_viewer, "#/statistics", size=(1000, 1400))
    page.until_text(".grid", "solve")
    shoot(page, "view-flame", "section[aria-label='Flame graph']")


def test_durations_with_two_modes_and_a_drift_can_be_shown(page_of, shoot, tmp_path):
    """Most solves are quick, some need a second pass. All slow down as the mesh grows, until it is rebuilt; with the
    mesh, 400 events are lost."""
    random = Random(3)
    rows = [clocked(epoch=EPOCH), session("tailrace.session", process="solver", host="n0")]
    at = lost = 0
    for number in range(9000):
        if number == 6000:
            at, lost = at + 6 * SECOND, 400
        grown = 1 + number / 6000 if number < 6000 else 1
        work = int(
            random.lognormvariate(0, 0.07) * grown * STEP * (3 if random.random() < 0.2 else 1)
        )
        seq = number + lost
        rows.append(row(seq=seq, offset=seq, start=at, end=at + work // 2, name="solve"))
        at += work
    rows.append(gap(400, 6000, offset=6000))
    page = page_of(make(tmp_path / "store", rows), "statistics", size=(1000, 1400))
    page.until_text(".grid", "solve")
    shoot(page, "view-heat", "section[aria-label='Durations']")


def test_two_nights_with_days_between_them_can_be_shown(page_of, shoot, tmp_path):
    rows = [clocked(epoch=EPOCH), session("tailrace.session", process="nightly", host="n0")]
    random = Random(1)
    for night, at in enumerate((0, 6 * DAY)):
        lost = 40 if night else 0
        for number in range(60):
            start = at + number * 3 * STEP
            work = random.randrange(STEP, 2 * STEP) * (1 + night // 2)
            place = {
                "seq": 200 * night + 2 * number + lost,
                "offset": 1000 * night + 20 * number + 1,
            }
            rows.append(row(name="step", start=start, end=start + work, **place))
            place = {"seq": place["seq"] + 1, "offset": place["offset"] + 1}
            name = random.choice(["assemble", "solve", "output"])
            rows.append(
                row(name=name, start=start + STEP // 9, end=start + work - STEP // 9, **place)
            )
    rows.append(gap(120, 120, offset=1215))
    page = page_of(make(tmp_path / "store", rows), size=(1200, 420))
    page.until_text(".status", "gap")
    shoot(page, "view-folded")


def test_many_lanes_can_be_shown(page_of, shoot, tmp_path):
    random = Random(2)
    rows = []
    for rank in range(24):
        mine = {"session": f"s{rank:02}", "stream": "0"}
        place = {"rank": rank, "node": f"n{rank // 8}", "job": "7", "process": f"solver {rank}"}
        rows += [
            clocked(epoch=EPOCH, session=mine["session"]),
            session("tailrace.session", session=mine["session"], **place),
        ]
        at = 0
        for seq in range(60):
            lost = 9 if rank == 10 and seq >= 30 else 0
            at += random.randrange(STEP // 10, STEP) + (lost * STEP if seq == 30 else 0)
            end = at + random.randrange(STEP // 2, 2 * STEP)
            name = ["assemble", "exchange", "solve"][seq % 3]
            rows.append(
                row(seq=seq + lost, offset=10 * seq + 1, start=at, end=end, name=name, **mine)
            )
            at = end
        if rank == 10:
            rows.append(gap(9, 30, offset=305, **mine))
    page = page_of(make(tmp_path / "store", rows), size=(1200, 760))
    page.until_text(".status", "24 lanes")
    page.page.get_by_label("Order of lanes").select_option("loss")
    shoot(page, "view-lanes")


def test_a_fresh_import_can_be_shown(page_of, shoot, tmp_path):
    """The picture shows how far the viewer is with its sums, unless it is faster than the page."""
    count = 1_000_000
    store = make(tmp_path / "store", [clocked(epoch=EPOCH)])
    starts = range(0, 1000 * count, 1000)
    different = {"offset": range(count), "start": starts, "end": [start + 700 for start in starts]}
    commit_many(store, count, name="step", different=different)
    page = page_of(store, size=(1200, 420))
    page.until_text(".status", "1 lane")
    with contextlib.suppress(AssertionError):
        page.until(page.page.locator(".sample-note progress").count, "the sample")
    page.until(page.page.locator("canvas.rangebar[data-state=read]").count, "the bar")
    shoot(page, "view-import", rest=400)


def test_a_live_run_can_be_shown(live_viewer, open_page, collector, shoot):
    with flowing(collector.address("tcp"), 2000):
        page = open_page(live_viewer, "#/timeline?follow=1", scheme="dark", size=(1200, 480))
        page.until_text(".status", "gap")
        page.page.wait_for_timeout(6000)
        shoot(page, "view-live")
