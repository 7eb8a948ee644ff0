"""Completeness travels with answers, and can be demanded."""

from __future__ import annotations

import pytest

from tests import program
from tests.cli.command import COMMAND, ENVIRONMENT, run
from tests.query.tables import gap, heal, make, row


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    rows = [row(seq=0, offset=0), gap(3, 1), heal(1, 2), row(seq=4, offset=1)]
    other = [row("instant", source="other", session="b", stream="1")]
    unknown = [gap(0, reason="truncated", source="cut", session="c", stream="1")]
    return make(tmp_path_factory.mktemp("short"), rows, other, unknown)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    rows = [row(seq=0), gap(1, 1), heal(1, 1), row(seq=1)]
    return make(tmp_path_factory.mktemp("whole"), rows)


def said(*arguments):
    """Return what goes to standard error of a command that succeeds."""
    done = program.run(
        [*COMMAND, *map(str, arguments)],
        env=ENVIRONMENT,
        capture_output=True,
        timeout=60,
        check=True,
    )
    return done.stderr.decode()


QUERY = ("query", "SELECT count(*) FROM events WHERE kind = 'span'")


@pytest.mark.parametrize("form", [(), ("--json",), ("--csv",), ("--arrow",)])
def test_a_query_says_what_the_table_lacks(short, form):
    assert said(*QUERY, "--store", short, *form) == (
        "tailrace: 2 events are missing (network 2), and 1 gap of unknown size;"
        " `tailrace gaps` says which\n"
    )


def test_of_a_whole_table_there_is_nothing_to_say(whole):
    assert said(*QUERY, "--store", whole) == ""
    assert run(*QUERY, "--store", whole, "--complete-only", "--csv").split() == [
        b"count_star()",
        b"2",
    ]


@pytest.mark.parametrize("command", [QUERY, ("streams",)])
def test_completeness_that_is_demanded_and_not_there_is_an_exit_code(short, command):
    done = program.run(
        [*COMMAND, *command, "--store", short, "--complete-only"],
        env=ENVIRONMENT, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"2 events are missing (network 2)" in done.stderr


def test_of_streams_only_what_is_shown_counts(short):
    assert run("streams", "--store", short, "--complete-only", "--source", "other")
    assert "an unknown number of events is missing" in run(
        "streams", "--store", short, "--complete-only", "--source", "cut", code=3
    )


@pytest.mark.parametrize(
    "command",
    [
        ("gaps",), ("gaps", "--json"), ("gaps", "--all"), ("streams",), ("streams", "--complete-only"),
        ("streams", "--json"), QUERY, (*QUERY, "--json"), (*QUERY, "--complete-only"),
        ("follow",), ("follow", "--from-start", "--json"),
    ],
)  # fmt: skip
def test_a_source_that_there_is_not_is_wrong_usage_and_those_there_are_are_listed(short, command):
    done = program.run(
        [*COMMAND, *command, "--store", short, "--source", "nope"],
        env=ENVIRONMENT, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, b"")
    said = f"tailrace: {short}/events: there is no source 'nope'; known: cut, other, sim\n"
    assert done.stderr.decode() == said


@pytest.mark.parametrize("command", ["gaps", "streams"])
def test_so_is_a_session_that_these_sources_do_not_have(short, command):
    for options in (("--session", "x"), ("--session", "b", "--source", "sim")):
        assert "there is no session that begins with" in run(
            command, "--store", short, *options, code=2
        )
    assert run(command, "--store", short, "--session", "b", "--source", "other")


def test_an_empty_store_is_never_called_complete(tmp_path):
    store = make(tmp_path)
    nothing = "no event matches, so it is unknown whether any is missing"
    assert run("gaps", "--store", store).decode() == f"no gaps: {nothing}\n"
    assert (
        run("streams", "--store", store).decode().endswith(f"0 missing, 0 open spans; {nothing}\n")
    )
    for command in (QUERY, ("streams",)):
        assert nothing in run(*command, "--store", store, "--complete-only", code=3)
    for command in (QUERY, ("streams", "--json"), ("gaps", "--json")):
        assert nothing in said(*command, "--store", store)
    for command in ("gaps", "streams", "follow"):
        assert "there is no source 'a'; known: none yet" in run(
            command, "--store", store, "--source", "a", code=2
        )


def test_of_a_query_about_a_source_only_what_it_lacks_counts(short):
    sql = "SELECT DISTINCT source FROM events UNION SELECT source FROM gaps"
    options = ("--store", short, "--source", "other", "--csv")
    assert run("query", sql, *options, "--complete-only").split() == [b"source", b"other"]
    assert said("query", sql, *options) == ""
    assert "an unknown number of events is missing" in said(
        "query", sql, "--store", short, "--source", "cut"
    )


def test_following_ends_with_the_first_gap(short):
    follow = ("follow", "--from-start", "--complete-only", "--json")
    assert "something is missing" in run(*follow, "--store", short, code=3)
