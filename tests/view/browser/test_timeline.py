"""The timeline in Chromium: every gap at every zoom, live rows, links that restore, names that are only text."""

from __future__ import annotations

import statistics
from urllib.parse import parse_qs

import pytest

from tailrace_client import Emitter
from tests.export.drawn import of_perfetto
from tests.export.traces import EPOCH
from tests.query.tables import clocked, gap, make, row
from tests.system.collector import until
from tests.view.browser.conftest import LOST, runs
from tests.view.browser.pages import PHONE
from tests.view.browser.programs import STEP, emitting
from tests.view.viewer import Viewer

SECOND = 1_000_000_000
HOSTILE = [
    "<img src=x onerror=alert(1)><script>alert(2)</script>",
    "</title><svg onload=alert(3)>",
    "\u202egnp.exe\u202c and \x1b[31mred\x07",
    "javascript:alert(4)",
    "x" * 10_000,
]
DRAWS = """() => performance.getEntriesByName('tailrace.draw').map(each => each.duration)"""


def gap_of(viewer):
    (gap,) = viewer.get("gaps")["gaps"]
    return int(gap["begins"]), int(gap["ends"])


def test_an_injected_gap_shows_at_every_zoom(open_page, runs_viewer):
    """From days to nanoseconds, with the gap's begin in the middle."""
    begin, _ = gap_of(runs_viewer)
    page = open_page(runs_viewer, "#/timeline")
    page.until(page.lossy_columns, "the gap over the whole range")
    for length in (86_400 * SECOND, SECOND, STEP, 10_000, 100):
        page.go(f"/timeline?from={begin - length // 2}&to={begin + length // 2}")
        page.until(page.lossy_columns, f"the gap in {length} ns")
        page.until(lambda: page.lossy_columns("canvas.rangebar"), "the gap in the range bar")


def test_a_gap_of_several_lanes_counts_once(open_page, tmp_path):
    """A gap is a stream's, and stands in each of its lanes. Gaps in one place are one mark, and count as many. The name
    of a stream's first lane states the share of all its events, or of the session's events if the stream is unknown."""
    steps = [
        row(seq=n, substream=n % 2, offset=10 * n, start=100 * n, end=100 * n + 70, name="step")
        for n in range(9)
        if n not in (3, 4)
    ]
    gaps = [gap(2, 3), gap(4, offset=85), gap(0, offset=85), gap(3, stream="", offset=85)]
    viewer = Viewer("--store", make(tmp_path / "store", [clocked(epoch=EPOCH), *steps, *gaps]))
    page = open_page(viewer, "#/timeline")
    page.until_text(".status", "4 lanes · 4 gaps near")
    page.until(page.lossy_columns, "the gaps")
    box = page.page.locator("canvas.lanes").bounding_box()
    for y, text in [(80, "(no stream) · 30.0 % missing"), (122, "stream 1 · ≥ 46.2 % missing")]:
        page.page.mouse.move(box["x"] + 60, box["y"] + y)
        page.until_text(".status .hover", text)
    page.close()
    assert viewer.end() == (0, "")


def test_a_stream_with_one_substream_is_one_lane_with_its_losses(open_page, tmp_path):
    """The heading states the share of the run. Spans that are there lie over the gap, in which nothing else is left."""
    steps = [
        row(seq=n, substream=3, offset=10 * n, start=100 * n, end=100 * n + 70, name="step")
        for n in range(16)
        if n not in (8, 9, 10, 11)
    ]
    gaps = [gap(4, 8, offset=75)]
    viewer = Viewer("--store", make(tmp_path / "store", [clocked(epoch=EPOCH), *steps, *gaps]))
    page = open_page(viewer, "#/timeline")
    page.until_text(".status", "1 lane · 1 gap near")
    page.until(page.lossy_columns, "the gap")
    box = page.page.locator("canvas.lanes").bounding_box()

    def near(part, y):
        """Hover over a part of all time, which begins and ends with a little room."""
        left, room = 184, box["width"] - 184
        page.page.mouse.move(box["x"] + left + room * (0.02 + 0.96 * part / 1570), box["y"] + y)
        return page.text(".status .hover")

    assert "4 missing · 25.0 % of the whole run" in near(0, 50)
    assert near(735, 82).startswith("step · 70 ns")
    assert near(900, 82).startswith("4 events missing")
    assert near(900, 104).startswith("4 events missing")
    page.page.locator("canvas.lanes").focus()
    page.page.keyboard.press("g")
    page.until(lambda: "from" in parse_qs(page.hash.partition("?")[2]), "the move to the gap")
    page.page.keyboard.press("i")
    page.until_text(".details h2", "stream 1")
    page.close()
    assert viewer.end() == (0, "")


@pytest.mark.parametrize("key", ["g", "G"])
def test_a_key_goes_to_a_gap_in_sight_wherever_it_is(open_page, runs_viewer, key):
    page = open_page(runs_viewer, "#/timeline?source=tcp")
    page.until(page.lossy_columns, "the gap")
    page.page.keyboard.press(key)
    page.until(lambda: "from" in parse_qs(page.hash.partition("?")[2]), "the move to the gap")
    page.page.keyboard.press(key)
    page.until_text(".toolbar", f"no {'later' if key == 'g' else 'earlier'} gap")


def test_a_gap_says_what_is_missing(open_page, runs_viewer):
    page = open_page(runs_viewer, "#/timeline?source=tcp")
    page.until(page.lossy_columns, "the gap")
    page.page.keyboard.press("g")
    page.until(lambda: "from" in parse_qs(page.hash.partition("?")[2]), "the move to the gap")
    columns = page.until(page.lossy_columns, "the gap")
    box = page.page.locator("canvas.lanes").bounding_box()
    rows = page.page.evaluate(
        """([x]) => { const canvas = document.querySelector('canvas.lanes'); const pen = canvas.getContext('2d');
        const { data } = pen.getImageData(x, 45, 1, canvas.height - 45);
        for (let y = 0; y < data.length / 4; y += 1) if (data[4 * y] > 200 && data[4 * y + 1] < 120) return y + 45; }""",
        [columns[len(columns) // 2]],
    )
    page.page.mouse.click(box["x"] + columns[len(columns) // 2] + 1, box["y"] + rows + 3)
    page.until_text(".details .lossbox", f"{LOST} events are missing")


def test_a_run_without_loss_has_no_hatch(open_page, runs_viewer, run_of):
    first, _ = runs(runs_viewer)
    page = open_page(runs_viewer, f"#/timeline?source={first['source']}&session={first['session']}")
    page.until_text(".status", "1 lane")
    page.until(lambda: page.page.evaluate(DRAWS), "a drawing")
    page.page.wait_for_timeout(1000)
    assert page.lossy_columns() == []


def select(page):
    """Select a range of what is in sight with the mouse."""
    box = page.page.locator("canvas.lanes").bounding_box()
    page.page.keyboard.down("Shift")
    page.page.mouse.move(box["x"] + 400, box["y"] + 200)
    page.page.mouse.down()
    page.page.mouse.move(box["x"] + 800, box["y"] + 200, steps=5)
    page.page.mouse.up()
    page.page.keyboard.up("Shift")


def test_a_selected_range_is_saved_for_perfetto(open_page, runs_viewer, run_of, tmp_path):
    begin = run_of.second
    page = open_page(runs_viewer, f"#/timeline?from={begin}&to={begin + 10 * STEP}")
    page.until_text(".status", "lanes")
    select(page)
    page.until_text(".details table", "solve")
    sel = page.until(
        lambda: parse_qs(page.hash.partition("?")[2]).get("sel"), "the selection in the address"
    )
    first, last = sel[0].split(",")
    with page.page.expect_download() as download:
        page.page.get_by_role("link", name="Perfetto file").click()
    download.value.save_as(tmp_path / "trace")
    solves = [each for each in of_perfetto(tmp_path / "trace") if each.name == "solve"]
    assert solves
    assert all(int(first) <= each.begin < int(last) for each in solves)


def test_a_shared_link_restores_the_view(open_page, runs_viewer, run_of):
    begin = run_of.second
    page = open_page(runs_viewer, f"#/timeline?from={begin}&to={begin + 10 * STEP}")
    page.until_text(".status", "lanes")
    select(page)
    page.until_text(".details table", "solve")
    page.page.keyboard.press("+")
    page.page.wait_for_timeout(400)
    link, selected = page.hash, page.text(".details h2")
    assert {"from", "to", "sel"} <= parse_qs(link.partition("?")[2]).keys()

    other = open_page(runs_viewer, f"#{link}")
    other.until_text(".details table", "solve")
    assert other.text(".details h2") == selected
    assert other.hash == link


def test_a_row_has_every_column_its_bytes_and_its_children(open_page, runs_viewer):
    (found,) = runs_viewer.get("search", name="step")["events"]
    place = found["place"]
    page = open_page(
        runs_viewer, f"#/timeline?row={place['source']}/{place['session']}/{place['offset']}"
    )
    page.until_text(".details h2", "step")
    page.until_text(".details .family", "solve")
    page.until_text(".details", "Raw bytes")
    page.page.locator(".details .family button", has_text="solve").click()
    page.until_text(".details h2", "solve")
    page.until_text(".details .family", "step")
    page.page.keyboard.press("Escape")
    assert page.page.locator(".details").is_hidden()


def test_the_keyboard_finds_names_lanes_and_spans(open_page, runs_viewer):
    page = open_page(runs_viewer, "#/timeline")
    page.until_text(".status", "lanes")
    page.page.keyboard.press("/")
    page.page.keyboard.type("checkp")
    page.until_text(".details h2", "checkpoint")
    page.page.keyboard.press("Enter")
    page.page.keyboard.press("Escape")
    page.page.keyboard.press("0")
    page.page.keyboard.press("ArrowDown")
    page.until(lambda: page.page.locator("#spoken").text_content(), "the lane to be spoken")
    page.page.keyboard.press("?")
    assert page.page.locator("dialog[open]").count() == 1
    assert page.violations() == []
    page.page.keyboard.press("Escape")
    page.page.keyboard.press("t")
    assert page.page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_live_rows_appear_and_open_spans_grow(live_viewer, open_page, collector):
    address = "tcp://{}:{}".format(*collector.address("tcp"))
    with emitting(address):
        page = open_page(live_viewer, "#/overview")
        page.until_text("#live", "live")
        page.until_text(".verdict h1", "events")
        before = page.text(".verdict h1")
        page.until(lambda: page.text(".verdict h1") != before, "more events")
        page.go("/timeline?follow=1")
        page.until(lambda: page.page.locator("canvas.lanes").count(), "the timeline")
        page.until(lambda: "follow=1" in page.hash, "the address")
        left = page.until(lambda: page.page.evaluate(DRAWS), "a drawing")
        page.until(lambda: len(page.page.evaluate(DRAWS)) > len(left) + 3, "it to move on")


def test_names_are_shown_as_text(live_viewer, open_page, collector):
    emitter = Emitter("tcp://{}:{}".format(*collector.address("tcp")), process=HOSTILE[0])
    for name in HOSTILE:
        with emitter.span(name, **{"<b>": name}):
            pass
    assert emitter.close(30)
    until(lambda: live_viewer.get("search", name="x" * 100)["events"], "the last name in the table")
    page = open_page(live_viewer, "#/statistics")
    page.until_text(".grid", "<img src=x onerror=alert(1)>")
    assert "⟨202e⟩gnp.exe" in page.text(".grid")
    for view in ("overview", "compare", "notes", "timeline"):
        page.go(f"/{view}")
        page.until(lambda view=view: page.page.locator(f"main[data-view={view}]").count(), view)
        page.page.wait_for_timeout(700)
    for name in HOSTILE[:2]:
        (found,) = live_viewer.get("search", name=name)["events"]
        place = found["place"]
        page.go(f"/timeline?row={place['source']}/{place['session']}/{place['offset']}")
        page.until_text(".details h2", name[:20])
    assert page.page.locator("main img, main script").count() == 0


@pytest.mark.parametrize("size", [(1280, 800), PHONE])
def test_drawing_is_measured(open_page, runs_viewer, size, record_property):
    """Zooming and panning draw each time; how long that takes is reported, not demanded."""
    page = open_page(runs_viewer, "#/timeline", size=size)
    page.until_text(".status", "lanes")
    box = page.page.locator("canvas.lanes").bounding_box()
    page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 150)
    before = len(page.page.evaluate(DRAWS))
    for step in range(16):
        page.page.mouse.wheel(0, -120 if step < 8 else 120)
    draws = page.until(lambda: page.page.evaluate(DRAWS)[before:], "drawings")
    p95 = statistics.quantiles([*draws, *draws], n=20)[-1]
    record_property("draw_p95_ms", p95)
