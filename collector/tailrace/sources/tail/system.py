"""What following files asks of the operating system, so that a simulation can answer in its place."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from tailrace.sources.tail import identity


class System(NamedTuple):
    """What decides beside the bytes: sizes, times and numbers of files, and the processes."""

    stat: Callable[[str], os.stat_result] = os.stat
    fstat: Callable[[int], os.stat_result] = os.fstat
    birth: Callable[[int], int] = identity.birth
    """Return when an open file was made (Unix ns), 0 where the system does not say."""
    proc: str = "/proc"
    """Where the system tells of its processes."""


SYSTEM = System()
"""The machine's own."""
