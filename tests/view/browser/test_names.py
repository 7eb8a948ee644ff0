"""Names, groups, colours and the end of counters in Chromium: what a person sees of the programs of all formats."""

from __future__ import annotations

import re
from urllib.parse import parse_qs

import pytest

from tests.export.traces import EPOCH
from tests.query.tables import SECOND, clocked, gap, make, row, session
from tests.view.traced import of_all_formats
from tests.view.viewer import Viewer

MILLISECOND = 1_000_000


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    viewer = Viewer("--store", of_all_formats(tmp_path_factory.mktemp("traced")))
    yield viewer
    assert viewer.end() == (0, "")


@pytest.fixture
def page_of(open_page, tmp_path):
    """A function that opens a view of a store with these rows."""
    started = []

    def open_(rows, hash_="#/timeline"):
        started.append(Viewer("--store", make(tmp_path / f"store {len(started)}", rows)))
        page = open_page(started[-1], hash_)
        pages.append(page)
        return page

    pages = []
    yield open_
    for page in pages:
        page.close()
    for viewer in started:
        assert viewer.end() == (0, "")


def options(page, label):
    return page.page.get_by_label(label, exact=True).first.locator("option").all_inner_texts()


def hovered(page, x, y):
    box = page.page.locator("canvas.lanes").bounding_box()
    page.page.mouse.move(box["x"] + x, box["y"] + y)
    return page.text(".status .hover")


def headings(page):
    """Return what the status line says of the headings in sight, which are found by moving the pointer down."""
    box = page.page.locator("canvas.lanes").bounding_box()
    found = [hovered(page, 100, y) for y in range(45, int(box["height"]), 8)]
    return list(dict.fromkeys(each for each in found if each.endswith(" it")))


def test_sessions_have_names_in_the_select_and_in_the_headings(open_page, traced):
    page = open_page(traced, "#/timeline")
    page.until_text(".status", "lanes")
    clocks = options(page, "Clock")
    assert any("SoC X1" in each for each in clocks)
    titles = options(page, "Session")
    assert [each for each in titles if "solver" in each] != []
    assert len(set(titles)) == len(titles)
    assert any("python3 train.py" in each for each in titles)
    found = "\n".join(headings(page))
    assert "solver · " in found
    assert "Rank 0" in found


def test_sessions_of_one_name_are_told_apart_by_what_differs(open_page, traced):
    page = open_page(traced, "#/timeline")
    page.until_text(".status", "lanes")
    solvers = [each for each in options(page, "Session") if "solver" in each]
    assert len(solvers) == 2
    assert [any(f"revision {each}" in title for title in solvers) for each in ("4f2a", "77c1")] == [
        True,
        True,
    ]


def test_runs_of_one_name_are_told_apart_by_the_time_at_which_they_began(page_of):
    rows = []
    for number, name in enumerate("ab"):
        rows += [
            session("open", session=name, opened=EPOCH + number * SECOND),
            session("tailrace.session", session=name, process="solver"),
            clocked(session=name, epoch=EPOCH + number * SECOND),
            row(session=name, start=0, end=9, name="step"),
        ]
    page = page_of(rows)
    page.until_text(".status", "2 lanes")
    assert options(page, "Session")[1:] == [f"sim · solver · 2026-11-18 11:06:4{n}" for n in (0, 1)]


def test_the_threads_of_an_ovni_process_are_one_group_in_its_node(open_page, traced):
    (of_ovni, *_) = [each for each in traced.get("lanes")["lanes"] if each["format"] == "ovni"]
    page = open_page(traced, f"#/timeline?clock={of_ovni['axis']}")
    page.until(lambda: len(headings(page)) == 4, "two nodes with a process each")
    assert [each.split(" · ")[0] for each in headings(page)] == [
        "node1",
        of_ovni["source"],
        "node2",
        of_ovni["source"],
    ]
    assert "rank 0 · process 4100 · ovni · 3 lanes" in headings(page)[1]
    assert "rank 1 · process 5200 · ovni · 3 lanes" in headings(page)[3]


def test_ids_are_shown_on_demand(open_page, traced):
    page = open_page(traced, "#/timeline")
    page.until_text(".status", "lanes")
    page.page.keyboard.press("ArrowDown")
    page.page.keyboard.press("i")
    page.until_text(".details", "session id")
    ids = {each["session"] for each in traced.get("names")["sessions"]}
    assert any(each in page.text(".details") for each in ids)
    page.page.keyboard.press("Escape")
    assert page.page.locator(".details").is_hidden()


def test_tables_have_names_with_ids_behind_them(open_page, traced):
    page = open_page(traced, "#/overview?sort=stream&search=reader")
    page.until_text(".grid", "reader")
    assert {"Rank 0", "Rank 1"} <= set(re.split("[\\t\\n]", page.text(".grid")))
    ids = {f"session {each['session']}" for each in traced.get("names")["sessions"]}
    page.until(
        lambda: ids & {each.get_attribute("title") for each in page.page.locator(".grid td").all()},
        "the id at a cell",
    )
    page.go("/statistics?by=session")
    page.until_text(".grid", "Rank 0")
    page.go("/compare")
    choices = page.page.locator(".sides select").first.locator("option")
    page.until(lambda: any("revision 77c1" in each for each in choices.all_inner_texts()), "names")


def many_ranks(count=6, nodes=2):
    for rank in range(count):
        name = f"s{rank:02}"
        place = {"rank": rank, "node": f"n{rank * nodes // count}", "job": "7", "process": "solver"}
        yield clocked(session=name, epoch=EPOCH)
        yield session("tailrace.session", session=name, **place)
        for stream in ("0", "1"):
            for seq in range(3):
                start = seq * MILLISECOND
                yield row(
                    session=name,
                    stream=stream,
                    seq=seq,
                    offset=10 * seq,
                    start=start,
                    end=start + 500_000,
                    name="step",
                )


def test_groups_can_be_folded_and_the_address_has_it(page_of):
    page = page_of(list(many_ranks()))
    page.until_text(".status", "12 lanes")
    page.until(lambda: "n0" in "".join(headings(page)), "the headings")
    all_of_them = headings(page)
    assert next(each for each in all_of_them if each.startswith("n0 ")).startswith(
        "n0 · 3 processes · 6 lanes · 18 events"
    )
    page.page.keyboard.press("C")
    page.until(lambda: len(headings(page)) == 2, "the nodes alone")
    page.until(lambda: "folded=all" in page.hash, "the address")
    assert not page.page.locator(".message:visible").count()
    other = page.hash
    page.go("/overview")
    page.until_text(".grid", "solver")
    page.go(other)
    page.until(lambda: len(headings(page)) == 2, "the nodes alone")
    page.page.keyboard.press("/")
    page.page.keyboard.type("step")
    page.until_text(".details h2", "step")
    page.until(lambda: len(headings(page)) > 2, "the group of the match")
    page.page.keyboard.press("Escape")
    page.page.keyboard.press("Escape")
    page.page.keyboard.press("C")
    page.until(lambda: "folded" not in page.hash, "no folded group")
    page.until(lambda: headings(page) == all_of_them, "all headings")
    box = page.page.locator("canvas.lanes").bounding_box()
    page.page.mouse.click(box["x"] + 100, box["y"] + 55)
    page.until(lambda: len(headings(page)) == len(all_of_them) - 3, "the first node folded")


def lanes_shown(page):
    """Return the names of lanes in sight with their headings, from top to bottom."""
    box = page.page.locator("canvas.lanes").bounding_box()
    heights = range(45, int(box["height"]), 6)
    found = [re.split(" · session | · [^·]* % missing", hovered(page, 60, y))[0] for y in heights]
    return [each for each in dict.fromkeys(found) if " · stream " in each]


def lossy_lanes():
    """Return three processes: the first in the alphabet begins last, the second lost most."""
    rows = []
    for name, begin, lost in (("aa", 20, 0), ("bb", 10, 7), ("cc", 0, 2)):
        rows.append(clocked(session=name, epoch=EPOCH))
        for stream in ("1", "2"):
            mine = {"session": name, "stream": stream}
            rows += [
                row(seq=n + (n > 1) * lost, offset=10 * n + int(stream), start=(begin + n) * MILLISECOND,
                    end=(begin + n) * MILLISECOND + 900_000, name="step", **mine)
                for n in range(4)
            ]  # fmt: skip
            if lost and stream == "2":
                rows.append(gap(lost, 2, offset=15, **mine))
    return rows


def test_lanes_are_sorted_selected_and_pinned_and_the_address_has_it(page_of):
    page = page_of(lossy_lanes())
    page.until_text(".status", "6 lanes")
    by_name = page.until(lambda: lanes_shown(page), "the lanes")
    assert [each[6:8] for each in by_name[::2]] == ["aa", "bb", "cc"]
    order = page.page.get_by_label("Order of lanes")
    page.page.keyboard.press("o")
    order.select_option("loss")
    page.until(
        lambda: lanes_shown(page)[0] == "sim · bb · stream 2", "the lane with the largest loss"
    )
    assert [each[6:8] for each in lanes_shown(page)] == ["bb", "bb", "cc", "cc", "aa", "aa"]
    order.select_option("first")
    page.until(
        lambda: [each[6:8] for each in lanes_shown(page)[::2]] == ["cc", "bb", "aa"],
        "the first events",
    )
    page.page.locator("canvas.lanes").focus()
    page.page.keyboard.press("l")
    page.page.keyboard.type("AA")
    page.until_text(".status", "2 of 6 lanes · 9 events missing from the others")
    assert [each[6:8] for each in lanes_shown(page)] == ["aa", "aa"]
    page.page.keyboard.press("Escape")
    box = page.page.locator("canvas.lanes").bounding_box()
    page.page.mouse.click(box["x"] + 60, box["y"] + 105)
    page.until_text(".details h2", "stream 2")
    page.page.keyboard.press("Escape")
    page.page.keyboard.press("p")
    page.until(lambda: "pins=" in page.hash, "the pinned lane in the address")
    page.page.get_by_label("Filter lanes").fill("cc")
    page.until_text(".status", "3 of 6 lanes")
    shown = ["sim · aa · stream 2", "sim · cc · stream 1", "sim · cc · stream 2"]
    page.until(lambda: lanes_shown(page) == shown, "the pinned lane above the others")
    page.until(lambda: "lanes=cc" in page.hash and "sort=first" in page.hash, "the address")
    shared = page.hash
    page.go("/overview")
    page.until_text(".verdict h1", "")
    page.go(shared)
    page.until(lambda: lanes_shown(page) == shown, "the same lanes")
    page.page.get_by_label("Filter lanes").fill("no such lane")
    page.page.locator("canvas.lanes").focus()
    page.page.keyboard.press("p")
    page.until_text(".message", "No lane has this text")
    assert "9 events missing from the others" in page.text(".status")


def test_lanes_are_sorted_by_the_time_in_which_a_span_runs(page_of):
    """A lane of many short spans is less busy than one of few, and a span within another one adds nothing."""
    rows = [clocked(epoch=EPOCH)]
    for stream, count, length, inner in (("1", 9, 100, 0), ("2", 3, 900, 0), ("3", 2, 700, 8)):
        for n in range(count):
            start = n * MILLISECOND
            for size in [length] * (1 + inner):
                place = {"stream": stream, "seq": len(rows), "offset": len(rows), "name": "step"}
                rows.append(row(start=start, end=start + size * 1000, **place))
    page = page_of(rows, "#/timeline?sort=events")
    page.until_text(".status", "3 lanes")
    names = [f"sim · s · stream {stream}" for stream in "123"]

    def sorted_so(*order):
        shown = [names[each - 1].split(" · ")[-1] for each in order]
        page.until(
            lambda: [each.split(" · ")[-1] for each in lanes_shown(page)] == shown, f"{shown}"
        )

    sorted_so(3, 1, 2)
    held = []

    def hold(request):
        held.append(request)

    page.page.route("**/api/v1/statistics?*", hold)
    page.page.get_by_label("Order of lanes").select_option("busy")
    page.until_text(".status", "reading busy times")
    sorted_so(1, 2, 3)
    for request in held:
        request.continue_()
    sorted_so(2, 3, 1)
    assert "busy" not in page.text(".status")
    page.page.unroute("**/api/v1/statistics?*", hold)
    page.expected.append("Failed to load resource")
    page.page.route("**/api/v1/statistics?*", lambda request: request.abort())
    page.page.get_by_label("Order of lanes").select_option("events")
    sorted_so(3, 1, 2)
    page.page.get_by_label("Order of lanes").select_option("busy")
    page.until_text(".status", "not sorted, because the busy times cannot be read")
    sorted_so(1, 2, 3)


def test_pinned_lanes_stay_in_sight_where_one_scrolls(page_of):
    """Users can point at them there, and they show their losses. Pinned lanes beyond half of the height scroll."""
    lanes = 60
    rows = [clocked(epoch=EPOCH), gap(5, 2, stream="7", offset=9_999)]
    for n in range(lanes):
        for seq in (0, 1, 7):
            start = seq * MILLISECOND
            place = {"stream": str(n), "seq": seq, "offset": 10 * n + seq, "name": f"of {n}"}
            rows.append(row(start=start, end=start + MILLISECOND, **place))
    page = page_of(rows)
    page.until_text(".status", f"{lanes} lanes")
    canvas = page.page.locator("canvas.lanes")
    canvas.focus()

    def streams():
        return [int(each.split(" · stream ")[1]) for each in lanes_shown(page)]

    def pin(stream):
        page.page.keyboard.press("/")
        page.page.get_by_label("Search a name").fill(f"of {stream}")
        page.until_text(".details h2", f"of {stream}")
        page.page.keyboard.press("Escape")
        page.page.keyboard.press("Escape")
        before = page.hash
        page.page.keyboard.press("p")
        page.until(lambda: page.hash != before and "pins=" in page.hash, "the pin in the address")

    pin(7)
    page.page.keyboard.press("0")
    page.until(lambda: streams()[:2] == [7, 0], "the pinned lane on top")
    page.page.keyboard.press("PageDown")
    page.page.keyboard.press("PageDown")
    page.until(lambda: streams()[0] == 7 and streams()[1] > 20, "other lanes below the pinned one")
    assert page.lossy_columns(), "the loss of the pinned lane"
    assert "5 events missing" in hovered(page, 600, 80)
    box = canvas.bounding_box()
    page.page.mouse.click(box["x"] + 60, box["y"] + 80)
    page.until_text(".details h2", "stream 7")
    for _ in range(9):
        page.page.keyboard.press("PageDown")
    page.until(lambda: streams()[-1] == lanes - 1, "the last lane")
    page.page.keyboard.press("ArrowDown")
    page.page.keyboard.press("ArrowDown")
    page.until(
        lambda: streams()[:2] == [7, 0] and page.page.locator("[role=status]").count(),
        "the lanes below it",
    )
    pinned = {7, *range(20, 34)}
    for n in sorted(pinned - {7}):
        pin(n)
    page.page.keyboard.press("0")
    page.until(lambda: streams()[:3] == [7, 20, 21], "the pinned lanes")
    page.page.keyboard.press("PageDown")
    page.page.keyboard.press("PageDown")
    page.until(lambda: streams()[-1] not in pinned, "the other lanes")
    kept = [each for each in streams() if each in pinned]
    assert kept == sorted(pinned)[: len(kept)]
    assert 5 < len(kept) < len(pinned)


def test_the_legend_lists_the_names_in_sight(page_of):
    early = [
        row(seq=n, offset=n, start=n * MILLISECOND, end=n * MILLISECOND + 900_000, name="early")
        for n in range(5)
    ]
    late = [
        row(seq=n, offset=n, start=n * MILLISECOND, end=n * MILLISECOND + 900_000, name="late")
        for n in range(20, 25)
    ]
    mark = row("instant", seq=30, offset=99, start=24 * MILLISECOND, name="mark")
    page = page_of([clocked(epoch=EPOCH), *early, *late, mark])
    page.until_text(".legend", "late")
    assert page.text(".legend").split("\n") == ["early", "late", "instant"]
    page.go(f"/timeline?from={EPOCH}&to={EPOCH + 4 * MILLISECOND}")
    page.until(lambda: page.text(".legend") == "early", "the legend of what is in sight")
    name = page.page.locator(".legend button")
    name.click()
    page.until(lambda: name.get_attribute("aria-pressed") == "true", "the name to stand out")
    assert page.violations() == []


COLOUR_AT = """([x, y]) => {
  const canvas = document.querySelector('canvas.lanes');
  return [...canvas.getContext('2d').getImageData(x, y, 1, 1).data].slice(0, 3);
}"""
SWATCH = "() => getComputedStyle(document.querySelector('.legend .swatch')).backgroundColor"


def test_a_name_has_one_colour_in_all_runs_also_where_many_spans_are_one_mark(page_of):
    single = [row(start=0, end=90 * SECOND, name="solve")]
    many = [
        row(seq=n, offset=n, start=n * MILLISECOND, end=n * MILLISECOND + 999_000, name="solve")
        for n in range(90_000)
    ]
    colours = []
    for rows in (single, many):
        page = page_of([clocked(epoch=EPOCH), *rows])
        page.until_text(".legend", "solve")
        swatch = page.page.evaluate(SWATCH)
        box = page.page.locator("canvas.lanes").bounding_box()
        found = {
            tuple(page.page.evaluate(COLOUR_AT, [int(box["width"] * 0.7), y]))
            for y in range(70, 110)
        }
        colours.append(swatch)
        assert tuple(int(part) for part in swatch[4:-1].split(",")) in found
    assert colours[0] == colours[1]


def test_the_line_of_a_counter_ends_with_its_session(page_of):
    """The first session ended after a third of the time; a collector still expects more of neither."""
    rows = []
    for name, first in (("a", 0), ("b", 200)):
        rows.append(clocked(session=name, epoch=EPOCH))
        rows += [
            row(
                "counter",
                session=name,
                seq=n,
                offset=n,
                start=(first + n) * MILLISECOND,
                name="queue",
                attributes={"value": 5 + n % 2},
            )
            for n in range(100)
        ]
    page = page_of(rows)
    page.until_text(".status", "2 lanes")
    line = (11, 102, 109)
    columns = """([wanted, top, bottom]) => {
      const canvas = document.querySelector('canvas.lanes');
      const { data, width } = canvas.getContext('2d').getImageData(0, top, canvas.width, bottom - top);
      const found = [];
      for (let at = 0; at < data.length; at += 4) {
        if (wanted.every((each, part) => Math.abs(each - data[at + part]) < 12)) found.push((at / 4) % width);
      }
      return Math.max(-1, ...found);
    }"""
    last = page.until(
        lambda: max(page.page.evaluate(columns, [line, 70, 112]), 0),
        "the line of the first session",
    )
    box = page.page.locator("canvas.lanes").bounding_box()
    assert last < box["width"] * 0.55


def two_runs(one="aa", other="ab", count=20):
    """Return rows of two sessions. In the second one, each step takes twice as long."""
    rows = []
    for name, words in ((one, ("step", "old")), (other, ("step", "fresh"))):
        rows.append(clocked(session=name, epoch=EPOCH))
        rows += [
            row(
                session=name,
                seq=n,
                offset=n,
                start=n * MILLISECOND,
                end=n * MILLISECOND + (1 + (name == other)) * 1000,
                name=words[n % 2],
            )
            for n in range(count)
        ]
    return rows


def verdicts(page):
    cells = page.page.locator(".grid tbody tr").all_inner_texts()
    return [tuple(each.split("\t")[:2]) for each in cells if each.split("\t")[0].strip()]


def test_a_comparison_lists_new_and_gone_names_first_and_judges_noise(page_of):
    """If each step is repeated 10 times, noise cannot be judged; if it is 40 times, it can be."""
    page = page_of(two_runs(), "#/compare?a=0:aa&b=0:ab&figure=p50&threshold=10&exact=true")
    page.until_text(
        "section[aria-label=Differences] h2",
        "1 new: fresh; 1 gone: old; 1 name got slower: step",
    )
    page.until_text("section[aria-label=Differences]", "Noise is not judged")
    page.until_text(".grid", "grew")
    assert [verdict for verdict, _ in verdicts(page)] == ["new", "gone", "grew"]
    page.page.get_by_label("assume no noise").uncheck()
    page.page.get_by_role("button", name="Compare", exact=True).click()
    page.until_text(".grid", "undecided: few spans")
    page.until_text(
        "section[aria-label=Differences] h2",
        "1 new: fresh; 1 gone: old; nothing is known to have got slower by that much; 1 undecided: step",
    )
    answer = page.text("section[aria-label=Differences]")
    assert "3 groups: 1 new, 1 gone, 1 undecided because of few spans." in answer
    assert "cannot show noise that lasts as long as a run" in answer
    assert parse_qs(page.hash.partition("?")[2]).keys() == {"a", "b", "figure", "threshold"}

    page = page_of(two_runs(count=80), "#/compare?a=0:aa&b=0:ab&figure=p50&threshold=10")
    page.until_text("section[aria-label=Differences] h2", "1 name got slower: step")
    assert verdicts(page) == [("new", "fresh"), ("gone", "old"), ("grew", "step")]


def test_one_end_of_a_time_is_used_and_what_is_no_time_is_refused(page_of):
    """The id of the first session contains the sign that stands before times in the address."""
    rows = two_runs("a@1", "b")
    page = page_of(rows, "#/compare?a=0:a@1@-&b=0:b&figure=count&exact=true")
    page.until_text(".grid", "old")
    side = page.page.get_by_role("group", name="A, the run before")
    assert side.get_by_label("Session").input_value() == "a@1"
    begin, end = side.get_by_label("From (UTC)"), side.get_by_label("To (UTC)")

    def compared(steps, text):
        page.page.get_by_role("button", name="Compare", exact=True).click()
        page.until(lambda: parse_qs(page.hash.partition("?")[2])["a"] == [text], "the address")
        page.until(lambda: spans("step") == steps, "the spans of the time")

    def spans(name):
        rows = [each.split("\t") for each in page.page.locator(".grid tbody tr").all_inner_texts()]
        return next((int(row[2]) for row in rows if len(row) > 2 and row[1] == name), 0)

    compared(10, "0:a@1@-")
    begin.fill(str(EPOCH + 10 * MILLISECOND))
    compared(5, f"0:a@1@{EPOCH + 10 * MILLISECOND}-")
    begin.fill("")
    end.fill(str(EPOCH + 4 * MILLISECOND))
    compared(2, f"0:a@1@-{EPOCH + 4 * MILLISECOND}")
    before = page.hash
    begin.fill("12:30")
    page.page.get_by_role("button", name="Compare", exact=True).click()
    assert not begin.evaluate("element => element.validity.valid")
    page.page.wait_for_timeout(300)
    assert page.hash == before
