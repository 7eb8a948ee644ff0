"""Test the labels of runs: they select sessions in all commands and methods, and a label that no session has is an
error.
"""

from __future__ import annotations

import json

import pytest

import tailrace
from tailrace.errors import QueryError, UnknownError
from tailrace.query.engine import Engine
from tailrace.query.filters import RunLabel, Selection
from tailrace.query.unknown_names import check
from tests.cli.command import run
from tests.query.tables import gap, row, session


def commits():
    """Return rows of four sessions. Two sources have a session `a` each, one of which is a run of revision 1. `b` is of
    revision 2, and `c` has no label.
    """
    rows = [
        session("tailrace.session", session="a", labels={"revision": "1", "job": "7"}),
        session("tailrace.session", session="b", labels={"revision": "2", "job": "7"}),
        session("tailrace.session", session="b", offset=9, labels={"revision": "2", "job": "8"}),
        session("tailrace.session", session="c", labels="none"),
        row(session="a", name="of a", start=1, end=3),
        row(session="a", name="elsewhere", source="other", start=1, end=5),
        row(session="b", name="of b", start=1, end=9),
        row(session="c", name="of c", start=1, end=9),
        gap(3, 5, session="b"),
    ]
    return [rows]


def test_the_last_labels_count_and_are_a_view(store):
    assert list(Engine(store).rows("FROM labels ORDER BY ALL")) == [
        ("sim", "a", "job", "7"), ("sim", "a", "revision", "1"),
        ("sim", "b", "job", "8"), ("sim", "b", "revision", "2"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("label", "names", "missing"),
    [
        ({"revision": "1"}, ["of a"], 0),
        ({"revision": "2"}, ["of b"], 3),
        ({"revision": "2", "job": "8"}, ["of b"], 3),
        (None, ["elsewhere", "of a", "of b", "of c"], 3),
    ],
)
def test_only_sessions_with_all_labels_are_selected_and_their_gaps(store, label, names, missing):
    with tailrace.open(store) as opened:
        spans = opened.spans(label=label, columns="name", order="name")
        assert [span["name"] for span in spans] == names
        assert sum(spans.completeness.missing.values()) == missing
        assert opened.gaps(label=label).count() == bool(missing)
        assert {s["session"] for s in opened.streams(label={"job": "7"})} == {"a"}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([RunLabel("revision", "3")], "no label 'revision=3'; known: job=7, job=8, revision=1, revision=2"),
        ([RunLabel("job", "7"), RunLabel("revision", "2")], "no session has all of the labels job=7 and revision=2"),
    ],
)  # fmt: skip
def test_a_label_that_no_session_has_is_an_error(store, labels, message):
    with pytest.raises(UnknownError, match=message):
        check(Engine(store), Selection(labels=tuple(labels)))


@pytest.mark.parametrize("label", [{}, "revision=1", {"revision": 1}])
def test_what_is_no_label_is_refused(store, label):
    with tailrace.open(store) as opened, pytest.raises(QueryError, match="label"):
        opened.spans(label=label)


@pytest.mark.parametrize(
    "command",
    [
        ("streams",), ("gaps",), ("stats",), ("export", "--to", "jsonl", "-o", "-"),
    ],
)  # fmt: skip
def test_commands_take_labels(store, command):
    found = run(*command, "--store", store, "--label", "revision=2")
    assert b"of a" not in found
    assert b"of c" not in found
    assert b"of b" in found or b"3" in found
    assert "revision=1" in run(*command, "--store", store, "--label", "revision=9", code=2)
    assert "revision=4a5b6c" in run(*command, "--store", store, "--label", "revision", code=2)


def test_two_runs_in_one_store_are_compared_by_their_labels(store):
    sides = ("--label-a", "revision=1", "--label-b", "revision=2")
    (found,) = map(
        json.loads, run("diff", "--json", "--by", "source", *sides, store, store).splitlines()
    )
    assert (found["count_a"], found["count_b"]) == (1, 1)
