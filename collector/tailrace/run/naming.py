"""Choose names that no other run uses, for a run's own store and for its certificate.

Runs start within the same second, often in a shared directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from tailrace.errors import StoreError
from tailrace.run.launcher import LaunchedRank


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
