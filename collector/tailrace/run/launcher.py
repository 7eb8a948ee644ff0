"""Find a process's rank, node and job from the environment variables that launchers of parallel jobs set.

One launcher may run inside another: in a batch script of Slurm, each process of `mpirun` inherits the script's Slurm
rank. So the variables of the innermost launcher take precedence, as in the clients (PROTOCOL.md). Slurm gives the
batch script rank 0, but no step. A program that the script starts without a launcher inherits this rank, and is
`alone`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tailrace.errors import StoreError


class Launcher(NamedTuple):
    """Names of the environment variables of one launcher. If a field has several names, the first variable that is set
    counts."""

    rank: str
    sizes: tuple[str, ...] = ()
    local_sizes: tuple[str, ...] = ()
    launches: tuple[str, ...] = ()
    """Environment variables with the id of the launch within the scheduler's job."""


LAUNCHERS = (
    Launcher(
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    Launcher("PMIX_RANK", launches=("PMIX_NAMESPACE",)),
    Launcher("PMI_RANK", ("PMI_SIZE",), ("MPI_LOCALNRANKS",), ("PMI_JOBID",)),
    Launcher("FLUX_TASK_RANK", ("FLUX_JOB_SIZE",)),
    Launcher("SLURM_PROCID", ("SLURM_STEP_NUM_TASKS",), launches=("SLURM_STEP_ID",)),
)
"""All known launchers, from the innermost to the outermost: Open MPI, PMIx, MPICH and Intel MPI, Flux and Slurm."""

RANKS = tuple(launcher.rank for launcher in LAUNCHERS)

SCHEDULERS = ("SLURM_JOB_ID", "FLUX_JOB_ID", "PBS_JOBID", "LSB_JOBID")

NODE, JOB = "TAILRACE_JOB_NODE", "TAILRACE_JOB_ID"
"""Environment variables with which a user corrects the launcher's node and job. They also set keys in `[job]`."""

SLURM_NO_STEP = 0xFFFF_FFF0
"""The lowest of Slurm's special step ids: those of processes that srun did not start, such as the batch script."""

_TEXT_MAX = 64
_DIGITS = 11


class LaunchedRank(NamedTuple):
    """The rank that a launcher gave to a process. A field is None if the launcher does not set its variable."""

    rank: int
    node: str
    job: str | None = None
    size: int | None = None
    local_size: int | None = None
    alone: bool = False
    """Whether the process only inherited the rank from another process, and therefore gets a collector of its own."""


def launched(environ: Mapping[str, str], host: str) -> LaunchedRank | None:
    """Return the rank that a launcher gave to this process, or None if no launcher started it."""
    by = next((each for each in LAUNCHERS if _number(environ, (each.rank,)) is not None), None)
    if by is None:
        return None
    own_slurm = by.rank == "SLURM_PROCID"
    slurm = own_slurm or environ.get("PMIX_NAMESPACE", "").startswith("slurm.")
    # Use Slurm's node name only under Slurm's own launcher: under `mpirun` it would name another node.
    name = environ.get("SLURMD_NODENAME" if slurm else "PMIX_HOSTNAME")
    node = environ.get(NODE) or name or host.partition(".")[0] or "host"
    step = _number(environ, ("SLURM_STEP_ID",))
    return LaunchedRank(
        rank=int(environ[by.rank]),
        node=node[:_TEXT_MAX],
        job=(environ.get(JOB) or _job(by, environ) or "")[:_TEXT_MAX] or None,
        size=_number(environ, ("SLURM_STEP_NUM_TASKS",) if slurm else by.sizes),
        local_size=_number(environ, by.local_sizes),
        alone=own_slurm and (step is None or step >= SLURM_NO_STEP),
    )


def _job(by: Launcher, environ: Mapping[str, str]) -> str | None:
    """Return the job's id: the scheduler's job id, a dot, and the id of the step or launch, as far as they are
    known; None if both are unknown."""
    scheduler, launch = _first(environ, SCHEDULERS), _first(environ, by.launches)
    if scheduler is not None:
        # Flux writes job ids with U+0192 or with f. Use f, which is easier to type.
        scheduler = scheduler.replace("\u0192", "f")
    if scheduler is None or launch is None:
        return scheduler or launch
    step = launch.removeprefix("slurm.pmix.").removeprefix(f"{scheduler}.")
    return f"{scheduler}.{step}"


def _number(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    texts = (environ.get(name, "") for name in names)
    return next((int(t) for t in texts if t.isascii() and t.isdecimal() and len(t) < _DIGITS), None)


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((environ[name] for name in names if environ.get(name)), None)


def store_name(seconds: int, host: str, pid: int) -> str:
    """Return the name of the store for a run without a launcher that begins at `seconds` (Unix time)."""
    short_host = host.partition(".")[0] or "host"
    return f"tailrace-run-{seconds}-{short_host}-{pid}"


def node_store_name(seconds: int, pid: int, rank: LaunchedRank) -> str:
    """Return the name of the store for a node's collector that begins at `seconds` (Unix time). The stores of a
    job's nodes are in one directory."""
    node = file_name(rank.node)
    if rank.job is None:
        return f"tailrace-run-{seconds}-{node}-{pid}"
    return f"tailrace-job-{file_name(rank.job)}/{node}"


def file_name(text: str) -> str:
    """Return `text` with a replacement for each character that is not safe in a file name."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text).lstrip(".") or "_"


def unused(name: Path) -> Path:
    """Make a new directory, and return its path. If `name` is taken, append a number: a process in another container
    may have the same process id. Raise StoreError if the directory cannot be made."""
    for path in alternatives(name):
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            what = f"{path}: cannot be made here: {error.strerror}; name a directory by --store"
            raise StoreError(what) from error
        return path
    raise AssertionError("there is always a next name")


def alternatives(path: Path) -> Iterator[Path]:
    """Yield the path, then the path with -2, -3 and so on before its suffix, without end."""
    yield path
    for number in count(2):
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")
