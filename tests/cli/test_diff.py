"""`tailrace diff`: two runs compared, for people and for a script that may fail on it."""

from __future__ import annotations

import json

import pytest

from tests import program
from tests.cli.command import COMMAND, ENVIRONMENT, run
from tests.query.tables import clocked, gap, make, row, session

MS = 1_000_000


def spans(of, *lengths, name="step"):
    return [
        row("span", name=name, session=of, start=i * 100 * MS, end=(i * 100 + ms) * MS, offset=i)
        for i, ms in enumerate(lengths)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    rows = [clocked(epoch=0), *spans("a", 10, 10, 10), *spans("a", 1, name="gone")]
    return make(tmp_path_factory.mktemp("before"), rows)


@pytest.fixture(scope="module")
def after(tmp_path_factory):
    rows = [clocked(epoch=0), *spans("a", 10, 10, 12), *spans("a", 1, name="new")]
    return make(tmp_path_factory.mktemp("after"), [*rows, gap(2, 9)])


def test_each_group_is_compared_and_each_run_says_what_it_lacks(before, after):
    lines = run("diff", before, after).decode().splitlines()
    heading, step, new, gone, groups, a, b = lines
    assert heading.split() == [
        "name",
        "unit",
        "count",
        "a",
        "count",
        "b",
        "p95",
        "a",
        "p95",
        "b",
        "change",
    ]
    assert step.split() == ["step", "ns", "3", "3", "10", "ms", "12", "ms", "+20.0%"]
    assert (new.split()[-1], gone.split()[-1], groups) == ("new", "gone", "3 groups")
    assert a == f"A {before}: nothing is known to be missing"
    assert b == f"B {after}: 2 events are missing (network 2)"


def test_json_has_whole_numbers(before, after):
    step = json.loads(run("diff", before, after, "--figure", "total", "--json").splitlines()[0])
    assert step == {
        "name": "step", "unit": "ns", "count_a": 3, "count_b": 3, "total_a": 30 * MS, "total_b": 32 * MS,
        "change": "+6.7%",
    }  # fmt: skip


def test_more_than_the_threshold_fails_and_no_more_does_not(before, after):
    run("diff", before, after, "--threshold", "20%")
    said = run("diff", before, after, "--threshold", "19.9", code=1)
    assert "tailrace: p95 of step grew by +20.0%" in said
    run("diff", before, after, "--threshold", "0%", "--figure", "p50", "--name", "step")


def test_both_runs_may_be_of_one_store(tmp_path):
    store = make(tmp_path, [*spans("one", 5), *spans("two", 5, 7)])
    (line,) = run(
        "diff", store, store, "--session-a", "one", "--session-b", "two", "--figure", "count", "--json"
    ).splitlines()  # fmt: skip
    assert json.loads(line)["change"] == "+100.0%"


def test_the_sides_may_be_ranks_nodes_or_jobs_of_one_store(tmp_path):
    rows = [
        session("tailrace.session", session=name, rank=rank, node=node, job=job)
        for name, rank, node, job in (("a", 0, "n1", "7.0"), ("b", 1, "n2", "7.0"), ("c", 1, "n2", "8"))
    ]  # fmt: skip
    rows += [*spans("a", 5), *spans("b", 5, 5), *spans("c", 5, 5, 5, 5), gap(2, 9, session="b")]
    store = make(tmp_path, rows)

    def counts(*options):
        (line,) = run("diff", store, store, "--figure", "count", "--json", *options).splitlines()
        found = json.loads(line)
        return found["count_a"], found["count_b"]

    assert counts("--rank-a", "0", "--rank-b", "1") == (1, 6)
    assert counts("--rank-a", "0", "--rank-a", "1") == (7, 7)
    assert counts("--job-a", "7", "--job-b", "8") == (3, 4)
    assert counts("--node-a", "n2", "--job-a", "7", "--node-b", "n1") == (2, 1)
    said = run("diff", store, store, "--rank-a", "0", "--rank-b", "1").decode()
    assert f"A {store}: nothing is known to be missing" in said
    assert f"B {store}: 2 events are missing" in said
    assert "there is no rank '9'" in run("diff", store, store, "--rank-b", "9", code=2)


def test_an_incomplete_run_is_refused_on_demand(before, after):
    said = run("diff", before, after, "--complete-only", code=3)
    assert f"`tailrace gaps` --store {after}" in said


def test_nothing_compared_is_no_success(before, tmp_path):
    other = make(tmp_path, spans("a", 1, name="other"))
    said = run("diff", before, other, "--threshold", "10%", code=1)
    assert "nothing was compared" in said


@pytest.mark.parametrize(
    "wrong",
    [
        ["--name", "stp"],
        ["--threshold", "-1%"],
        ["--threshold", "nan"],
        ["--figure", "mean"],
        ["--by", "nam"],
        ["--session-a", "nobody"],
    ],
)
def test_what_does_not_exist_is_wrong_usage(before, after, wrong):
    run("diff", before, after, *wrong, code=2)


def test_a_hostile_name_reaches_no_terminal(tmp_path):
    first = make(tmp_path / "first", spans("a", 1, name="\x1b[2J"))
    second = make(tmp_path / "second", spans("a", 2, name="\x1b[2J"))
    said = run("diff", first, second, "--threshold", "10%", code=1)
    assert "p95 of \\x1b[2J grew by +100.0%" in said


def test_a_group_that_hangs_in_one_run_is_named(before, tmp_path):
    """Its spans never ended, so nothing says that they took longer."""
    begun = row("begin", name="step", id=1, start=0, session="a", offset=1)
    hung = make(tmp_path / "hung", [clocked(epoch=0), begun, *spans("a", 1, name="gone")])
    command = [*COMMAND, "diff", before, hung, "--threshold", "10%"]
    done = program.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    said = "tailrace: p95 of step was not compared: in one run, none of its spans has ended"
    assert done.stderr.splitlines() == [said]
