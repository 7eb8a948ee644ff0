"""Test rank, node and job: they are columns of the view `sessions`, and they select sessions in all commands and
methods.
"""

from __future__ import annotations

import pytest

import tailrace
from tailrace.errors import QueryError, UnknownError
from tailrace.query.engine import Engine
from tailrace.query.filters import JobFilter, Selection
from tailrace.query.unknown_names import check
from tests.cli.command import run
from tests.query.tables import gap, row, session

HELLO = "tailrace.session"


def commits():
    """Return rows of several sessions. The producers of ranks 0 and 1 of job 7.0 announce their place. The collector
    knows the place of a file. The last two sessions have only a part of a place, or none.
    """
    rows = [
        session(HELLO, session="a", rank=0, node="n1", job="7.0"),
        session("open", session="b", node="seen", job="seen", opened=1),
        session(HELLO, session="b", rank=1, node="n2", job="7.1"),
        session("open", session="c", rank=2, node="n2", job="7.1"),
        session("restart", session="c.1", continues="c", offset=9),
        session("open", session="d", node="n3", job="70"),
        session(HELLO, session="e", rank="many", labels={"rank": "1"}),
        *(row(session=s, name=f"of {s}", start=1, end=3) for s in ("a", "b", "c", "c.1", "d", "e")),
        gap(3, 5, session="b"),
    ]
    return [rows]


def test_what_is_unknown_is_null(store):
    found = Engine(store).rows("SELECT session, rank, node, job FROM sessions ORDER BY session")
    assert list(found) == [
        ("a", 0, "n1", "7.0"), ("b", 1, "n2", "7.1"), ("c", 2, "n2", "7.1"), ("c.1", 2, "n2", "7.1"),
        ("d", None, "n3", "70"), ("e", None, None, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("chosen", "sessions", "missing"),
    [
        ({"rank": 0}, "a", 0),
        ({"rank": [0, 1]}, "a b", 3),
        ({"node": "n2"}, "b c c.1", 3),
        ({"node": "n2", "rank": 2}, "c c.1", 0),
        ({"job": "7"}, "a b c c.1", 3),
        ({"job": "7.1"}, "b c c.1", 3),
        ({"job": ["70", "7.0"]}, "a d", 0),
        ({}, "a b c c.1 d e", 3),
    ],
)
def test_only_sessions_of_that_place_are_selected_and_their_gaps(store, chosen, sessions, missing):
    with tailrace.open(store) as opened:
        spans = opened.spans(**chosen, columns="session", order="session")
        assert " ".join(span["session"] for span in spans) == sessions
        assert sum(spans.completeness.missing.values()) == missing
        assert opened.gaps(**chosen).count() == bool(missing)
        assert {s["session"] for s in opened.sessions(**chosen)} == set(sessions.split())


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (JobFilter(ranks=(3,)), "no rank '3'; known: 0, 1, 2"),
        (JobFilter(nodes=("n",)), "no node 'n'; known: n1, n2, n3"),
        (JobFilter(jobs=("7.",)), r"no job '7\.'; known: 7\.0, 7\.1, 70"),
        (JobFilter(ranks=(0,), nodes=("n2",)), "no session matches all of rank, node and job"),
    ],
)
def test_a_place_that_no_session_has_is_an_error(store, job, message):
    with pytest.raises(UnknownError, match=message):
        check(Engine(store), Selection(job=job))


@pytest.mark.parametrize("chosen", [{"rank": "1"}, {"rank": True}, {"node": 1}, {"job": 7}])
def test_what_is_no_place_is_refused(store, chosen):
    with tailrace.open(store) as opened, pytest.raises(QueryError, match=next(iter(chosen))):
        opened.spans(**chosen)


@pytest.mark.parametrize(
    "command", [("streams",), ("gaps",), ("stats",), ("export", "--to", "jsonl", "-o", "-")]
)
def test_commands_take_ranks_nodes_and_jobs(store, command):
    found = run(*command, "--store", store, "--rank", 1, "--node", "n2", "--job", "7")
    assert b"of a" not in found
    assert b"of c" not in found
    assert b"of b" in found or b"3" in found
    assert "known: 0, 1, 2" in run(*command, "--store", store, "--rank", 9, code=2)
