"""Long stretches of empty time in Chromium: drawn as breaks, in which no loss is hidden."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import parse_qs

import pytest

from tests.export.traces import EPOCH
from tests.query.tables import SECOND, clocked, commit, gap, make, row
from tests.view.viewer import Viewer

STEP = 1_000_000
DAY = 86_400 * SECOND
STEPS = 20
BREAK = 48
"""The width of a break in pixels."""


@pytest.fixture
def page_of(open_page, tmp_path):
    """A function that opens the timeline of some rows."""
    started = []

    def open_(rows, hash_="#/timeline", **options):
        store = make(tmp_path / f"store {len(started)}", rows)
        started.append((Viewer("--store", store), store))
        page = open_page(started[-1][0], hash_, **options)
        page.store = store
        pages.append(page)
        return page

    pages = []
    yield open_
    for page in pages:
        page.close()
    for viewer, _ in started:
        assert viewer.end() == (0, "")


def steps(name, begin, *, count=STEPS, seq=0, **values):
    return [
        row(
            seq=seq + n,
            offset=10 * (seq + n) + 1,
            start=begin + STEP * n,
            end=begin + STEP * n + STEP // 2,
            name=name,
            **values,
        )
        for n in range(count)
    ]


def two_runs(*more):
    """Return 20 ms of steps, and as many six days later."""
    return [clocked(epoch=EPOCH), *steps("early", 0), *more, *steps("late", 6 * DAY, seq=STEPS + 5)]


def asked(page):
    return {key: value[0] for key, value in parse_qs(page.hash.partition("?")[2]).items()}


def folded(page):
    """Wait until time is folded and drawn. Return the button that folds."""
    button = page.page.get_by_role("button", name="Fold empty time")
    page.until(
        lambda: button.is_visible() and button.get_attribute("aria-pressed") == "true", "the breaks"
    )
    page.until(page.page.locator(".message[data-state=drawn]").count, "the drawing")
    return button


def hovered(page, y=80):
    """Return what the status line says along a line of the lanes, without repeats, from left to right."""
    box = page.page.locator("canvas.lanes").bounding_box()
    found = []
    for x in range(190, int(box["width"]), 8):
        page.page.mouse.move(box["x"] + x, box["y"] + y)
        found.append((x, page.text(".status .hover")))
    return found


def broken(page):
    """Return the places along a line of the lanes that are said to be in a break."""
    return [x for x, text in hovered(page) if text.startswith("no event here for 6 d")]


def named_in_sight(page):
    """Select all time in sight. Return what the panel says of it."""
    page.page.keyboard.press("m")
    page.until_text(".details table", "")
    return page.text(".details table")


def test_two_runs_stand_beside_a_break_and_times_stay_true(page_of):
    page = page_of(two_runs())
    folded(page)
    line = hovered(page)
    places = [x for x, text in line if text.startswith("no event here for 6 d")]
    assert 0 < len(places) <= BREAK // 8 + 1
    assert places == list(range(places[0], places[-1] + 1, 8))
    early = [x for x, text in line if text.startswith("early · 500 µs")]
    late = [x for x, text in line if text.startswith("late · 500 µs")]
    assert max(early) < min(places) <= max(places) < min(late)
    assert len(early) > 30
    assert len(late) > 30
    first = next(text for _, text in line if text.startswith("late"))
    assert first.endswith(f"at {moment(EPOCH + 6 * DAY)}")
    named = named_in_sight(page)
    assert "early" in named
    assert "late" in named
    begin, end = map(int, page.until(lambda: asked(page).get("sel"), "the selection").split(","))
    assert begin < EPOCH
    assert end > EPOCH + 6 * DAY + STEP * STEPS - STEP // 2


def moment(time):
    """Return a time as the page writes it."""
    seconds, rest = divmod(time, SECOND)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest:09d}"


def test_a_break_is_opened_and_folded_again_and_the_address_has_it(page_of):
    page = page_of(two_runs())
    button = folded(page)
    places = broken(page)
    box = page.page.locator("canvas.lanes").bounding_box()
    page.page.mouse.click(box["x"] + places[len(places) // 2], box["y"] + 80)
    page.until(lambda: asked(page).get("empty") == "shown", "the state in the address")
    place = page.until(lambda: asked(page) if "from" in asked(page) else None, "the stretch")
    assert int(place["from"]) < EPOCH + DAY
    assert int(place["to"]) > EPOCH + 5 * DAY
    assert button.get_attribute("aria-pressed") == "false"
    assert broken(page) == []
    page.page.keyboard.press("e")
    page.until(lambda: "empty" not in asked(page), "folded time in the address")
    folded(page)
    page.page.keyboard.press("0")
    page.until(lambda: broken(page), "the break")
    shared = page.hash
    page.go("/overview")
    page.until_text(".verdict h1", "")
    page.go(shared)
    folded(page)
    assert broken(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_gap_in_a_break_is_drawn_there(page_of, scheme):
    """The gap begins before the break and ends behind it."""
    lone = row(seq=STEPS + 4, offset=10 * (STEPS + 4), stream="2", start=0, end=100, name="other")
    later = row(
        seq=STEPS + 7,
        offset=999,
        stream="2",
        start=6 * DAY + 5 * STEP,
        end=6 * DAY + 6 * STEP,
        name="other",
    )
    lost = gap(2, STEPS + 5, stream="2", offset=950)
    page = page_of(two_runs(lone, later, lost), scheme=scheme)
    folded(page)
    places = broken(page)
    lossy = page.until(page.lossy_columns, "the gap")
    assert [x for x in lossy if places[0] + 8 <= x <= places[-1] - 8]
    assert "2 events missing" in "".join(
        text for x, text in hovered(page, y=80 + 26) if x in places
    )
    bar = page.until(lambda: page.lossy_columns("canvas.rangebar"), "the gap in the bar")
    assert bar[-1] - bar[0] >= BREAK


def test_events_that_come_into_a_break_are_shown(page_of):
    page = page_of(two_runs())
    folded(page)
    commit(page.store, steps("between", 3 * DAY, seq=100))

    def shown():
        return any("between" in text for _, text in hovered(page))

    page.until(shown, "the events of the third day")
    page.until(lambda: len(broken(page)) == 0, "breaks of three days")


def test_the_newest_events_come_into_sight_first_if_they_would_be_a_sliver(page_of):
    old = [clocked(session="a", epoch=EPOCH), *steps("of old", 0, count=900, session="a")]
    new = [clocked(session="b", epoch=EPOCH), *steps("of late", 2000 * DAY, session="b")]
    page = page_of([*old, *new])
    page.until_text(".status", "the newest events; 0 shows earlier ones too")
    folded(page)
    assert "of old" not in named_in_sight(page)
    page.page.keyboard.press("0")
    page.until(lambda: "the newest" not in page.text(".status"), "all of time")
    assert "of old" in named_in_sight(page)
    page.page.get_by_label("Session").select_option(index=1)
    page.until(lambda: asked(page).get("session") == "a", "the session in the address")
    page.until_text(".status", "1 lane")
    page.until(lambda: "of old" in named_in_sight(page), "the session in sight")
    assert not page.page.get_by_role("button", name="Fold empty time").is_visible()


def test_a_gap_inside_a_break_is_found_with_a_key(page_of):
    lost = [
        *steps("lone", 2 * DAY, count=1, seq=STEPS),
        gap(3, STEPS + 1, offset=10 * STEPS + 5),
        *steps("lone", 2 * DAY + 10 * STEP, count=1, seq=STEPS + 4),
    ]
    page = page_of(two_runs(*lost))
    folded(page)
    page.page.keyboard.press("g")
    page.until(lambda: "from" in asked(page), "the gap")
    page.until(lambda: max(page.lossy_pixels().values(), default=0) > 6, "the hatch")
