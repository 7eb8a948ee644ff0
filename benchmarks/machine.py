"""Describe the machine and the moment of a measurement. Every result contains this description."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil

from benchmarks.places import ROOT
from benchmarks.results import Machine


def machine(kernels: str) -> Machine:
    """Return a description of the machine and of the repository's state.

    Call this before a benchmark writes into the repository.
    """
    return Machine(
        cpu=f"{os.cpu_count()} x {_model()}",
        memory=psutil.virtual_memory().total,
        system=f"Linux {platform.release()}",
        python=platform.python_version(),
        kernels=kernels,
        commit=_commit(),
        date="",
        load=(0.0, 0.0),
    )


@contextmanager
def dated(machine: Machine) -> Iterator[Machine]:
    """Yield the description of the machine with the date and the load.

    At the end of the `with` block, add the load at that moment.
    """
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    now = msgspec.structs.replace(machine, date=date, load=(_load(), 0.0))
    yield now
    now.load = (now.load[0], _load())


def _load() -> float:
    return round(os.getloadavg()[0], 2)


def _model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
