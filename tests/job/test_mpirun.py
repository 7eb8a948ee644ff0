"""A job of real processes of a real launcher, some of which are killed: one command certifies it.

All ranks are on this host. Their nodes are feigned: `tailrace run` takes a node's name from TAILRACE_JOB_NODE before
that of the host, and so has a collector for each name.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tailrace.run import ranks
from tests import program
from tests.run.test_run import tailrace
from tests.system.collector import until

RANK = """
import os, pathlib, time
import tailrace_client as trace
number = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"]
for cell in range(20):
    with trace.span("step", cell=cell):
        pass
trace.flush(60)
pathlib.Path("here", number).touch()
while not pathlib.Path("go").exists():
    time.sleep(0.05)
trace.close()
"""

EACH = f"""
export TAILRACE_JOB_NODE=n$((${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} / PER_NODE))
exec {" ".join(program.COMMAND)} run --store stores -- {sys.executable} rank.py
"""

OPEN_MPI = (
    "mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--enable-recovery", "--bind-to", "none",
    "--mca", "orte_abort_on_non_zero_status", "0",
)  # fmt: skip
MPICH = ("mpiexec.mpich",)


class MpiJob:
    def __init__(self, launch, directory, size, per_node):
        (directory / "here").mkdir()
        (directory / "rank.py").write_text(RANK)
        self.directory = directory
        self.launcher = subprocess.Popen(
            [*launch, "-n", str(size), "sh", "-c", EACH], cwd=directory, env=os.environ | {"PER_NODE": str(per_node)},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        here = directory / "here"
        until(lambda: len(list(here.iterdir())) == size, "all ranks to be there", 300)

    @property
    def logs(self):
        return [ranks.read(path) for path in (self.directory / "stores").iterdir()]

    def pid(self, rank):
        (pid,) = (
            e.pid
            for log in self.logs
            for e in log
            if isinstance(e, ranks.RankCame) and e.rank == rank
        )
        return pid

    def kill(self, rank, *numbers):
        """Signal a rank and its program as launchers do: with two seconds between SIGTERM and SIGKILL."""
        group = os.getpgid(self.pid(rank))
        assert group != os.getpgid(0)
        for before, number in enumerate(numbers):
            time.sleep(2 * bool(before))
            try:
                os.killpg(group, number)
            except ProcessLookupError:
                assert before

    def end(self):
        (self.directory / "go").touch()
        self.launcher.wait(300)
        until(
            lambda: all(isinstance(log[-1], ranks.NodeEnded) for log in self.logs),
            "collectors to end",
            120,
        )


def need(launch, package):
    if not shutil.which(launch[0]):
        pytest.skip(f"no {launch[0]}: apt install {package}")


@pytest.mark.parametrize(
    ("size", "per_node", "killed"),
    [(6, 3, (1, 3, 5)), pytest.param(64, 16, (5, 17, 40), marks=pytest.mark.slow)],
)
def test_the_certificate_names_exactly_those_that_were_killed_and_what_they_left(
    tmp_path, size, per_node, killed
):
    need(OPEN_MPI, "openmpi-bin")
    job = MpiJob(OPEN_MPI, tmp_path, size, per_node)
    try:
        job.kill(killed[0], signal.SIGKILL)
        job.kill(killed[1], signal.SIGTERM, signal.SIGKILL)
        job.kill(killed[2], signal.SIGTERM)
        job.end()
    finally:
        job.launcher.terminate()
        job.launcher.wait(60)
    done = tailrace(tmp_path, "merge", "stores", "--into", "all", "--json")
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    odd = {
        r["rank"]: (r["signal"], r["stored"], r["unknown"])
        for r in found["ranks"]
        if r["state"] != "ended"
    }
    assert odd == {
        killed[0]: (None, 20, True), killed[1]: ("SIGTERM", 20, True), killed[2]: ("SIGTERM", 20, True),
    }  # fmt: skip
    rest = [r for r in found["ranks"] if r["state"] == "ended"]
    assert {(r["stored"], r["unknown"], r["exit_status"]) for r in rest} == {(20, False, 0)}
    assert len(rest) == size - 3
    assert {r["node"] for r in found["ranks"]} == {f"n{n}" for n in range(size // per_node)}
    assert found["totals"] == {
        "expected": 20 * size,
        "stored": 20 * size,
        "missing": {"truncated": 0},
        "unknown": True,
    }
    assert list(found["sizes"].values()) == [size]
    assert tailrace(tmp_path, "verify", "all/job.json").returncode == 0


def test_ranks_of_mpich_share_the_collectors_of_their_nodes(tmp_path):
    """Its launcher gives the job no name, and each rank a session of its own. It ends all ranks when one is killed."""
    need(MPICH, "mpich")
    job = MpiJob(MPICH, tmp_path, 4, 2)
    try:
        job.end()
    finally:
        job.launcher.terminate()
        job.launcher.wait(60)
    done = tailrace(tmp_path, "merge", "stores", "--into", "all", "--json")
    assert done.returncode == 0, done.stdout
    found = json.loads(done.stdout)
    assert [(r["rank"], r["node"], r["stored"]) for r in found["ranks"]] == [
        (0, "n0", 20), (1, "n0", 20), (2, "n1", 20), (3, "n1", 20),
    ]  # fmt: skip
    assert [node["collectors"] for node in found["nodes"]] == [1, 1]
