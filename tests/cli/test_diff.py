"""`tailrace diff`: two runs compared, for people and for a script that may fail on it."""

from __future__ import annotations

import json
from xml.etree import ElementTree

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


def exact(*arguments, code=0):
    """Compare two runs as they are: they have too few spans to show noise."""
    return run("diff", "--exact", *arguments, code=code)


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    rows = [clocked(epoch=0), *spans("a", 10, 10, 10), *spans("a", 1, name="gone")]
    return make(tmp_path_factory.mktemp("before"), rows)


@pytest.fixture(scope="module")
def after(tmp_path_factory):
    rows = [clocked(epoch=0), *spans("a", 10, 10, 12), *spans("a", 1, name="new")]
    return make(tmp_path_factory.mktemp("after"), [*rows, gap(2, 9)])


@pytest.fixture(scope="module")
def slower(tmp_path_factory):
    """As `after`, without a loss."""
    rows = [clocked(epoch=0), *spans("a", 10, 10, 12), *spans("a", 1, name="new")]
    return make(tmp_path_factory.mktemp("slower"), rows)


def test_each_group_is_compared_and_each_run_says_what_it_lacks(before, slower):
    lines = exact(before, slower).decode().splitlines()
    heading, step, new, gone, groups, a, b = lines
    assert " ".join(heading.split()) == "name unit verdict count a count b p95 a p95 b change"
    assert step.split() == ["step", "ns", "grew", "3", "3", "10", "ms", "12", "ms", "+20.0%"]
    assert (new.split()[2], gone.split()[2]) == ("new", "gone")
    assert groups == "3 groups: 1 grew, 1 new, 1 gone"
    assert a == f"A {before}: nothing is known to be missing"
    assert b == f"B {slower}: nothing is known to be missing"


def test_a_run_that_lacks_events_leaves_undecided_what_they_may_change(before, after):
    heading, *_, groups, _, b = exact(before, after, "--figure", "count").decode().splitlines()
    assert " ".join(heading.split()) == "name unit verdict count a count b change"
    assert groups == "3 groups: 1 new, 2 undecided because of loss"
    assert b == f"B {after}: 2 events are missing (network 2)"
    (step, *_) = exact(before, after, "--figure", "min", "--json").splitlines()
    found = json.loads(step)
    assert (found["verdict"], found["change"]) == ("undecided", "at most +0.0%")
    assert (found["because"], found["growth"]) == ("loss", [-1, 0])
    assert found["bounds"] == {"a": [10 * MS] * 2, "b": [0, 10 * MS]}
    said = exact(before, after, "--figure", "total", "--threshold", "5%", "--name", "step", code=1)
    assert "tailrace: total of step grew by at least +6.7%" in said
    said = exact(before, after, "--figure", "total", "--threshold", "9%", "--name", "step", code=3)
    assert "tailrace: total of step is undecided because of loss; change: at least +6.7%" in said
    said = exact(before, after, "--threshold", "20%", "--name", "step", "--name", "gone", code=3)
    assert "tailrace: gone is undecided: B has no span of it, and events of B are missing" in said


def test_json_has_whole_numbers(before, slower):
    step = json.loads(exact(before, slower, "--figure", "total", "--json").splitlines()[0])
    assert step == {
        "name": "step", "unit": "ns", "verdict": "grew", "because": None, "change": "+6.7%", "growth": [2 / 30] * 2, "count_a": 3, "count_b": 3,
        "total_a": 30 * MS, "total_b": 32 * MS, "bounds": {"a": [30 * MS] * 2, "b": [32 * MS] * 2},
    }  # fmt: skip


def test_more_than_the_threshold_fails_and_no_more_does_not(before, slower):
    exact(before, slower, "--threshold", "20%", "--name", "step")
    said = exact(before, slower, "--threshold", "19.9", "--name", "step", code=1)
    assert "tailrace: p95 of step grew by +20.0%" in said
    exact(before, slower, "--threshold", "0%", "--figure", "p50", "--name", "step")
    said = exact(before, slower, "--threshold", "20%", code=1)
    assert "tailrace: new is new: A has no span of it" in said
    assert "tailrace: gone is gone: B has no span of it" in said


def test_a_report_for_ci_has_a_case_for_each_group(before, after, slower, tmp_path):
    report = tmp_path / "report.xml"
    for other, of, outcomes in (
        (slower, "p95", {"step": "failure", "new": "failure", "gone": "failure"}),
        (after, "p50", {"step": "skipped", "new": "failure", "gone": "skipped"}),
        (slower, "p50", {"step": None, "new": "failure", "gone": "failure"}),
    ):
        exact(before, other, "--figure", of, "--threshold", "5", "--junit", report, code=1)
        suite = ElementTree.parse(report).getroot()  # noqa: S314 - our own file
        found = {case.get("name"): next((kind.tag for kind in case), None) for case in suite}
        assert found == outcomes
        counts = [[*found.values()].count(kind) for kind in ("failure", "skipped")]
        assert [suite.get(name) for name in ("failures", "skipped")] == [*map(str, counts)]
    exact(before, slower, "--junit", report, code=2)
    assert report.exists()
    exact(before, tmp_path / "nothing", "--threshold", "5", "--junit", report, code=1)
    assert not report.exists()


def test_a_name_that_is_lost_leaves_no_group_undecided(tmp_path):
    """The gap lacks no span."""
    rows = [clocked(epoch=0), *spans("a", 10, 10, 10)]
    lost = gap(1, attributes={"count": 1, "of": "name"})
    stores = [
        make(tmp_path / name, [row | {"format": "dftracer"} for row in [*rows, *more]])
        for name, more in (("a", spans("a", 1, name="gone")), ("b", [lost]))
    ]
    said = exact(*stores, "--threshold", "5", code=1)
    assert said.splitlines() == ["tailrace: gone is gone: B has no span of it"]


def test_a_markdown_table_keeps_its_columns(before, tmp_path):
    other = make(tmp_path, [clocked(epoch=0), *spans("a", 10, name="a\\|<b>_c")])
    lines = exact(before, other, "--markdown").decode().splitlines()
    assert lines[:2] == [
        "| name | unit | verdict | count a | count b | p95 a | p95 b | change |", "|" + " --- |" * 8,
    ]  # fmt: skip
    name = r"a\\\|\<b\>\_c"
    assert f"| {name} | ns | new | - | 1 | - | 10 ms | new |" in lines
    exact(before, other, "--markdown", "--json", code=2)


def test_both_runs_may_be_of_one_store(tmp_path):
    store = make(tmp_path, [*spans("one", 5), *spans("two", 5, 7)])
    (line,) = exact(
        store, store, "--session-a", "one", "--session-b", "two", "--figure", "count", "--json"
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
        (line,) = exact(store, store, "--figure", "count", "--json", *options).splitlines()
        found = json.loads(line)
        return found["count_a"], found["count_b"]

    assert counts("--rank-a", "0", "--rank-b", "1") == (1, 6)
    assert counts("--rank-a", "0", "--rank-a", "1") == (7, 7)
    assert counts("--job-a", "7", "--job-b", "8") == (3, 4)
    assert counts("--node-a", "n2", "--job-a", "7", "--node-b", "n1") == (2, 1)
    said = exact(store, store, "--rank-a", "0", "--rank-b", "1").decode()
    assert f"A {store}: nothing is known to be missing" in said
    assert f"B {store}: 2 events are missing" in said
    assert "there is no rank '9'" in exact(store, store, "--rank-b", "9", code=2)


def test_an_incomplete_run_is_refused_on_demand(before, after):
    said = exact(before, after, "--complete-only", code=3)
    assert f"`tailrace gaps` --store {after}" in said


def test_nothing_compared_is_no_success(before, tmp_path):
    other = make(tmp_path, spans("a", 1, name="other"))
    said = exact(before, other, "--threshold", "10%", code=1)
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
    exact(before, after, *wrong, code=2)


def test_a_hostile_name_reaches_no_terminal(tmp_path):
    first = make(tmp_path / "first", spans("a", 1, name="\x1b[2J"))
    second = make(tmp_path / "second", spans("a", 2, name="\x1b[2J"))
    said = exact(first, second, "--threshold", "10%", code=1)
    assert "p95 of \\x1b[2J grew by +100.0%" in said


def test_a_group_that_hangs_in_one_run_is_named(before, tmp_path):
    """Its spans never ended, so nothing says that they took longer."""
    begun = row("begin", name="step", id=1, start=0, session="a", offset=1)
    hung = make(tmp_path / "hung", [clocked(epoch=0), begun, *spans("a", 1, name="gone")])
    command = [*COMMAND, "diff", "--exact", before, hung, "--threshold", "10%"]
    done = program.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    said = "tailrace: p95 of step was not compared: in one run, none of its spans has ended"
    assert done.stderr.splitlines() == [said]
    assert done.returncode == 1


def repeated(folder, letter, *lengths, name="step"):
    """Make a store for each run. A run has one span."""
    return [
        make(folder / f"{letter}{i}", [clocked(epoch=0), *spans("a", ms, name=name)])
        for i, ms in enumerate(lengths)
    ]  # fmt: skip


def test_repeated_runs_show_what_is_noise(tmp_path):
    a = repeated(tmp_path, "a", 1000, 1004, 998)
    b = repeated(tmp_path, "b", 1200, 1196, 1203)
    *_, step, groups, first, _, _, last, _, _ = run("diff", *a, "--", *b).decode().splitlines()
    assert step.split()[:4] == ["step", "ns", "grew", "1"]
    assert step.endswith("+18.5% to +21.3%")
    assert groups == "1 group: 1 grew"
    assert first == f"A {a[0]}: nothing is known to be missing"
    assert last == f"B {b[0]}: nothing is known to be missing"
    said = run("diff", "--threshold", "20%", *a, "--", *b, code=3)
    assert said.splitlines() == [
        "tailrace: p95 of step is undecided because of noise; change: +18.5% to +21.3%"
    ]
    run("diff", "--threshold", "5%", *a, "--", *a)


def test_a_name_of_some_runs_is_neither_new_nor_compared(tmp_path):
    a = repeated(tmp_path, "a", 1000, 1004)
    rare = make(
        tmp_path / "rare", [clocked(epoch=0), *spans("a", 1000), *spans("a", 1, name="rare")]
    )
    lines = run("diff", "--json", *a, "--", a[0], rare).splitlines()
    found = {each["name"]: each for each in map(json.loads, lines)}
    assert (found["rare"]["verdict"], found["rare"]["because"]) == ("undecided", "some runs")
    said = run(
        "diff",
        "--threshold",
        "50",
        "--name",
        "rare",
        "--name",
        "step",
        *a,
        "--",
        a[0],
        rare,
        code=3,
    )
    assert said.splitlines() == [
        "tailrace: rare is undecided: only some runs of one side have spans of it"
    ]


def test_a_gap_in_one_of_the_runs_hides_the_answer(tmp_path):
    a, b = repeated(tmp_path, "a", 1000, 1004, 998), repeated(tmp_path, "b", 1200, 1196)
    lossy = make(tmp_path / "lossy", [clocked(epoch=0), *spans("a", 1203), gap(1, 9)])
    report = tmp_path / "report.xml"
    said = run("diff", "--threshold", "5%", "--junit", report, *a, "--", *b, lossy, code=3)
    assert said.splitlines() == [
        "tailrace: p95 of step is undecided because of loss; change: cannot be told"
    ]
    (case,) = ElementTree.parse(report).getroot()  # noqa: S314 - our own file
    assert [kind.tag for kind in case] == ["skipped"]


def test_one_run_on_each_side_is_judged_by_its_blocks_of_time(tmp_path):
    """The durations of a block depend on one another, and differ from block to block."""
    lengths = [1000 + (i // 10 * 7) % 13 for i in range(160)]
    slower = [length * 1.3 for length in lengths]
    a, b = (
        make(tmp_path / name, [clocked(epoch=0), *spans("a", *of), *spans("a", 5, name="once")])
        for name, of in (("a", lengths), ("b", slower))
    )
    step, once = map(json.loads, run("diff", "--json", a, b).splitlines())
    assert step["verdict"] == "grew"
    assert 0.25 < step["growth"][0] < 0.3 < step["growth"][1] < 0.35
    assert (once["verdict"], once["because"]) == ("undecided", "few spans")
    text = run("diff", "--threshold", "5", "--name", "step", a, a).decode()
    assert "cannot show noise that lasts as long as a run" in text
    said = run("diff", "--figure", "max", "--threshold", "5", "--name", "step", a, b, code=3)
    assert "noise cannot be estimated from these runs; repeat the runs" in said


@pytest.mark.parametrize(
    "operands",
    [
        ["a", "b", "c"],
        ["--", "b"],
        ["a", "--", "b", "c"],
        ["a", "b", "--", "c", "d", "--json"],
        ["--exact", "a", "b", "--", "c", "d"],
    ],
)
def test_operands_that_are_no_two_sides_are_refused(operands):
    assert "Usage: tailrace diff" in run("diff", *operands, code=2)
