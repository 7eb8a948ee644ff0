"""Results as data: what the benchmarks leave on disk, and all that the page is made from."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Self

import msgspec

Run = dict[str, float]
"""Figures of one run, by names of `MEASURES`."""


class Role(StrEnum):
    OURS = "ours"
    PEER = "peer"
    REFERENCE = "reference"
    BASE = "base"
    """Ourselves, at the smallest size of a sweep."""


class Side(msgspec.Struct, kw_only=True):
    """One of those that were measured beside one another, and its runs.

    `does` says what it did with the input. `absent` is the command that installs a peer which is not
    here, and has no runs then."""

    name: str
    role: Role
    does: str
    version: str = ""
    configuration: str = ""
    absent: str = ""
    runs: list[Run] = []


class Case(msgspec.Struct, kw_only=True):
    """Sides that were measured in turns on the same input; run n of each is beside run n of the others.

    `at` is where the case lies on the axis of a sweep."""

    label: str
    sides: list[Side]
    at: float | None = None


class Machine(msgspec.Struct, kw_only=True):
    """Where and when something was measured; `load` is the load average before and after."""

    cpu: str
    memory: int
    system: str
    python: str
    kernels: str
    commit: str
    date: str
    load: tuple[float, float]


class Result(msgspec.Struct, kw_only=True):
    """The findings of one benchmark. `axis` names what a sweep varies, "" where nothing is varied."""

    title: str
    about: str
    machine: Machine
    cases: list[Case]
    axis: str = ""
    plotted: list[str] = []
    """Measures that are drawn over the axis."""
    quick: bool = False


class Results(msgspec.Struct):
    """The newest result of each benchmark, by its name."""

    found: dict[str, Result] = {}

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the results in a file; none if there is no file."""
        if not path.exists():
            return cls()
        return msgspec.json.decode(path.read_bytes(), type=cls)

    def save(self, path: Path) -> None:
        """Write all results, in their order."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
