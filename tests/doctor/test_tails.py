"""Patterns of tail sources against real trees, some of them not to be entered or read."""

from __future__ import annotations

import glob
import json
import shlex
import subprocess
import sys

import pytest

from tailrace.doctor import processes
from tests.cli.command import ENVIRONMENT
from tests.doctor.hosts import UNPRIVILEGED, StoppedClock, host, only, tail, without_privileges


@pytest.fixture
def runs(tmp_path):
    """Two runs with a trace in each."""
    for name in ("a", "b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "trace.jsonl").write_text("{}\n")
    return tmp_path / "runs"


def check(*patterns, **options):
    return list(processes.check_tails(host(sources={"runs": tail(*patterns)}, **options)))


def test_files_that_are_found_are_counted(runs):
    finding = only(check(f"{runs}/*/*.jsonl"))
    assert finding.severity.value == "good"
    assert finding.figures == {"pattern": f"{runs}/*/*.jsonl", "files": 2}


def test_each_pattern_is_judged_by_itself(runs):
    found = check(runs / "a", f"{runs}/*.pfw")
    assert [f.severity.value for f in found] == ["good", "advice"]
    assert f"{runs}/*.pfw leads to no file" in found[1].what


def test_a_root_that_is_not_there_can_be_made(tmp_path):
    finding = only(check(f"{tmp_path}/ru ns/*"))
    assert finding.severity.value == "advice"
    assert finding.commands == [f"mkdir -p '{tmp_path}/ru ns'"]


def test_files_of_other_formats_are_not_counted(runs):
    """Hidden files are not the streams of any format."""
    (runs / "a" / ".hidden").write_text("")
    assert only(check(runs)).figures["files"] == 2


def test_a_link_out_of_the_root_is_not_followed_and_said(runs, tmp_path):
    elsewhere = tmp_path / "else'wh[e]re"
    elsewhere.mkdir()
    (elsewhere / "trace.jsonl").write_text("{}\n")
    (runs / "link").symlink_to(elsewhere)
    (runs / "inside").symlink_to(runs / "a")
    found = check(runs)
    assert [f.severity.value for f in found] == ["advice", "good"]
    assert f"{runs}/link leads out of {runs}" in found[0].what
    assert shlex.split(found[0].commands[0])[:2] == [
        "export",
        f"TAILRACE_SOURCES_RUNS_PATHS={runs},{glob.escape(str(elsewhere))}",
    ]
    assert found[1].figures["files"] == 2


def test_a_search_that_takes_too_long_ends_and_says_so(runs):
    found = only(check(runs, clock=StoppedClock(step=5.0)))
    assert "at least" in found.what or "not searched to its end" in found.what


SCRIPT = """
import sys, msgspec
from tailrace.doctor import processes
from tests.doctor.hosts import host, tail
found = list(processes.check_tails(host(sources={"runs": tail(*sys.argv[1:])})))
print(msgspec.json.encode(found).decode())
"""


def check_as_a_user(*patterns):
    done = subprocess.run(
        [*UNPRIVILEGED, sys.executable, "-c", SCRIPT, *map(str, patterns)],
        env=ENVIRONMENT | {"PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}:."},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@without_privileges
def test_what_cannot_be_read_or_listed_is_a_problem(runs):
    (runs / "a" / "trace.jsonl").chmod(0)
    (runs / "b").chmod(0)
    try:
        found = check_as_a_user(runs)
    finally:
        (runs / "b").chmod(0o700)
    assert [f["severity"] for f in found] == ["problem", "problem", "good"]
    assert f"{runs}/b cannot be searched" in found[0]["what"]
    assert found[0]["commands"] == [f'sudo setfacl -R -m u:"$(id -un)":rX {runs}/b']
    assert f"{runs}/a/trace.jsonl cannot be read" in found[1]["what"]
    assert found[2]["figures"]["files"] == 1


@without_privileges
def test_directories_that_no_pattern_asks_for_may_be_closed(runs):
    (runs / "b").chmod(0)
    try:
        found = check_as_a_user(f"{runs}/a*")
    finally:
        (runs / "b").chmod(0o700)
    assert [f["severity"] for f in found] == ["good"]


@without_privileges
def test_a_root_that_cannot_be_entered_is_a_problem(runs):
    runs.chmod(0)
    try:
        found = check_as_a_user(f"{runs}/a")
    finally:
        runs.chmod(0o700)
    assert [f["severity"] for f in found] == ["problem"]


@without_privileges
def test_a_link_to_what_cannot_be_entered_is_a_problem_of_the_search(runs):
    (runs / "b").chmod(0)
    (runs / "a" / "link").symlink_to(runs / "b" / "trace.jsonl")
    try:
        found = check_as_a_user(f"{runs}/a*", f"{runs}/[a]/link")
    finally:
        (runs / "b").chmod(0o700)
    assert [f["severity"] for f in found] == ["problem", "good", "problem"]
    assert f"{runs} cannot be searched" in found[0]["what"]


@pytest.mark.parametrize(
    ("pattern", "directory", "reached"),
    [
        ("/runs", "/runs", True),
        ("/runs", "/runs/a/b", True),
        ("/runs/*/ovni", "/runs/7/ovni/loom", True),
        ("/runs/*/ovni", "/runs/7", True),
        ("/runs/*/ovni", "/runs", True),
        ("/runs/**/ovni", "/runs/a/b/c", True),
        ("/runs/a", "/", True),
        ("/runs/*/ovni", "/runs/7/other", False),
        ("/runs", "/run", False),
        ("/run", "/runs", False),
        ("/runs/[ab]*", "/runs/c", False),
        ("/*", "/runs", True),
    ],
)
def test_which_directories_a_pattern_reaches(pattern, directory, reached):
    assert processes.reaches(pattern, directory) is reached
