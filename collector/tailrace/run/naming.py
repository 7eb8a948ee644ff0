"""Choose names that no other run uses, for a run's own store and for its certificate.

Ranks of one job start within the same second, often in a shared directory, and each has its own
collector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

RANKS = ("SLURM_PROCID", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""Variables in which launchers (Slurm, PMIx, Open MPI, MPICH and Intel MPI) give a process its rank. The
first one that is set counts."""


def rank(environ: Mapping[str, str]) -> int | None:
    """Return the rank that a launcher gave this process, or None without a launcher."""
    return next((int(environ[name]) for name in RANKS if environ.get(name, "").isdecimal()), None)


def store_name(seconds: int, host: str, pid: int, environ: Mapping[str, str]) -> str:
    """Return the name of the store of a run that begins at `seconds` of Unix time."""
    number = rank(environ)
    rank_part = [] if number is None else [f"rank{number}"]
    short_host = host.partition(".")[0] or "host"
    return "-".join(["tailrace-run", str(seconds), short_host, *rank_part, str(pid)])


def unused(name: str) -> Path:
    """Make a new directory of this name in the working directory, or with a number if the name is taken,
    as by an equal process id in another container.

    Raise OSError when no directory can be made."""
    for path in alternatives(Path(name)):
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise AssertionError("there is always a next name")


def alternatives(path: Path) -> Iterator[Path]:
    """Yield the path itself, then the path with -2, -3 and so on before its suffix."""
    yield path
    for number in count(2):
        yield path.with_name(f"{path.stem}-{number}{path.suffix}")
