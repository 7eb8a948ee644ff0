"""`tailrace run` under a launcher: ranks that start together, in one directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tailrace.run.naming import RANKS, rank, store_name, unused
from tests import program
from tests.system.collector import until

RANK_COUNT = 4

RANK = """
import os, pathlib, sys, time
import tailrace_client as trace
pathlib.Path("here", os.environ["RANK"]).touch()
while len(os.listdir("here")) < int(sys.argv[1]):
    time.sleep(0.01)
if "TAILRACE_ADDRESS" in os.environ:
    trace.connect()
    for cell in range(10):
        with trace.span("step", cell=cell):
            pass
    trace.close()
"""
"""Each rank waits for all others, so that all collectors run at one time."""


def launch(directory, *options):
    """Start the ranks; their exit statuses and what they said."""
    (directory / "here").mkdir()
    command = [*program.COMMAND, "run", *map(str, options), "--"]
    processes = [
        program.start(
            [*command, sys.executable, "-c", RANK, str(RANK_COUNT)],
            cwd=directory, env=os.environ | {"SLURM_PROCID": str(i), "RANK": str(i)},
            stderr=subprocess.PIPE, text=True,
        )
        for i in range(RANK_COUNT)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert len(list((directory / "here").iterdir())) == RANK_COUNT, said
    return [process.returncode for process in processes], said


def test_ranks_that_start_together_have_a_store_each(tmp_path):
    codes, said = launch(tmp_path, "--max-loss", 0)
    assert codes == [0] * RANK_COUNT, said
    stores = sorted(tmp_path.glob("tailrace-run-*"))
    assert len(stores) == RANK_COUNT
    for number in range(RANK_COUNT):
        (store,) = tmp_path.glob(f"tailrace-run-*-rank{number}-*")
        certificate = json.loads((store / "certificate.json").read_bytes())
        assert certificate["totals"]["stored"] == 10


@pytest.mark.parametrize(("options", "lossy"), [((), 0), (("--max-loss", 0), 4)])
def test_of_ranks_that_share_a_store_one_is_traced_and_all_run(tmp_path, options, lossy):
    codes, said = launch(tmp_path, "--store", "store", *options)
    assert sorted(codes) == [0, *[lossy] * (RANK_COUNT - 1)], said
    untraced = [words for words in said if "the program is not traced: " in words]
    assert len(untraced) == RANK_COUNT - 1
    assert all("is in use by process" in words for words in untraced)
    assert json.loads((tmp_path / "store/certificate.json").read_bytes())["totals"]["stored"] == 10


def test_with_a_trace_required_only_what_is_traced_runs(tmp_path):
    wait = "import pathlib, time; pathlib.Path('ready').touch(); time.sleep(60)"
    command = [*program.COMMAND, "run", "--store", "store", "--require-trace", "--"]
    first = program.start([*command, sys.executable, "-c", wait], cwd=tmp_path)
    try:
        until((tmp_path / "ready").exists, "the first to run")
        second = program.run(
            [*command, "touch", "ran"], cwd=tmp_path,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        first.terminate()
        first.wait(60)
    assert (second.returncode, "is in use by process" in second.stderr) == (1, True)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", RANKS)
def test_every_launcher_says_a_rank(name):
    assert rank({name: "12"}) == 12
    assert rank({name: ""}) is rank({name: "x"}) is rank({}) is None
    assert store_name(5, "node-1.cluster", 77, {name: "12"}) == "tailrace-run-5-node-1-rank12-77"


def test_a_name_that_is_taken_is_not_used_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = store_name(5, "node", 77, {})
    assert [unused(name).name for _ in range(3)] == [name, f"{name}-2", f"{name}-3"]
