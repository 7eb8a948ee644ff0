"""Test tables whose answers come late, in another order, or not at all, in Chromium."""

from __future__ import annotations

import threading

from tests.export.traces import EPOCH
from tests.query.tables import clocked, make, row
from tests.view.browser.pages import PHONE
from tests.view.viewer import Viewer

STREAMS = "**/api/v1/streams?*"


def viewer_of(path, *streams):
    rows = [row(stream=name, start=1, end=5_000, name="step") for name in streams]
    return Viewer("--store", make(path / "store", [clocked(epoch=EPOCH), *rows]))


def hold(page, part=""):
    """Keep requests for streams whose address has `part` from the viewer. Return the kept requests, and a function
    that lets all of them go on."""
    kept, seen = [], threading.Event()

    def handle(route):
        if part in route.request.url and not seen.is_set():
            kept.append(route)
        else:
            route.continue_()

    def release():
        seen.set()
        for route in kept:
            route.continue_()

    page.page.route(STREAMS, handle)
    return kept, release


def test_a_view_may_be_left_while_its_table_waits(open_page, tmp_path):
    viewer = viewer_of(tmp_path, "a")
    page = open_page(viewer, "#/notes")
    page.until(lambda: page.page.locator("main[data-view=notes]").count(), "notes")
    kept, release = hold(page)
    page.go("/overview")
    page.until(lambda: kept, "a question for streams")
    page.go("/notes")
    page.until(lambda: page.page.locator("main[data-view=notes]").count(), "notes")
    with page.page.expect_response(STREAMS):
        release()
    page.page.wait_for_timeout(500)
    page.close()
    assert viewer.end() == (0, "")


def test_a_late_answer_to_an_earlier_search_is_not_shown(open_page, tmp_path):
    viewer = viewer_of(tmp_path, "first", "second")
    page = open_page(viewer, "#/overview")
    page.until_text(".grid", "first")
    kept, release = hold(page, "search=fir")
    search = page.page.get_by_label("Search streams")
    search.fill("fir")
    page.until(lambda: kept, "the first search")
    search.fill("sec")
    page.until(lambda: "search=sec" in page.hash, "the second search in the address")
    with page.page.expect_response(lambda response: "search=fir" in response.url):
        release()
    page.until(lambda: "first" not in page.text(".grid"), "the second search's streams")
    page.page.wait_for_timeout(500)
    assert "second" in page.text(".grid")
    assert "first" not in page.text(".grid")
    page.close()
    assert viewer.end() == (0, "")


def test_a_table_that_gets_no_answer_says_why(open_page, tmp_path):
    viewer = viewer_of(tmp_path, "a")
    page = open_page(viewer, "#/notes")
    page.expected += ["net::ERR_FAILED"]
    page.page.route(STREAMS, lambda route: route.abort())
    page.go("/overview")
    page.until_text("section[aria-label=Streams] .problem", "the viewer does not answer")
    page.page.unroute(STREAMS)
    page.page.get_by_label("Search streams").fill("a")
    page.until_text(".grid", "a")
    page.until(lambda: not page.page.locator(".problem").count(), "the problem to go")
    page.close()
    assert viewer.end() == (0, "")


def test_all_columns_can_be_scrolled_to_after_a_window_was_made_narrow(open_page, tmp_path):
    viewer = viewer_of(tmp_path, "a")
    page = open_page(viewer, "#/overview")
    page.until_text(".grid", "heph")
    more = page.page.locator(".grid[data-more]")
    assert not more.count()
    page.become("light", PHONE)
    page.until(more.count, "the mark of columns behind the edge")
    table = page.page.locator("regular-table")
    assert table.evaluate("table => table.scrollWidth > table.clientWidth")
    table.evaluate("table => { table.scrollLeft = 10_000; }")
    page.until(lambda: not more.count(), "the last column")
    page.until_text(".grid", "heph")
    page.close()
    assert viewer.end() == (0, "")


def test_sessions_whose_ids_begin_alike_are_told_apart_on_all_pages(open_page, tmp_path):
    first, last = "1a22a2271f7f-0001", "1a22a2271f7f-0002"
    streams = [(first, "a"), *(("other", f"m{n:03}") for n in range(220)), (last, "z")]
    rows = [
        row(session=session, stream=name, offset=n, start=1, end=5_000, name="step")
        for n, (session, name) in enumerate(streams)
    ]
    words = [clocked(session=each, epoch=EPOCH) for each in (first, "other", last)]
    viewer = Viewer("--store", make(tmp_path / "store", [*words, *rows]))
    page = open_page(viewer, "#/overview?sort=stream&down=no")
    page.until_text(".grid", "m001")
    page.page.locator("regular-table").evaluate("table => { table.scrollTop = 100_000; }")
    page.until_text(".grid", "m219")
    assert last in page.text(".grid")
    page.page.locator("regular-table").evaluate("table => { table.scrollTop = 0; }")
    page.until_text(".grid", "m001")
    assert first in page.text(".grid")
    page.go(f"/statistics?source=sim&session={first}")
    page.until_text("main[data-view=statistics]", f"sim · {first}")
    page.close()
    assert viewer.end() == (0, "")
