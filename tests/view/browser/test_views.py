"""Test what a person sees of two runs of a real program: each view, in Chromium."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from tests.export.traces import EPOCH
from tests.query.tables import SECOND, clocked, gap, make, row, session
from tests.view.browser.conftest import LOST, runs
from tests.view.browser.pages import PHONE, SIZE
from tests.view.browser.programs import STEP
from tests.view.viewer import Viewer

VIEWS = ["overview", "timeline", "statistics", "compare?a=0:&b=0:", "sql", "notes"]


def test_the_overview_says_first_what_is_missing(open_page, runs_viewer):
    page = open_page(runs_viewer)
    page.until_text(".verdict h1", f"{LOST} events are missing")
    assert page.page.locator(".verdict[data-state=lacking]").count() == 1
    page.until_text(".losses", "the client discarded events")
    page.until_text(".head", " in 1 file")
    page.until_text(".grid", "tcp")


@pytest.mark.parametrize(
    ("spans", "lost", "title", "part", "cell"),
    [
        (0, [5], "5 events are missing", "0.0 % of 5 events are here", "5"),
        (3, [None], "Missing: an unknown number, in 1 gap", "3 events are here, of an unknown number", "unknown"),
        (3, [1, None], "1 event is missing, and more in 1 gap of unknown size", "at most 75.0 % of all events are here: 3 of 4 or more", "1 + unknown"),
    ],
)  # fmt: skip
def test_the_overview_takes_no_unknown_number_for_zero(
    viewer_of, open_page, tmp_path, spans, lost, title, part, cell
):
    rows = [session("open", opened=EPOCH), clocked(epoch=EPOCH)]
    rows += [row("span", seq=at, start=at, end=at + 1, offset=at) for at in range(spans)]
    rows += [gap(count, 100 if count else None, offset=99) for count in lost]
    page = open_page(viewer_of(make(tmp_path / "store", rows)))
    page.until_text(".verdict h1", title)
    page.until_text(".verdict p", part)
    assert page.page.locator(".verdict[data-state=lacking]").count() == 1
    page.until_text(".grid", "heph")
    for table in ("[aria-label='Streams that lack most']", ".grid"):
        cells = page.page.locator(f"{table} td").all_inner_texts()
        assert cell in cells, (table, cells)
    page.become("light", PHONE)
    assert page.page.locator(".losses").evaluate("each => each.scrollWidth <= each.clientWidth")


@pytest.mark.parametrize("view", VIEWS)
def test_a_browser_loads_each_module_of_a_view_once_and_all_at_once(open_page, runs_viewer, view):
    page = open_page(runs_viewer, f"#/{view}")
    page.until(page.page.locator(f"#main[data-view={view.partition('?')[0]}] *").count, "the view")
    links = page.page.locator("link[rel=modulepreload]")
    linked = links.evaluate_all("links => links.map(each => each.href)")
    assert sorted(each for each in page.requests if each.endswith(".js")) == sorted(linked)


@pytest.mark.parametrize(("view", "question"), [("overview", "overview"), ("timeline", "lanes")])
def test_the_first_question_of_a_view_waits_for_nothing_and_is_asked_once(
    open_page, runs_viewer, view, question
):
    page = open_page(runs_viewer)
    page.until(page.page.locator(".verdict[data-state]").count, "the overview")
    held = []
    page.page.route("**/api/v1/store", lambda route: held.append(route))  # noqa: PLW0108 - Playwright marks it
    page.go(f"/{view}")
    page.requests.clear()
    page.page.reload()

    def asked():
        return [each for each in page.requests if each.endswith(f"/api/v1/{question}")]

    page.until(lambda: held and asked(), "both questions")
    held.pop().continue_()
    page.until(
        page.page.locator(f"#main[data-view={view}] .body, .message[data-state=drawn]").count,
        "the view",
    )
    assert len(asked()) == 1


def test_statistics_have_a_table_a_flame_graph_and_durations(open_page, runs_viewer):
    page = open_page(runs_viewer, "#/statistics")
    page.until_text(".grid", "assemble")
    page.until(
        lambda: page.page.get_by_role("img", name=re.compile("Flame graph: step")).count(),
        "the flame graph",
    )
    page.until(
        lambda: page.page.get_by_role(
            "img", name=re.compile("Durations of .* over time, ")
        ).count(),
        "durations",
    )
    link = page.page.get_by_role("link", name="CSV").get_attribute("href")
    answer = page.page.request.get(page.page.url.split("#")[0] + link)
    assert answer.text().splitlines()[0].startswith("name,")


def test_figures_are_shown_before_self_times_are_read(open_page, runs_viewer):
    page = open_page(runs_viewer, "#/overview")
    held = []

    def hold(request):
        held.append(request)

    page.page.route("**/api/v1/statistics?*self=true*", hold)
    page.go("/statistics")
    page.until_text(".grid", "solve")
    page.until(lambda: held, "the question for self times")
    assert "reading …" in page.text(".grid")
    for request in held:
        request.continue_()
    page.until(lambda: "reading …" not in page.text(".grid"), "the self times")


def test_statistics_are_intervals_where_spans_are_missing(viewer_of, open_page, tmp_path):
    """The second session lacks two spans; the first one lacks nothing."""
    rows = []
    for name in ("aa", "ab"):
        mine = {"session": name}
        rows += [session("open", opened=EPOCH, **mine), clocked(epoch=EPOCH, **mine)]
        rows += [
            row(
                "span", name="step", seq=at, start=at * SECOND, offset=at,
                end=at * SECOND + (at + 1) * 100_000, **mine
            )
            for at in range(20)
        ]  # fmt: skip
    rows.append(gap(2, 20, session="ab", offset=99))
    viewer = viewer_of(make(tmp_path / "store", rows))
    page = open_page(viewer, "#/statistics?by=session&session=aa")
    page.until_text(".grid", "1 ms")
    assert not page.page.locator(".grid td[data-loss]").count()
    assert "unknown" not in page.text(".grid")
    page.go("/statistics?by=session&session=ab")
    page.until_text(".grid", "≥")
    page.until(lambda: "reading …" not in page.text(".grid"), "the self times")
    cells = [
        text.replace("\N{EN DASH}", "...")
        for text in page.page.locator(".grid td").all_inner_texts()
    ]
    assert cells[1:] == [
        "20...22", "0", "≥ 21 ms", "unknown", "≤ 100 µs", "900 µs...1.1 ms", "1.8...2 ms",
        "≥ 1.9 ms", "≥ 2 ms", "≥ 2 ms",
    ]  # fmt: skip
    titles = [
        cell.get_attribute("title") for cell in page.page.locator(".grid td").all() if "≥" in cell.inner_text()
    ]  # fmt: skip
    assert titles[0] == "at least 21 ms, because spans are missing"
    page.until_text("section[aria-label='By group']", "≥ and ≤ are bounds")
    assert viewer.get("sessions")["sessions"][0]["ends"] is None
    page.go("/compare?a=0:aa&b=0:ab&figure=count")
    page.until_text("section[aria-label=Differences] h2", "undecided: step")


def test_durations_show_where_events_are_missing(viewer_of, open_page, tmp_path):
    """Spans of 9 to 12 ms begin each second. Events are missing after 40 of 100 seconds, for 20 seconds, and from a
    session whose times are unknown."""
    starts = [at for at in range(101) if not 40 < at < 60]
    rows = [clocked(epoch=EPOCH), clocked(session="b")]
    rows += [
        row(name="step", seq=at, offset=at, start=at * SECOND, end=at * SECOND + (at * 7 % 4 + 9) * 10**6)
        for at in starts
    ]  # fmt: skip
    rows += [row(name="point", stream="2", seq=at, offset=at, start=at, end=at) for at in range(3)]
    rows += [gap(19, 41, offset=41), gap(5, 1, session="b", offset=1)]
    page = open_page(viewer_of("--store", make(tmp_path / "store", rows)), "#/statistics")
    title = "Durations of step over time, 82 spans of 9 ms to 12 ms; events are missing in 41 of 200 columns"
    canvas = page.page.get_by_role("img", name=title)
    page.until(canvas.count, "the heat map")
    legend = page.text("section[aria-label=Durations] .legend")
    assert "events are missing" in legend
    assert "1 gap at other or unknown times" in legend
    page.page.wait_for_timeout(300)
    lossy = page.lossy_columns("section[aria-label=Durations] canvas")
    box = canvas.bounding_box()
    plot = box["width"] - 72
    assert lossy[0] == pytest.approx(72 + 0.396 * plot, abs=plot / 100)
    assert lossy[-1] == pytest.approx(72 + 0.594 * plot, abs=plot / 100)
    place = {"x": lossy[len(lossy) // 2], "y": 245}
    canvas.hover(position=place)
    page.until_text("section[aria-label=Durations] .tip", "events are missing here")
    canvas.click(position=place)
    page.until(lambda: page.hash.startswith("/timeline?from="), "the timeline")
    assert page.hash.endswith("&q=step")
    page.go("/statistics?name=point")
    canvas = page.page.get_by_role("img", name="Durations of point over time, 3 spans of 0")
    page.until(canvas.count, "the heat map of spans without a duration")


def test_a_comparison_names_what_got_slower(open_page, runs_viewer):
    one, other = (each["session"] for each in runs(runs_viewer))
    page = open_page(
        runs_viewer,
        f"#/compare?a={quote(f'0:{one}')}&b={quote(f'0:{other}')}&figure=p50&threshold=10",
    )
    headline = "section[aria-label=Differences] h2"
    page.until_text(headline, "1 name got slower: solve (+145.0%); 1 undecided: checkpoint")
    page.until_text(".grid", "grew")
    assert "B: 5 missing" in page.text("section[aria-label=Differences] header")
    page.become("light", (1200, 620))
    bottom = page.page.locator(".grid td", has_text="undecided").bounding_box()
    assert bottom["y"] + bottom["height"] <= 620, "all verdicts are in sight"


def test_times_are_picked_or_typed_to_the_nanosecond(open_page, runs_viewer):
    one, other = runs(runs_viewer)
    page = open_page(
        runs_viewer,
        f"#/compare?a={quote('0:' + one['session'])}&b={quote('0:' + other['session'])}&figure=count",
    )
    page.until_text(".grid", "solve")
    choices = (
        page.page.get_by_label("Session", exact=True).first.locator("option").all_inner_texts()
    )
    assert len(set(choices)) == len(choices)
    assert all(len(re.findall(r":\d\d:\d\d", each)) == 1 for each in choices[1:])
    begins = int(one["begins"])
    calendar = page.page.locator("input[type=datetime-local]").first
    assert calendar.get_attribute("min") == page.page.evaluate(
        "ms => new Date(ms).toISOString().slice(0, 23)", begins // 1_000_000
    )
    field = page.page.get_by_label("From (UTC)").first
    field.fill("2026-02-31 00:00")
    page.page.get_by_role("button", name="Compare").click()
    assert not page.page.evaluate("document.querySelector('input:invalid') === null")
    calendar.evaluate("each => { each.value = each.max; each.dispatchEvent(new Event('change')); }")
    page.page.get_by_role("button", name="Compare").click()
    last = (int(one["ends"]) // 1_000_000 + 1) * 1_000_000
    page.until(lambda: f"{last}-" in page.hash, "the picked time in the address")
    field.fill(str(begins + 1))
    page.page.get_by_role("button", name="Compare").click()
    page.until(lambda: f"{begins + 1}-" in page.hash, "the nanoseconds in the address")
    page.until(lambda: field.input_value().endswith(f"{(begins + 1) % 10**9:09}"), "the time")


def test_a_view_that_loads_late_does_not_replace_the_one_gone_back_to(open_page, runs_viewer):
    page = open_page(runs_viewer, "#/notes")
    page.until(page.page.locator("main[data-view=notes]").count, "the notes")
    held = []

    def hold(route):
        held.append(route)

    page.page.route("**/views/sql.js", hold)
    page.go("/sql")
    page.until(lambda: held, "the request for another view")
    page.go("/notes?from=1&to=2")
    page.page.wait_for_timeout(200)
    with page.page.expect_response("**/views/sql.js"):
        held[0].continue_()
    page.page.wait_for_timeout(500)
    assert page.page.locator("main").get_attribute("data-view") == "notes"


def test_sql_answers_and_refuses(open_page, runs_viewer):
    statement = "SELECT name, count(*) AS n FROM spans GROUP BY name ORDER BY name"
    page = open_page(runs_viewer, f"#/sql?sql={quote(statement)}")
    page.until_text(".grid", "assemble")
    page.expected += ["status of 4"]
    page.go(f"/sql?sql={quote('DROP VIEW spans')}")
    page.until(lambda: page.page.locator(".problem").count(), "the refusal")
    reading = quote("SELECT * FROM read_csv('/etc/passwd')")
    page.go(f"/sql?sql={reading}")
    page.until(
        lambda: "passwd" in page.hash and page.text("p[role=status]") == "Refused.", "the refusal"
    )


def test_a_note_is_kept_and_deleted(open_page, runs_viewer, run_of):
    page = open_page(runs_viewer, f"#/notes?from={run_of.first}&to={run_of.first + STEP}")
    page.page.get_by_label("Note", exact=True).fill("<b>here</b> it began")
    page.page.get_by_role("button", name="Keep the note").click()
    page.until_text(".notes", "<b>here</b> it began")
    page.page.get_by_role("button", name="Delete").click()
    page.until_text(".notes", "No note yet")


@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing(open_page, runs_viewer, view):
    """Nor once the page is dark, and once it is as small as a phone's."""
    page = open_page(runs_viewer, f"#/{view}")
    page.until(lambda: page.page.locator("main[data-view]").count(), "the view")
    page.page.wait_for_load_state("networkidle") if view == "notes" else page.page.wait_for_timeout(
        1500
    )
    for scheme, size in [("light", SIZE), ("dark", SIZE), ("light", PHONE)]:
        page.become(scheme, size)
        assert page.violations() == [], (scheme, size)
        assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), size


def test_ranks_nodes_and_jobs_are_chosen_in_every_view_and_stand_in_the_address(
    open_page, tmp_path
):
    places = {"a": (0, "n1"), "b": (1, "n1"), "c": (2, "n2")}
    rows = [
        each
        for name, (rank, node) in places.items()
        for each in (
            clocked(session=name, epoch=EPOCH),
            session("tailrace.session", session=name, rank=rank, node=node, job="7"),
            row(session=name, stream=f"of {name}", start=1, end=5_000, name=f"step of {name}"),
        )
    ]
    viewer = Viewer("--store", make(tmp_path / "store", rows))

    def choose(page, kind, value):
        page.page.get_by_label(kind, exact=True).first.select_option(value)
        page.until(lambda: f"{kind.lower()}={value}" in page.hash, "the choice in the address")

    page = open_page(viewer, "#/overview")
    page.until_text(".grid", "of c")
    choose(page, "Rank", "1")
    page.until(lambda: "of a" not in page.text(".grid"), "the streams of the rank")
    assert "of b" in page.text(".grid")
    page.go("/timeline")
    page.until_text(".status", "3 lanes")
    choose(page, "Node", "n1")
    page.until_text(".status", "2 lanes")
    page.go("/timeline?rank=2")
    page.until_text(".status", "1 lane")
    assert page.page.get_by_label("Rank", exact=True).input_value() == "2"
    page.go("/statistics?rank=0")
    page.until_text(".grid", "step of a")
    assert "step of b" not in page.text(".grid")
    choose(page, "Rank", "1")
    page.until_text(".grid", "step of b")
    page.go("/compare?a=0:&b=0:&a_rank=0&b_rank=1&figure=count")
    page.until_text(".grid", "step of a")
    assert "step of c" not in page.text(".grid")
    page.close()
    assert viewer.end() == (0, "")


def test_a_store_without_jobs_offers_none(open_page, runs_viewer):
    page = open_page(runs_viewer, "#/timeline")
    page.until_text(".status", "lanes")
    assert page.page.get_by_label("Session", exact=True).count() == 1
    assert page.page.locator(".places select:visible").count() == 0
