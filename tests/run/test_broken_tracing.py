"""`tailrace run` where tracing goes wrong: the program runs, and nothing is called traced."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow
import pytest
from deltalake import write_deltalake

from tests.run.test_run import tailrace

ROOT = Path(__file__).parents[2]


def broken(directory, kind):
    """Options and environment with which no collector can start."""
    if kind == "store is a file":
        (directory / "store").write_text("x")
        return ["--store", "store"], {}
    if kind == "no such configuration":
        return [], {"TAILRACE_CONFIG": "missing.toml"}
    if kind == "wrong configuration":
        (directory / "wrong.toml").write_text("[stor]\n")
        return ["--config", "wrong.toml"], {}
    if kind == "no place for the spool":
        (directory / "file").write_text("x")
        return ["--store", "store"], {"TAILRACE_SPOOL_PATH": "file/spool"}
    if kind == "no place for traces":
        (directory / "store").mkdir()
        (directory / "store/traces").write_text("x")
        return ["--store", "store"], {}
    if not (directory / "store").exists():
        write_deltalake(str(directory / "store/events"), pyarrow.table({"x": [1]}))
    return ["--store", "store"], {}


KINDS = [
    "store is a file", "no such configuration", "wrong configuration", "no place for the spool",
    "no place for traces", "no table of ours",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_program_runs_all_the_same(tmp_path, kind):
    options, environ = broken(tmp_path, kind)
    for more, status, expected in [
        ((), 0, 0), ((), 7, 7), (("--max-loss", 9), 0, 4), (("--max-loss", 9), 7, 7),
    ]:  # fmt: skip
        program = [sys.executable, "-c", f"print('ran'); raise SystemExit({status})"]
        done = tailrace(tmp_path, "run", *options, *more, "--", *program, environ=environ)
        assert (done.returncode, done.stdout) == (expected, "ran\n"), done.stderr
        assert "tailrace: the program is not traced: " in done.stderr
        assert "run certificate" not in done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_it_does_not_where_a_trace_is_required(tmp_path, kind):
    options, environ = broken(tmp_path, kind)
    done = tailrace(
        tmp_path, "run", *options, "--require-trace", "--", "echo", "ran", environ=environ
    )
    assert (done.returncode, done.stdout) == (2 if "configuration" in kind else 1, ""), done.stderr


def test_as_json_it_is_said_with_the_programs_status(tmp_path):
    options, _ = broken(tmp_path, "store is a file")
    done = tailrace(tmp_path, "run", *options, "--json", "--", "sh", "-c", "echo out; exit 3")
    assert (done.returncode, done.stdout) == (3, "out\n")
    found = json.loads(done.stderr)
    assert (found["exit_status"], found["traced"], found["certificate"]) == (3, False, None)
    assert "not traced" in found["failures"][0]


@pytest.mark.parametrize(
    ("options", "status", "expected"),
    [((), 0, 0), ((), 5, 5), (("--max-loss", 9), 0, 4), (("--require-trace",), 0, 1)],
)
def test_a_collector_that_fails_under_way_ends_no_program(tmp_path, options, status, expected):
    program = [sys.executable, "-m", "tests.run.fencing", status]
    environ = {"PYTHONPATH": f"{ROOT}:{ROOT}/collector"}
    done = tailrace(tmp_path, "run", "--store", "store", *options, "--", *program, environ=environ)
    assert (done.returncode, done.stdout) == (expected, "to the end\n"), done.stderr
    assert "tracing failed, so that there is no certificate: " in done.stderr
    assert not (tmp_path / "store/certificate.json").exists()
