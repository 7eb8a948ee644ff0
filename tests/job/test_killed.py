"""A run that a launcher kills, SIGTERM first and SIGKILL later, leaves a valid store, whenever the SIGKILL comes."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress

import pytest

from tests import program
from tests.forms import in_turn
from tests.run.test_run import tailrace
from tests.system.collector import until

PROGRAM = """
import pathlib, signal, sys, time
import tailrace_client as trace
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for cell in range(10):
    with trace.span("step", cell=cell):
        pass
trace.flush(60)
pathlib.Path("here").touch()
time.sleep(600)
"""

RANK = {"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURMD_NODENAME": "n1"}


@pytest.mark.parametrize(
    ("launched", "seconds", "deaf"), in_turn([{}, RANK], [0, 0.5, 2], [(), ("deaf",)])
)
def test_the_store_of_a_killed_run_is_valid_and_has_all_that_was_received(
    tmp_path, launched, seconds, deaf
):
    run = program.start(
        [*program.COMMAND, "run", "--store", "stores/n1" if not launched else "stores", "--",
         sys.executable, "-c", PROGRAM, *deaf],
        cwd=tmp_path, env=os.environ | launched, start_new_session=True,
    )  # fmt: skip
    until((tmp_path / "here").exists, "the program to be there")
    for number, wait in ((signal.SIGTERM, seconds), (signal.SIGKILL, 0)):
        with suppress(ProcessLookupError):
            os.killpg(run.pid, number)
        time.sleep(wait)
    run.wait(60)
    store = tmp_path / "stores/n1"
    if launched:
        until(lambda: b'"ended"' in (store / "ranks.jsonl").read_bytes(), "the collector to end")
    assert tailrace(tmp_path, "verify", "stores/n1").returncode == 0
    done = tailrace(tmp_path, "merge", "stores", "--into", "all", "--json")
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    assert (found["totals"]["stored"], found["totals"]["unknown"]) == (10, True)
    states = [(rank["state"], rank["node"]) for rank in found["ranks"]]
    assert states == ([("killed", "n1")] if launched else [])
