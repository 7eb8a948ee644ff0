"""Read the variables in which launchers of parallel jobs tell a process its rank, node and job.

One launcher may run inside another: a batch script of Slurm has a rank of Slurm's, which `mpirun` hands on to each
of its processes. So the innermost launcher counts. The clients say the same of themselves (PROTOCOL.md).

The batch script itself, and whatever it starts without a launcher, is rank 0 of no step. Such a program is `alone`.

Runs start within the same second, often in a shared directory, so the names of their stores and certificates are
chosen here, too, from the rank: no other run uses them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tailrace.errors import StoreError


class Launcher(NamedTuple):
    """The variables of one launcher; the first that is set counts."""

    rank: str
    sizes: tuple[str, ...] = ()
    local_sizes: tuple[str, ...] = ()
    launches: tuple[str, ...] = ()
    """Ids of the launch within the scheduler's job."""


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
"""Open MPI, PMIx, MPICH and Intel MPI, Flux and Slurm, from the inside out."""

RANKS = tuple(launcher.rank for launcher in LAUNCHERS)

SCHEDULERS = ("SLURM_JOB_ID", "FLUX_JOB_ID", "PBS_JOBID", "LSB_JOBID")

NODE, JOB = "TAILRACE_JOB_NODE", "TAILRACE_JOB_ID"
"""Variables that a user sets where the launcher's are not right; they also configure `[job]`."""

SLURM_NO_STEP = 0xFFFF_FFF0
"""Slurm's step ids from this number on are for processes that no srun has started: the batch script, an interactive
shell."""

_TEXT_MAX = 64
_DIGITS = 11


class LaunchedRank(NamedTuple):
    """A process that a launcher started. None where the launcher does not say."""

    rank: int
    node: str
    job: str | None = None
    size: int | None = None
    """The number of the job's ranks."""
    local_size: int | None = None
    """The number of the node's ranks."""
    alone: bool = False
    """Whether it shares its collector with no other rank, since no launcher started them together."""


def launched(environ: Mapping[str, str], host: str) -> LaunchedRank | None:
    """Return what a launcher says of this process, or None without a launcher."""
    by = next((each for each in LAUNCHERS if _number(environ, (each.rank,)) is not None), None)
    if by is None:
        return None
    return LaunchedRank(
        rank=int(environ[by.rank]),
        node=(environ.get(NODE) or _node(by, environ, host))[:_TEXT_MAX],
        job=(environ.get(JOB) or _job(by, environ) or "")[:_TEXT_MAX] or None,
        size=_size(by, environ),
        local_size=_number(environ, by.local_sizes),
        alone=by.rank == "SLURM_PROCID" and _no_step(environ),
    )


def _no_step(environ: Mapping[str, str]) -> bool:
    step = _number(environ, ("SLURM_STEP_ID",))
    return step is None or step >= SLURM_NO_STEP


def _size(by: Launcher, environ: Mapping[str, str]) -> int | None:
    sizes = ("SLURM_STEP_NUM_TASKS",) if _by_slurm(by, environ) else by.sizes
    return _number(environ, sizes)


def _job(by: Launcher, environ: Mapping[str, str]) -> str | None:
    """Return the scheduler's id, a dot, and the step or the launcher's own id."""
    scheduler, launch = _first(environ, SCHEDULERS), _first(environ, by.launches)
    if scheduler is not None:
        scheduler = scheduler.replace(
            "\u0192", "f"
        )  # Flux takes either, not everybody can type the former
    if scheduler is None or launch is None:
        return scheduler or launch
    step = launch.removeprefix("slurm.pmix.").removeprefix(f"{scheduler}.")
    return f"{scheduler}.{step}"


def _node(by: Launcher, environ: Mapping[str, str], host: str) -> str:
    """Return the launcher's name of the node, or the host's. Slurm's would be another node's under `mpirun`."""
    name = "SLURMD_NODENAME" if _by_slurm(by, environ) else "PMIX_HOSTNAME"
    return environ.get(name) or host.partition(".")[0] or "host"


def _by_slurm(by: Launcher, environ: Mapping[str, str]) -> bool:
    return by.rank == "SLURM_PROCID" or environ.get("PMIX_NAMESPACE", "").startswith("slurm.")


def _number(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    texts = (environ.get(name, "") for name in names)
    return next((int(t) for t in texts if t.isascii() and t.isdecimal() and len(t) < _DIGITS), None)


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((environ[name] for name in names if environ.get(name)), None)


def store_name(seconds: int, host: str, pid: int) -> str:
    """Return the name of the store of a run that begins at `seconds` of Unix time."""
    short_host = host.partition(".")[0] or "host"
    return f"tailrace-run-{seconds}-{short_host}-{pid}"


def node_store_name(seconds: int, pid: int, rank: LaunchedRank) -> str:
    """Return the name of the store of a node's collector, which begins at `seconds` of Unix time."""
    node = file_name(rank.node)
    if rank.job is None:
        return f"tailrace-run-{seconds}-{node}-{pid}"
    return f"tailrace-job-{file_name(rank.job)}/{node}"


def file_name(text: str) -> str:
    """Return a text as the name of a file."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text).lstrip(".") or "_"


def unused(name: Path) -> Path:
    """Make a new directory of this name in the working directory, or with a number if the name is taken,
    as by an equal process id in another container.

    Raise StoreError when no directory can be made."""
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
    """Yield the path itself, then the path with -2, -3 and so on before its suffix."""
    yield path
    for number in count(2):
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")
