"""`tailrace export` as a person gives it."""

from __future__ import annotations

import json

import pytest

from tailrace.export import WRITERS
from tests.cli.command import on_terminal, run
from tests.query.tables import clocked, commit_many, gap, make, row
from tests.reading.stores import EPOCH

ROWS = [clocked(epoch=EPOCH), *(row(seq=n, offset=n, start=n, end=n + 1, name="n") for n in range(9))]  # fmt: skip


def commits():
    return [[*ROWS, gap(4, 20, offset=99)]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make(tmp_path_factory.mktemp("whole"), ROWS)


@pytest.mark.parametrize("to", WRITERS)
def test_every_format_ends_with_what_is_missing(store, whole, tmp_path, to):
    for each, words in [
        (store, "not complete: 4 events are missing (network 4)"),
        (whole, "complete: nothing is known to be missing"),
    ]:
        said = run("export", "--store", each, "--to", to, "-o", tmp_path / "trace").decode()
        assert said.endswith(f"; {words}\n")
        assert len(said.splitlines()) == 1
        assert (tmp_path / "trace").stat().st_size


def test_json_says_the_same(store, tmp_path):
    said = run("export", "--store", store, "--to", "otlp", "-o", tmp_path / "t.jsonl", "--json")
    assert json.loads(said) == {
        "files": [str(tmp_path / name) for name in ("t.jsonl", "t.logs.jsonl", "t.metrics.jsonl")],
        "rows": 9,
        "complete": False,
        "missing": {"network": 4},
        "unknown": 0,
        "awaited": 0,
        "unasked": "",
        "selected": True,
        "left_out": {},
    }


def test_standard_output_is_the_rows_alone(whole):
    rows = run("export", "--store", whole, "--to", "jsonl", "-o", "-").splitlines()
    assert len(rows) == len(ROWS)
    assert all(json.loads(each) for each in rows)


def test_times_are_iso_8601_or_nanoseconds(whole):
    for since in ("2026-11-21 08:00:00.000000005Z", str(EPOCH + 5)):
        arguments = ["--to", "csv", "-o", "-", "--since", since, "--until", str(EPOCH + 7)]
        assert len(run("export", "--store", whole, *arguments).splitlines()) == 1 + 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--source", "nope"], "there is no source 'nope'; known: sim"),
        (["--session", "nope"], "there is no session that begins with 'nope'; known: a"),
        (["--source", "sim", "--stream", "7"], "there is no stream '7'; known: 1"),
        (["--since", "2027-01-01"], "(network 4); there are: sim (2026-11-21 08:00:00 to"),
        (["--since", "soon"], "'soon' is not a time"),
        (["--to", "otf"], "'otf' is not one of"),
    ],
)
def test_what_does_not_exist_is_wrong_usage(store, tmp_path, arguments, said):
    path = tmp_path / "trace"
    errors = run("export", "--store", store, "--to", "csv", "-o", path, *arguments, code=2)
    assert said in errors
    assert list(tmp_path.iterdir()) == []


def test_a_format_of_several_files_is_not_for_a_pipe(store):
    said = run("export", "--store", store, "--to", "otlp", "-o", "-", code=2)
    assert "several files" in said


def test_nothing_is_written_where_completeness_is_demanded_and_lacks(store, whole, tmp_path):
    arguments = ["--to", "perfetto", "-o", tmp_path / "trace", "--complete-only"]
    assert "4 events are missing" in run("export", "--store", store, *arguments, code=3)
    assert list(tmp_path.iterdir()) == []
    run("export", "--store", whole, *arguments)


def test_a_file_that_cannot_be_made_is_said(store, tmp_path):
    path = tmp_path / "nowhere" / "trace"
    said = run("export", "--store", store, "--to", "csv", "-o", path, code=1)
    assert said == f"tailrace: {path}: cannot be written: No such file or directory\n"


def test_a_terminal_shows_how_far_it_is(tmp_path):
    store = make(tmp_path / "store", [clocked(epoch=EPOCH)])
    commit_many(
        store, 40_000, start=1, end=2, name="n" * 100
    )  # takes more than the 0.2 s between two notices
    path = tmp_path / "trace"
    code, printed = on_terminal("export", "--store", store, "--to", "perfetto", "-o", path)
    assert code == 0
    assert "exporting ... " in printed
    assert printed.endswith("complete: nothing is known to be missing\n")


def test_a_terminal_gets_no_file(store):
    code, printed = on_terminal("export", "--store", store, "--to", "csv", "-o", "-")
    assert code == 2
    assert "is not for a terminal" in printed
