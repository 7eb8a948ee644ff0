"""`tailrace run` under a launcher: ranks that start together, in one directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.query.engine import Engine
from tailrace.run.launcher import RANKS, LaunchedRank, launched, node_store_name, store_name, unused
from tests import program
from tests.ingest.log import heph_event
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
            cwd=directory, env=os.environ | {"PMI_RANK": str(i), "RANK": str(i)},
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


def test_ranks_that_start_together_share_the_collector_of_their_node(tmp_path):
    codes, said = launch(tmp_path, "--max-loss", 0)
    assert codes == [0] * RANK_COUNT, said
    stores = [*tmp_path.glob("tailrace-run-*")]
    assert len(stores) == 1, (stores, said)
    (store,) = stores
    assert json.loads((store / "certificate.json").read_bytes())["totals"]["stored"] == 40
    assert sum("run certificate " in words for words in said) == 1
    asked = "SELECT rank, events, missing FROM sessions WHERE events > 0 ORDER BY rank"
    assert list(Engine(str(store)).rows(asked)) == [(rank, 10, 0) for rank in range(RANK_COUNT)]


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
    assert launched({name: "12"}, "h").rank == 12
    assert launched({name: ""}, "h") is launched({name: "x"}, "h") is launched({}, "h") is None


def test_a_nodes_store_is_named_by_job_and_node():
    rank = LaunchedRank(rank=12, node="../n 1", job="17.0")
    assert node_store_name(5, 77, rank) == "tailrace-job-17.0/_n_1"
    assert node_store_name(5, 77, rank._replace(job=None)) == "tailrace-run-5-_n_1-77"
    assert store_name(5, "node-1.cluster", 77) == "tailrace-run-5-node-1-77"


def test_a_name_that_is_taken_is_not_used_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = store_name(5, "node", 77)
    assert [unused(Path(name)).name for _ in range(3)] == [name, f"{name}-2", f"{name}-3"]


def test_the_collector_knows_its_job_and_the_ranks_of_files_in_their_directories(tmp_path):
    """Only where it is told that it works for a job: `rank-3` may be anybody's directory."""
    for place in ("rank-3/of/rank-12", "rank-x", "no-rank-4"):
        (tmp_path / "in" / place).mkdir(parents=True)
        (tmp_path / "in" / place / "packets").write_bytes(heph_event(1, len(place)))
    told = {"TAILRACE_JOB_ID": "17.0", "TAILRACE_JOB_NODE": "n1"}
    for name, environ in (("job", told), ("none", {})):
        done = program.run(
            [*program.COMMAND, "import", tmp_path / "in", "--store", tmp_path / name],
            env=os.environ | environ, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    asked = "SELECT rank, node, job FROM sessions ORDER BY rank"
    others = [(None, "n1", "17.0")] * 2
    assert list(Engine(str(tmp_path / "job")).rows(asked)) == [(12, "n1", "17.0"), *others]
    assert list(Engine(str(tmp_path / "none")).rows(asked)) == [(None, None, None)] * 3


BATCH = {
    "SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_NTASKS": "64", "SLURM_NPROCS": "64", "SLURM_LOCALID": "0",
    "SLURMD_NODENAME": "n1",
}  # fmt: skip
"""Variables of a script that sbatch runs, which is no step."""

SEVERAL = {
    "a batch script": BATCH,
    "an interactive shell of salloc": BATCH | {"SLURM_STEP_ID": str(0xFFFFFFFA), "SLURM_STEP_NUM_TASKS": "1"},
    "a shell that srun started": BATCH | {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"},
    "a script of a rank": {"PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALNRANKS": "4", "PMI_JOBID": "x"},
}  # fmt: skip

PROGRAM = """
import os, pathlib, sys, time
import tailrace_client as trace
number = int(sys.argv[1])
for n in range(10 + number):
    with trace.span(f"of {number}"):
        pass
trace.flush(10)
pathlib.Path("here", str(number)).touch()
while len(os.listdir("here")) < 4:
    time.sleep(0.01)
if number == 2:
    os._exit(0)  # nobody knows what it had not sent
trace.close()
sys.exit(number)
"""


@pytest.mark.parametrize(
    "options", [(), ("--store", "store"), ("--certificate", "c.json")], ids=str
)
@pytest.mark.parametrize("environ", SEVERAL.values(), ids=SEVERAL)
def test_programs_that_no_launcher_started_together_share_nothing(tmp_path, environ, options):
    """As of GNU parallel, `xargs -P` or `&`: each has its own status, certificate and budget of loss."""
    (tmp_path / "here").mkdir()
    command = [
        *program.COMMAND,
        "run",
        *options,
        "--max-loss",
        "0",
        "--",
        sys.executable,
        "-c",
        PROGRAM,
    ]
    processes = [
        program.start(
            [*command, str(number)], cwd=tmp_path, env=os.environ | environ,
            stderr=subprocess.PIPE, text=True, start_new_session=environ.keys() >= {"PMI_RANK"},
        )
        for number in range(4)
    ]  # fmt: skip
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 1, 4, 3], said
    found = {}
    for path in [*tmp_path.rglob("certificate.json"), *tmp_path.glob("c*.json")]:
        certificate = json.loads(path.read_bytes())
        number = int(certificate["program"]["arguments"][-1])
        assert str(path) in said[number]
        found[number] = (
            certificate["program"]["exit_status"], certificate["totals"]["stored"], certificate["totals"]["unknown"],
        )  # fmt: skip
    assert found == {n: (0 if n == 2 else n, 10 + n, n == 2) for n in range(4)}
    if options == ("--store", "store"):
        assert {path.parent.parent for path in tmp_path.rglob("certificate.json")} == {
            tmp_path / "store"
        }
