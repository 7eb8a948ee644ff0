"""The Slurm example, run as slurmd runs it: a collector for a job, over a socket of its user's."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

SLURM = Path(__file__).parents[2] / "deploy/slurm"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="slurmd runs prologs as root: needs root")


@pytest.fixture
def job(tmp_path):
    """The environment of a job's prolog, for the user that runs the tests."""
    program = tmp_path / "tailrace"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tailrace "$@"\n')
    program.chmod(0o755)
    return os.environ | {
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_USER": "root",
        "TAILRACE_PROGRAM": str(program),
        "TAILRACE_RUN": str(tmp_path / "run"),
        "TAILRACE_JOBS": str(tmp_path / "jobs"),
    }


def script(name, job):
    done = subprocess.run(
        [SLURM / name], env=job, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_a_job_emits_is_left_in_a_store_of_its_own(job, tmp_path):
    run = tmp_path / "run/4711"
    try:
        script("prolog.sh", job)
        given = script("task_prolog.sh", job)
        assert given == f"export TAILRACE_ADDRESS=unix://{run}/heph.sock\n"
        assert stat.S_IMODE((run / "heph.sock").stat().st_mode) == 0o600
        assert stat.S_IMODE(run.stat().st_mode) == 0o700
        address = given.strip().removeprefix("export TAILRACE_ADDRESS=")
        task = "import tailrace_client as t; t.connect(); t.event('ran'); assert t.close(20)"
        subprocess.run(
            [sys.executable, "-c", task], env=job | {"TAILRACE_ADDRESS": address}, check=True
        )
    finally:
        script("epilog.sh", job)
    assert not run.exists()
    query = [sys.executable, "-m", "tailrace", "query", "--store", tmp_path / "jobs/4711", "--json"]
    statement = "SELECT name FROM events WHERE kind = 'span'"
    done = subprocess.run([*query, statement], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"name": "ran"}


def test_a_job_starts_without_a_collector_when_there_can_be_none(job, tmp_path):
    job["TAILRACE_PROGRAM"] = "/no/such/program"
    script("prolog.sh", job)
    assert script("task_prolog.sh", job) == ""
    script("epilog.sh", job)
    assert not (tmp_path / "run/4711").exists()


def test_an_epilog_without_a_prolog_does_nothing(job):
    script("epilog.sh", job)
