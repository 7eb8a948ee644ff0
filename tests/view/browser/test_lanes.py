"""Clocks, counters, fingers and thousands of lanes, in Chromium: stores that are written for it."""

from __future__ import annotations

import os
import statistics
from urllib.parse import parse_qs

import pytest

from tests.export.traces import EPOCH
from tests.query.tables import clocked, commit, commit_many, gap, make, row
from tests.view.viewer import Viewer

STEP = 1_000_000


@pytest.fixture
def viewers(tmp_path):
    """Viewers that end after their pages, and before `tmp_path`, in which their stores are, is removed."""
    started = []
    yield started
    for viewer in started:
        assert viewer.end() == (0, "")


@pytest.fixture
def page_of(viewers, open_page, tmp_path):
    """A function that opens the timeline of some rows."""

    def open_(rows, **options):
        viewers.append(Viewer("--store", make(tmp_path / f"store {len(viewers)}", rows)))
        return open_page(viewers[-1], "#/timeline", **options)

    return open_


def asked(page):
    return {key: value[0] for key, value in parse_qs(page.hash.partition("?")[2]).items()}


def steps(session, count=9, **values):
    return [
        row(session=session, seq=n, offset=10 * n, start=STEP * n, end=STEP * n + STEP // 2, **values)
        for n in range(count)
    ]  # fmt: skip


def test_a_clock_without_wall_time_has_an_axis_of_its_own_that_says_so(page_of):
    wall = [clocked(session="a", epoch=EPOCH), *steps("a", name="with wall time")]
    logical = [
        clocked(session="b", ticks_per_second=None),
        *steps("b", name="in ticks"),
    ]
    page = page_of([*wall, *logical])
    page.until_text(".status", "1 lane")
    clocks = page.page.get_by_label("Clock")
    assert len(clocks.locator("option").all_inner_texts()) == 2
    assert not page.page.locator(".clock-note").is_visible()
    clocks.select_option(index=1)
    page.until_text(".clock-note", "No wall time here")
    page.until_text(".clock-note", "a tick is drawn as 1 ns")
    page.until(lambda: "clock" in asked(page), "the clock in the address")
    page.page.keyboard.press("/")
    page.page.keyboard.type("in ticks")
    page.until_text(".details h2", "in ticks")


def test_a_counter_says_its_values_where_it_is_drawn(page_of):
    values = [
        row("counter", seq=n, offset=10 * n, start=STEP * n, name="queue", attributes={"value": 40 + n})
        for n in range(9)
    ]  # fmt: skip
    page = page_of([clocked(epoch=EPOCH), *values])
    page.until_text(".status", "1 lane")
    box = page.page.locator("canvas.lanes").bounding_box()

    def hovered():
        for y in range(40, int(min(box["height"], 200)), 6):
            page.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + y)
            if "queue" in (text := page.text(".status .hover")):
                return text
        return None

    assert any(str(value) in page.until(hovered, "the counter") for value in range(40, 49))


def test_two_fingers_zoom(page_of):
    page = page_of([clocked(epoch=EPOCH), *steps("a", 100, name="step")])
    page.until_text(".status", "1 lane")
    touch = page.page.context.new_cdp_session(page.page)
    touch.send("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 2})
    box = page.page.locator("canvas.lanes").bounding_box()
    middle, y = box["x"] + box["width"] * 0.6, box["y"] + 100

    def fingers(kind, apart):
        points = [
            {"x": middle - apart, "y": y, "id": 1},
            {"x": middle + apart, "y": y, "id": 2},
        ]
        event = {"type": kind, "touchPoints": points if apart else []}
        touch.send("Input.dispatchTouchEvent", event)

    fingers("touchStart", 50)
    for apart in range(60, 201, 20):
        fingers("touchMove", apart)
    fingers("touchEnd", 0)

    def zoomed():
        # The page may put a zoom into the address while the fingers still move apart.
        place = asked(page)
        return "from" in place and 0 < int(place["to"]) - int(place["from"]) < 100 * STEP / 2

    page.until(zoomed, "the whole zoom")


def test_thousands_of_lanes_can_be_seen(page_of):
    lanes = 3000
    rows = [
        row(stream=str(n), seq=0, offset=10 * n, start=n * STEP, end=n * STEP + 50 * STEP, name=f"of {n}")
        for n in range(lanes)
    ]  # fmt: skip
    page = page_of([clocked(epoch=EPOCH), *rows])
    page.until_text(".status", "3,000 lanes")
    page.page.keyboard.press("/")
    page.page.keyboard.type(f"of {lanes - 1}")
    page.until_text(".details h2", f"of {lanes - 1}")
    page.until_text(".details", str(lanes - 1))


YEAR = 365 * 86_400 * 10**9


def drawn(page):
    """Wait until the lanes in sight show events."""
    drawing = page.page.locator(".message[data-state=drawn]")
    page.until(drawing.count, "the drawing")


def test_an_empty_window_says_that_it_is_empty(page_of):
    page = page_of([clocked(epoch=EPOCH), *steps("a", name="step")])
    drawn(page)
    page.go(f"/timeline?from={EPOCH + STEP * 2 // 3}&to={EPOCH + STEP * 5 // 6}")
    page.until_text(".message", "No event and no gap in sight")
    page.page.keyboard.press("0")
    drawn(page)


def test_a_window_that_is_being_read_says_so_until_it_is_drawn(page_of):
    page = page_of([clocked(epoch=EPOCH), *steps("a", name="step")])
    drawn(page)
    held = []

    def hold(request):
        held.append(request)

    page.page.route("**/api/v1/frame?*", hold)
    page.go(f"/timeline?from={EPOCH - YEAR}&to={EPOCH + STEP * 5}")
    page.until_text(".message", "Reading this range: 9 events in 1 lane")
    for request in held:
        request.continue_()
    page.page.unroute("**/api/v1/frame?*", hold)
    drawn(page)


def test_a_frame_that_failed_is_asked_for_again_with_the_next_move(viewers, open_page, tmp_path):
    store = make(tmp_path / "store", [clocked(epoch=EPOCH), *steps("a", 100, name="step")])
    viewers.append(Viewer("--store", store))
    page = open_page(viewers[-1], "#/timeline")
    drawn(page)
    page.expected.append("Failed to load resource")
    page.page.route("**/api/v1/frame?*", lambda request: request.abort(), times=1)
    commit(store, [row(seq=100, offset=1000, start=STEP * 100, end=STEP * 101, name="newer")])
    page.until(page.page.locator(".message[data-state=failed]").count, "the failure")
    page.page.wait_for_timeout(1500)
    page.page.keyboard.press("ArrowRight")
    drawn(page)


def test_an_empty_window_does_not_claim_to_be_empty_while_a_newer_version_is_read(
    viewers, open_page, tmp_path
):
    rows = [clocked(epoch=EPOCH), *steps("a", name="step")]
    store = make(tmp_path / "store", rows)
    viewers.append(Viewer("--store", store))
    empty = f"from={EPOCH + STEP * 2 // 3}&to={EPOCH + STEP * 5 // 6}"
    page = open_page(viewers[-1], f"#/timeline?{empty}")
    page.until_text(".message", "No event and no gap in sight")
    held = []

    def hold(request):
        held.append(request)

    page.page.route("**/api/v1/frame?*", hold)
    commit(store, [row(seq=9, offset=90, start=STEP * 7 // 10, end=STEP * 8 // 10, name="late")])
    page.until_text(".message", "Reading this range")
    for request in held:
        request.continue_()
    page.page.unroute("**/api/v1/frame?*", hold)
    drawn(page)


def imported(directory, count):
    """Return a store with `count` spans of 70 ns, one each 100 ns, in one file."""
    store = make(directory / "store", [clocked(epoch=EPOCH)])
    starts = range(0, 100 * count, 100)
    different = {"offset": range(count), "start": starts, "end": [start + 70 for start in starts]}
    commit_many(store, count, name="step", different=different)
    return store


def near(page):
    """Hover over the middle of the first lane. Return the text, and the number of spans in it."""
    box = page.page.locator("canvas.lanes").bounding_box()
    page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 80)
    page.until_text(".status .hover", "spans, mostly step")
    text = page.text(".status .hover")
    return text, int(text.removeprefix("about ").split(" ")[0].replace(",", ""))


def test_a_fresh_import_is_drawn_at_the_width_of_a_pixel(viewers, open_page, tmp_path):
    viewers.append(Viewer("--store", imported(tmp_path, 100_000)))
    page = open_page(viewers[-1], "#/timeline")
    drawn(page)
    assert 10 < near(page)[1] < 1000
    page.until_text(".legend", "several spans in one mark")


def test_a_large_import_is_drawn_in_full_once_it_is_prepared(viewers, open_page, tmp_path):
    viewers.append(Viewer("--store", imported(tmp_path, 300_000)))
    page = open_page(viewers[-1], "#/timeline")
    drawn(page)
    page.until(lambda: not page.page.locator(".sample-note").is_visible(), "all events")
    page.page.wait_for_timeout(1000)
    text, count = near(page)
    assert not text.startswith("about")
    assert 100 < count < 1000


def test_a_table_that_cannot_be_prepared_is_a_sample_that_says_so(open_page, tmp_path):
    store = imported(tmp_path, 300_000)
    for name in ("store/rollups", "cache"):
        (tmp_path / name).write_text("a file where the directory would be")
    viewer = Viewer("--store", store, env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    page = open_page(viewer, "#/timeline")
    drawn(page)
    page.until_text(
        ".sample-note",
        "Sample: 1 event in 4 is drawn. Counts are estimates. Zoom in to see every event.",
    )
    text, count = near(page)
    assert text.startswith("about")
    assert 100 < count < 1000
    page.close()
    assert "no roll-up was made" in viewer.line()
    assert viewer.end() == (0, "")


def test_a_small_loss_is_drawn_small_until_one_looks_closer(page_of):
    """One of forty events is missing, and a pixel has a dozen."""
    every, count = 40, 12_000
    spans = [
        row(seq=n, offset=10 * n, start=STEP * n, end=STEP * n + STEP // 2, name="step")
        for n in range(count)
        if n % every != 1
    ]
    page = page_of([clocked(epoch=EPOCH), *spans, *(gap(1, n) for n in range(1, count, every))])
    drawn(page)

    assert len(lossy_in_lanes(page)) > 300
    assert max(lossy_in_lanes(page)) <= 2
    page.until_text(".legend", "share of events missing")
    box = page.page.locator("canvas.lanes").bounding_box()
    page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 106)
    page.until_text(".status .hover", "of the events missing here, about 1")
    bar = page.until(lambda: page.lossy_pixels("canvas.rangebar"), "the loss in the bar")
    assert max(bar.values()) <= 4
    page.page.keyboard.press("g")
    page.until(lambda: max(lossy_in_lanes(page), default=0) > 6, "the hatch, higher than a band")


def test_a_gap_row_of_a_range_is_no_area_in_which_nothing_is_left(page_of):
    """The collector writes one row for the many gaps of two seconds. One of forty events is missing."""
    every, count = 40, 12_000
    spans = [
        row(seq=n, offset=10 * n, start=STEP * n, end=STEP * n + STEP // 2, name="step")
        for n in range(count)
        if n % every != 1
    ]
    about = {"count": count // every, "of_range": True, "last": count - every + 1}
    page = page_of([clocked(epoch=EPOCH), *spans, gap(count // every, 1, attributes=about)])
    drawn(page)
    page.until(lambda: len(lossy_in_lanes(page)) > 300, "the loss")
    assert max(lossy_in_lanes(page)) <= 2


def lossy_in_lanes(page):
    """Return the heights of the losses in the lanes. The names left of them have marks of the same colour."""
    return [pixels for column, pixels in page.lossy_pixels().items() if column > 184]


def test_a_small_loss_of_a_stream_with_many_lanes_is_drawn_wherever_one_scrolls(page_of):
    lanes, every, count = 120, 40, 12_000
    spans = [
        row(seq=n, substream=n % lanes, offset=10 * n, start=STEP * n, end=STEP * n + STEP // 2, name="step")
        for n in range(count)
        if n % every != 1
    ]  # fmt: skip
    page = page_of([clocked(epoch=EPOCH), *spans, *(gap(1, n) for n in range(1, count, every))])
    drawn(page)
    for y in (1, 9, 25, 1500, 1515, 99_999):
        page.go(f"/timeline?y={y}")
        page.page.wait_for_timeout(200)
        drawn(page)
        assert len(lossy_in_lanes(page)) > 300, y


def test_several_gaps_in_one_mark_are_no_area_in_which_nothing_is_left(page_of):
    """One of four events is missing. A stretched frame draws the gaps of a bucket as one wide mark."""
    every, count = 4, 12_000
    spans = [
        row(seq=n, offset=10 * n, start=STEP * n, end=STEP * n + STEP // 2, name="step")
        for n in range(count)
        if n % every != 1
    ]
    page = page_of([clocked(epoch=EPOCH), *spans, *(gap(1, n) for n in range(1, count, every))])
    drawn(page)
    held = []

    def hold(request):
        held.append(request)

    page.page.route("**/api/v1/frame?*", hold)
    for _ in range(10):
        page.page.keyboard.press("+")
    page.until(lambda: held, "the question for another frame")
    page.page.wait_for_timeout(300)
    assert 0 < max(lossy_in_lanes(page), default=0) <= 6
    for request in held:
        request.continue_()


def test_the_pointer_gets_the_loss_that_is_drawn_there(page_of):
    """A hatch lies over a part of the band, and the axis over lanes that are scrolled away."""
    spans = [
        row(stream=str(stream), seq=n, offset=1000 * stream + n, start=STEP * n, end=STEP * n + STEP // 2, name="step")
        for stream in range(40)
        for n in range(1000)
        if not 500 < n < 521 and n != 523
    ]  # fmt: skip
    gaps = [
        gap(count, n, stream=str(stream), offset=1000 * stream + n)
        for stream in range(40)
        for count, n in [(20, 501), (1, 523)]
    ]
    page = page_of([clocked(epoch=EPOCH), *spans, *gaps])
    drawn(page)
    box = page.page.locator("canvas.lanes").bounding_box()
    left, scale = box["x"] + 184, (box["width"] - 184) / 1040 / STEP

    def said(time, y):
        page.page.mouse.move(left + (time + 20 * STEP) * scale, box["y"] + y)
        page.page.wait_for_timeout(100)
        return page.text(".status .hover")

    texts = [said(STEP * n, 105) for n in range(502, 520, 2)]
    assert all(each.startswith("20 events missing") for each in texts), texts
    assert "of the events missing here, about 1 of" in said(STEP * 525, 105)
    page.go("/timeline?y=67")
    page.page.wait_for_timeout(300)
    assert said(STEP * 525, 35) == ""


BAR = "canvas.rangebar"
BAR_ASKS = "**/api/v1/frame?*pixels=640&*"
"""The questions of the bar, which is 1280 pixels wide. A column has two."""


def bar(page, state):
    page.until(page.page.locator(f"{BAR}[data-state={state}]").count, f"the bar {state}")


def test_the_bar_has_the_losses_of_all_lanes(page_of):
    rows = [
        row(stream=str(n), seq=seq, offset=10 * n + seq, start=n * STEP, end=n * STEP + STEP, name="step")
        for n in range(1000)
        for seq in (0, 2)
    ]  # fmt: skip
    page = page_of([clocked(epoch=EPOCH), *rows, gap(1, 1, stream="900")])
    bar(page, "read")
    assert page.lossy_columns(BAR)


def test_an_event_with_many_members_counts_once_where_a_share_is_missing(page_of):
    """Every second event is missing."""
    members = {f"member {n}": n for n in range(9)}
    values = [
        row(
            "counter",
            seq=n,
            offset=10 * n,
            start=STEP * n,
            name="queues",
            attributes={"args": members},
        )
        for n in range(0, 2000, 2)
    ]
    page = page_of([clocked(epoch=EPOCH), *values, *(gap(1, n) for n in range(1, 2000, 2))])
    bar(page, "read")
    assert statistics.median(page.lossy_pixels(BAR).values()) > 12


def test_the_bar_shows_the_session_that_was_chosen_last(page_of):
    lossy = [
        clocked(session="a", epoch=EPOCH),
        *steps("a", 5),
        gap(4, 5, session="a"),
        row(session="a", seq=9, offset=99, start=STEP * 20, end=STEP * 21),
    ]
    page = page_of([*lossy, clocked(session="b", epoch=EPOCH), *steps("b")])
    bar(page, "read")
    held = []

    def hold(request):
        held.append(request)

    page.page.route(f"{BAR_ASKS}%22a%22*", hold)
    page.go("/timeline?source=sim&session=a")
    page.until(lambda: held, "the question for the first session")
    bar(page, "reading")
    assert page.lossy_columns(BAR) == []
    page.go("/timeline?source=sim&session=b")
    bar(page, "read")
    for request in held:
        request.continue_()
    page.page.wait_for_timeout(500)
    assert page.lossy_columns(BAR) == []


def test_a_bar_that_could_not_be_read_says_so_until_it_is_read(viewers, open_page, tmp_path):
    store = make(tmp_path / "store", [clocked(epoch=EPOCH), *steps("a")])
    viewers.append(Viewer("--store", store))
    page = open_page(viewers[-1], "#/timeline")
    bar(page, "read")
    page.expected.append("Failed to load resource")
    page.page.route(BAR_ASKS, lambda request: request.abort(), times=1)
    page.go("/timeline?source=sim&session=a")
    bar(page, "failed")
    assert "Not read: the viewer does not answer" in page.page.locator(BAR).get_attribute(
        "aria-label"
    )
    drawn(page)
    commit(store, steps("a")[:1])
    bar(page, "read")


def test_sessions_whose_ids_begin_alike_have_titles_that_differ(page_of):
    ids = ["1a22a2271f7f-0001", "1a22a2271f7f-0002"]
    page = page_of(
        [row for each in ids for row in (clocked(session=each, epoch=EPOCH), *steps(each))]
    )
    page.until_text(".status", "2 lanes")
    drawn(page)
    titles = page.page.get_by_label("Session").locator("option").all_inner_texts()
    assert titles[1:] == [f"sim · {each}" for each in ids]
