"""A malicious trace: markup, huge texts, right-to-left marks, control characters. Answers stay bounded and are JSON."""

from __future__ import annotations

import json

import pytest

from tailrace.view.answers import ANSWER_BYTES
from tests.query.tables import SECOND, clocked, gap, make, row, session
from tests.view.viewer import Viewer

EPOCH = 1_795_000_000 * SECOND
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(1)>"
EVIL = f"{MARKUP}\u202e\u2066\x00\x1b[2J\x9b\u2028\r\n\"'\ud7ff"
HUGE = "ä" * 5_000_000


@pytest.fixture(scope="module")
def evil():
    return {"source": f"s{EVIL}", "session": f"x{EVIL}"}


@pytest.fixture(scope="module")
def viewer(tmp_path_factory, evil):
    rows = [
        session("open", opened=EPOCH, peer=EVIL, group=EVIL, producer={EVIL: EVIL}, **evil),
        clocked(epoch=EPOCH, **evil),
        row("span", name=f"n{EVIL}", seq=0, start=0, end=9, offset=1, stream=EVIL, attributes={EVIL: HUGE}, **evil),
        row("span", name=HUGE, seq=1, start=2, end=5, offset=2, stream=EVIL, category=HUGE, **evil),
        row("instant", name="deep", seq=2, start=3, offset=3, stream=EVIL, attributes="[" * 5000, **evil),
        row("counter", name="c", seq=3, start=4, offset=4, stream=EVIL, attributes={"value": 1e308}, **evil),
        gap(2, 5, reason=f"r{EVIL}", offset=5, stream=EVIL, **evil),
    ]  # fmt: skip
    viewer = Viewer(make(tmp_path_factory.mktemp("evil") / "store", rows))
    yield viewer
    assert viewer.end() == (0, "")


QUESTIONS = [
    ("overview", {}),
    ("streams", {}),
    ("streams", {"search": "<SCRIPT>"}),
    ("sessions", {}),
    ("lanes", {}),
    ("frame", {"from": EPOCH, "to": EPOCH + 10, "pixels": 100}),
    ("gaps", {}),
    ("search", {"name": "<script>"}),
    ("statistics", {"by": ["name", "category", "stream"]}),
    ("statistics", {"by": [f"attributes.{EVIL}"]}),
    ("flame", {}),
    ("durations", {}),
    ("compare", {}),
    ("notes", {}),
]


@pytest.mark.parametrize(("path", "given"), QUESTIONS, ids=[f"{p} {g}"[:40] for p, g in QUESTIONS])
def test_an_answer_is_bounded_json_and_never_markup(viewer, path, given):
    answer = viewer.ask(path, **given)
    assert answer.status == 200, answer.body[:500]
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert len(answer.body) < 500_000
    json.loads(answer.body)


@pytest.mark.parametrize("offset", [1, 2, 3, 4])
def test_a_row_is_shown_whatever_is_in_it(viewer, evil, offset):
    answer = viewer.ask("row", offset=offset, **evil)
    assert answer.status == 200, answer.body[:500]
    assert len(answer.body) < 500_000
    assert answer.json["rows"][0]["place"] == {**evil, "offset": offset}


def test_names_come_as_they_are(viewer, evil):
    (found,) = viewer.get("sessions")["sessions"]
    assert (found["session"], found["source"], found["peer"]) == (
        evil["session"],
        evil["source"],
        EVIL,
    )


def test_sql_is_bounded_too(viewer):
    found = viewer.ask("sql", {"sql": "SELECT name, attributes FROM events"})
    assert found.status == 200
    assert len(found.body) < ANSWER_BYTES


def test_an_error_that_quotes_a_trace_is_bounded_json(viewer):
    answer = viewer.ask("sql", {"sql": "SELECT name::INT FROM events"})
    assert (answer.status, answer.headers["content-type"]) == (400, "application/json")
    assert len(answer.body) < 50_000
    missing = viewer.ask("sessions", session=EVIL[::-1])
    assert missing.status == 404
    assert len(missing.body) < 50_000


def test_notes_take_any_text_up_to_a_length(viewer):
    kept = viewer.ask("notes", {"from": "1", "to": "2", "text": EVIL})
    assert kept.json["notes"][0]["text"] == EVIL
    assert viewer.ask("notes", {"from": 1, "to": 2, "text": "x" * 10_001}).status == 400
    (note,) = viewer.get("notes")["notes"]
    assert viewer.ask("notes", method="DELETE", id=note["id"]).json["notes"] == []
    assert viewer.ask("notes", method="DELETE", id="../ports").status == 404
