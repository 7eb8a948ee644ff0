"""Define the results as data: what benchmarks leave on disk, and from what the page is made."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Self

import msgspec

Run = dict[str, float]
"""The figures of one run. The keys are names of `MEASURES`."""


class Role(StrEnum):
    OURS = "ours"
    PEER = "peer"
    REFERENCE = "reference"
    BASE = "base"
    """Name of our own side at the smallest size of a sweep."""


class Side(msgspec.Struct, kw_only=True):
    """One of the programs that were measured beside one another, and its runs.

    `does` states what it did with the input. `absent` is the command that installs a peer; if it is set, the peer is
    not installed and has no runs.
    """

    name: str
    role: Role
    does: str
    version: str = ""
    configuration: str = ""
    absent: str = ""
    runs: list[Run] = []


class Case(msgspec.Struct, kw_only=True):
    """Sides that were measured in turns on the same input. Run n of each side was made directly beside run n of the
    others.

    `at` is the place of the case on the axis of a sweep.
    """

    label: str
    sides: list[Side]
    at: float | None = None


class Machine(msgspec.Struct, kw_only=True):
    """Where and when a benchmark was measured. `load` is the load average before and after."""

    cpu: str
    memory: int
    system: str
    python: str
    kernels: str
    commit: str
    date: str
    load: tuple[float, float]


class Result(msgspec.Struct, kw_only=True):
    """The result of one benchmark. `axis` names what a sweep varies; it is empty if nothing is varied."""

    title: str
    about: str
    machine: Machine
    cases: list[Case]
    axis: str = ""
    plotted: list[str] = []
    """Names of the measures that are drawn over the axis."""
    quick: bool = False


class Results(msgspec.Struct):
    """The newest result of each benchmark, by its name."""

    found: dict[str, Result] = {}

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the results in a file. Return no results if the file does not exist."""
        if not path.exists():
            return cls()
        return msgspec.json.decode(path.read_bytes(), type=cls)

    def save(self, path: Path) -> None:
        """Write all results to a file, in their order."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
