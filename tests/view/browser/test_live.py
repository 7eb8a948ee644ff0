"""A daemon that receives many events, of which some are lost, watched while it runs."""

from __future__ import annotations

import statistics

import numpy as np
import pytest

from tailrace.clock import SystemClock
from tests.query.tables import ask
from tests.system.collector import until
from tests.view.browser.programs import FLOW_STREAMS, flowing, simulate

SECOND = 10**9
BAND = 14
LOWEST = 1
LEAST_COLUMN, WIDEST_COLUMN = 3, 24
ENOUGH = 16
"""How many events columns have on average where they can be so wide."""

LEAST_BUCKETS = 500
LEAST_BEGINS = 100
GUTTER = 184
"""Width of the names left of the lanes (pixels), as in `gutter.js` for wide windows."""

STEP = """() => [document.querySelector('canvas.lanes').clientWidth, devicePixelRatio]"""


class Frames:
    """The answers with frames of lanes that a page has got."""

    def __init__(self, page):
        self._page = page
        self._waiting = []
        self._newest = 0
        self.lags = []
        self.lengths = []
        page.page.on("response", self._note)

    def _note(self, response):
        if "/api/v1/frame?" in response.url:
            self._waiting.append((response, SystemClock().wall_ns()))

    def move(self):
        """Check the frames that came since the last call. Return whether one has newer events than all before."""
        assert not self._page.page.locator(".message[data-state=failed]").count()
        before = self._newest
        while self._waiting:
            response, came = self._waiting.pop(0)
            self._check(response.json())
            self.lags.append((came - self._newest) / SECOND)
        return self._newest > before

    def _check(self, frame):
        length = int(frame["to"]) - int(frame["from"])
        begins = frame["spans"]["begin"]
        assert frame["bucket"] <= length // LEAST_BUCKETS
        assert len(set(begins)) > LEAST_BEGINS
        self.lengths.append(length)
        self._newest = max(self._newest, int(frame["from"]) + max(begins))


@pytest.mark.parametrize(
    ("rate", "moves"),
    [(4_000, 3), pytest.param(50_000, 40, marks=pytest.mark.slow)],
)
def test_a_live_timeline_follows(live_viewer, open_page, collector, rate, moves, record_property):
    with flowing(collector.address("tcp"), rate) as flow:
        until(lambda: live_viewer.get("overview")["sources"], "the first events")
        page = open_page(live_viewer, "#/timeline?follow=1")
        page.until(page.page.locator(".message[data-state=drawn]").count, "a drawing")
        frames = Frames(page)
        for _ in range(moves):
            page.until(frames.move, "a frame with newer events")
        assert frames.lengths[-1] > frames.lengths[0], "a window of all events grows with them"
        page.until(lambda: flow.burst_over, "the second in which most events are lost")
    record_property("lag_median_s", statistics.median(frames.lags))
    record_property("lag_most_s", max(frames.lags))

    until(lambda: missing(collector.store) == flow.left_out, "all losses in the table")
    check_losses(page, collector.store)


def test_nothing_is_said_of_the_rate_of_a_collector_that_was_killed(
    live_viewer, open_page, collector
):
    simulate("tcp://{}:{}".format(*collector.address("tcp")), steps=5)
    page = open_page(live_viewer, "#/overview")
    arriving = "section[aria-label=Arriving]"
    page.until_text(arriving, "No event arrived in the last")
    page.until_text(arriving, "0 events/s now")
    collector.kill()
    page.until_text(arriving, "was killed")
    text = page.text(arriving)
    assert "events/s" not in text
    assert "No event arrived" not in text


def missing(store):
    (row,) = ask(store, "SELECT coalesce(sum(remaining), 0)::BIGINT AS missing FROM gaps")
    return row["missing"]


GAPS = """
SELECT g.stream, g.remaining, b.time AS begins, e.time AS ends
FROM gaps AS g
ASOF JOIN (SELECT stream, seq, time FROM spans) AS b ON g.stream = b.stream AND g.first > b.seq
ASOF JOIN (SELECT stream, seq, time FROM spans) AS e ON g.stream = e.stream AND coalesce(g.last, g.first) < e.seq
"""


COUNTS = (
    "SELECT stream, floor({column})::BIGINT AS place, count(*) AS spans FROM spans GROUP BY ALL"
)


def check_losses(page, store):
    """Compare the bands at the feet of the lanes with the shares that SQL gives, over all of time."""
    (span,) = ask(store, "SELECT min(time) AS first, max(time) AS last FROM spans")
    first, last = span["first"], span["last"]
    page.go(f"/timeline?from={first}&to={last}")
    page.until(lambda: "follow" not in page.hash, "the window")
    page.page.wait_for_timeout(1500)
    page.until(page.page.locator(".message[data-state=drawn]").count, "the drawing")
    shown = page.lossy_pixels()
    width = page.page.evaluate(STEP)[0] - GUTTER
    wanted = bands(store, first, last, width)
    found = np.array([shown.get(GUTTER + column, 0) for column in range(width)])
    near = np.abs(found - wanted) <= FLOW_STREAMS
    assert near.mean() > 0.97, (found.tolist(), wanted.tolist())
    assert wanted.max() > FLOW_STREAMS * LOWEST


def bands(store, first, last, width):
    """Return the sum of the heights of all bands, for each column of pixels."""
    log = int(np.log2((last - first) / width))
    step = max(LEAST_COLUMN, int(np.ceil(2**log * width / (last - first))))
    columns = -(-width // step)

    column = f"((time - {first}) * {width / step / (last - first)})::DOUBLE"
    here, lost = np.zeros((2, FLOW_STREAMS, columns + 1))
    for each in ask(store, COUNTS.format(column=column)):
        here[int(each["stream"]), each["place"]] = each["spans"]
    for gap in ask(store, GAPS):
        begin, end = (int((gap[each] - first) / (last - first) * width / step) for each in ("begins", "ends"))  # fmt: skip
        lost[int(gap["stream"]), begin : end + 1] += gap["remaining"] / (end - begin + 1)
    return sum(heights(*each, step)[:width] for each in zip(here, lost, strict=True))


def heights(here, lost, step):
    """Return the height of the band of one stream, for each column of pixels. Columns with few events are joined."""
    most = np.ceil(ENOUGH * np.count_nonzero(here + lost) / max((here + lost).sum(), 1))
    joined = int(max(1, min(WIDEST_COLUMN // step, most)))
    here, lost = (np.add.reduceat(each, range(0, len(each), joined)) for each in (here, lost))
    tall = np.maximum(LOWEST, np.round(BAND * lost / np.maximum(lost + here, 1)))
    return np.repeat(np.where(lost > 0, tall, 0), step * joined)
