"""Where in a job this process runs, by the variables of its launcher.

One launcher may run inside another: a batch script of Slurm has a rank of Slurm's, which `mpirun` hands on to each
of its processes. So the launcher that stands inside counts.
"""

from __future__ import annotations

from collections.abc import Mapping

RANKS = (
    "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "FLUX_TASK_RANK", "SLURM_PROCID",
)  # fmt: skip
"""The variables in which Open MPI, PMIx, MPICH and Intel MPI, Flux and Slurm say a process's rank, from the
inside out."""

_SCHEDULERS = ("SLURM_JOB_ID", "FLUX_JOB_ID", "PBS_JOBID", "LSB_JOBID")
_LAUNCHES = {
    "OMPI_COMM_WORLD_RANK": ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    "PMIX_RANK": ("PMIX_NAMESPACE",),
    "PMI_RANK": ("PMI_JOBID",),
    "SLURM_PROCID": ("SLURM_STEP_ID",),
}
_TEXT_MAX = 64
_DIGITS = 10


def place(environ: Mapping[str, str], host: str) -> dict[str, object]:
    """Return `rank`, `node` and `job`, as far as a launcher or TAILRACE_JOB_NODE and TAILRACE_JOB_ID say them."""
    by = next((name for name in RANKS if _is_rank(environ.get(name, ""))), None)
    node = environ.get("TAILRACE_JOB_NODE") or (_node(by, environ, host) if by else None)
    job = environ.get("TAILRACE_JOB_ID") or (_job(by, environ) if by else None)
    found = {
        "rank": int(environ[by]) if by else None,
        "node": node and node[:_TEXT_MAX],
        "job": job and job[:_TEXT_MAX],
    }
    return {word: value for word, value in found.items() if value is not None}


def _job(by: str, environ: Mapping[str, str]) -> str | None:
    """Return the scheduler's id, a dot, and the step or the launcher's own id."""
    scheduler = _first(_SCHEDULERS, environ)
    launch = _first(_LAUNCHES.get(by, ()), environ)
    if scheduler is not None:
        scheduler = scheduler.replace(
            "\u0192", "f"
        )  # Flux takes either, not everybody can type the former
    if scheduler is None or launch is None:
        return scheduler or launch
    step = launch.removeprefix("slurm.pmix.").removeprefix(f"{scheduler}.")
    return f"{scheduler}.{step}"


def _node(by: str, environ: Mapping[str, str], host: str) -> str:
    """Return the launcher's name of the node, or the host's. Slurm's would be another node's under `mpirun`."""
    ours = by == "SLURM_PROCID" or environ.get("PMIX_NAMESPACE", "").startswith("slurm.")
    named = environ.get("SLURMD_NODENAME") if ours else environ.get("PMIX_HOSTNAME")
    return named or host.partition(".")[0]


def _is_rank(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < _DIGITS


def _first(names: tuple[str, ...], environ: Mapping[str, str]) -> str | None:
    return next((environ[name] for name in names if environ.get(name)), None)
