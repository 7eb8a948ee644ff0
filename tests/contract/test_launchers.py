"""Both clients and `tailrace run` take a process's rank, node and job from the same variables."""

from __future__ import annotations

import os
import socket

import pytest

from tailrace.run.launcher import RANKS, launched
from tailrace_client._session import RANKS as CLIENTS_RANKS, place
from tests.c.building import HERE, build, play
from tests.c.listening import hear

SLURM = {"SLURM_JOB_ID": "17", "SLURM_PROCID": "3", "SLURMD_NODENAME": "n3"}
STEP = SLURM | {"SLURM_STEP_ID": "2", "SLURM_STEP_NUM_TASKS": "8"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "64", "OMPI_COMM_WORLD_LOCAL_SIZE": "16",
    "PMIX_RANK": "5", "PMIX_NAMESPACE": "4711", "PMIX_HOSTNAME": "n5",
}  # fmt: skip
PMIX = {"PMIX_RANK": "3", "PMIX_NAMESPACE": "slurm.pmix.17.2", "PMIX_HOSTNAME": "n3"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "2"}
FLUX = {"FLUX_TASK_RANK": "2", "FLUX_JOB_SIZE": "4", "FLUX_JOB_ID": "\u01922bC"}
US = socket.gethostname().partition(".")[0]

SAID = [
    ("no launcher", {}, {}, (None, None)),
    ("srun", STEP, {"rank": 3, "node": "n3", "job": "17.2"}, (8, None)),
    ("a batch script", SLURM, {"rank": 3, "node": "n3", "job": "17"}, (None, None)),
    ("srun with PMIx", STEP | PMIX, {"rank": 3, "node": "n3", "job": "17.2"}, (8, None)),
    ("mpirun", OPEN_MPI, {"rank": 5, "node": "n5", "job": "4711"}, (64, 16)),
    ("mpirun in a step", STEP | OPEN_MPI, {"rank": 5, "node": "n5", "job": "17.4711"}, (64, 16)),
    ("mpiexec", MPICH, {"rank": 1, "node": US}, (4, 2)),
    ("mpiexec in a batch script", SLURM | MPICH, {"rank": 1, "node": US, "job": "17"}, (4, 2)),
    ("flux", FLUX, {"rank": 2, "node": US, "job": "f2bC"}, (4, None)),
    ("names given", MPICH | {"TAILRACE_JOB_NODE": "a", "TAILRACE_JOB_ID": "b"}, {"rank": 1, "node": "a", "job": "b"}, (4, 2)),
    ("long names", MPICH | {"TAILRACE_JOB_NODE": "a" * 65}, {"rank": 1, "node": "a" * 64}, (4, 2)),
    ("no rank", {"PMI_RANK": "x", "PMIX_RANK": "-1", "SLURM_PROCID": ""}, {}, (None, None)),
]  # fmt: skip


def names():
    return [says[0] for says in SAID]


@pytest.mark.parametrize(("environ", "said", "sizes"), [s[1:] for s in SAID], ids=names())
def test_they_say_the_same(environ, said, sizes):
    assert place(environ, socket.gethostname()) == said
    found = launched(environ, socket.gethostname())
    if found is None:
        assert "rank" not in said
    else:
        assert said == {
            word: value
            for word in ("rank", "node", "job")
            if (value := getattr(found, word)) is not None
        }
        assert (found.size, found.local_size) == sizes


def test_they_know_the_same_launchers():
    assert RANKS == CLIENTS_RANKS


@pytest.mark.parametrize(("environ", "said"), [s[1:3] for s in SAID], ids=names())
def test_the_c_client_says_it_too(tmp_path, environ, said):
    path = tmp_path / "said.heph"
    none = {name: "" for name in os.environ if name.startswith(("SLURM", "PMI", "OMPI"))}
    assert (
        play(build(HERE / "play.c"), f"connect file://{path}", "event 78", **none | environ)[0]
        == "connect 0 0"
    )
    (words,) = hear(path.read_bytes()).said("tailrace.session")
    assert {word: words[word] for word in ("rank", "node", "job") if word in words} == said
