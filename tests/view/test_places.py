"""Ranks, nodes and jobs narrow every question of the API in the same way, and an unknown one is an error."""

from __future__ import annotations

import pytest

from tests.export.traces import EPOCH
from tests.query.tables import clocked, gap, make, row, session
from tests.view.viewer import Viewer

RANKS = {"a": (0, "n1", "7.0"), "b": (1, "n2", "7.0"), "c": (1, "n2", "8")}
"""Sessions, and where they ran; `d` ran in no job."""


def rows():
    for number, name in enumerate("abcd"):
        yield session("open", session=name, opened=EPOCH)
        yield clocked(session=name, epoch=EPOCH)
        if name in RANKS:
            rank, node, job = RANKS[name]
            yield session("tailrace.session", session=name, rank=rank, node=node, job=job)
        for seq in range(number + 1):
            yield row(
                session=name, seq=seq, offset=seq, start=seq * 100, end=seq * 100 + 9, name="step"
            )
        yield gap(number + 1, 9, session=name, offset=9)


@pytest.fixture(scope="module")
def viewer(tmp_path_factory):
    viewer = Viewer("--store", make(tmp_path_factory.mktemp("places") / "store", list(rows())))
    yield viewer
    assert viewer.end() == (0, "")


CHOSEN = [
    ({}, "abcd"),
    ({"rank": 0}, "a"),
    ({"rank": [0, 1]}, "abc"),
    ({"node": "n2"}, "bc"),
    ({"job": "7"}, "ab"),
    ({"job": "7.0", "node": "n2"}, "b"),
    ({"rank": 1, "session": "c"}, "c"),
]


@pytest.mark.parametrize(("asked", "sessions"), CHOSEN, ids=[str(asked) for asked, _ in CHOSEN])
def test_every_question_takes_only_what_ran_there(viewer, asked, sessions):
    spans = sum(map(" abcd".index, sessions))
    for path in ("streams", "sessions", "lanes", "gaps"):
        answer = viewer.get(path, **asked)
        assert answer["whole"]["missing"] == {"network": spans}, path
        assert sorted({each["session"] for each in answer[path]}) == list(sessions), path
    found = viewer.get("search", **asked, name="step", limit=100)["events"]
    assert {each["place"]["session"] for each in found} == set(sessions)
    assert len(found) == spans
    assert [each["count"] for each in viewer.get("statistics", **asked)["groups"]] == [spans]
    assert viewer.get("gaps/next", **asked, after=0)["total"] == len(sessions)


def test_the_sides_of_a_comparison_may_be_ranks(viewer):
    answer = viewer.get("compare", a_rank=0, b_rank=1, figure="count")
    assert [(each["count_a"], each["count_b"]) for each in answer["differences"]] == [(1, 5)]
    answer = viewer.get("compare", a_job="7", b_node="n2", b_job="8", figure="count")
    assert [(each["count_a"], each["count_b"]) for each in answer["differences"]] == [(3, 3)]


@pytest.mark.parametrize("path", ["streams", "sessions", "lanes", "gaps", "statistics"])
def test_a_place_that_nobody_knows_is_an_error(viewer, path):
    answer = viewer.ask(path, rank=9)
    assert (answer.status, "no rank '9'" in answer.json["error"]["what"]) == (404, True)
    assert viewer.ask(path, rank=-1).status == 400


def test_the_store_says_which_there_are(viewer):
    answer = viewer.get("store")
    assert (answer["ranks"], answer["nodes"], answer["jobs"]) == (
        [0, 1],
        ["n1", "n2"],
        ["7.0", "8"],
    )
