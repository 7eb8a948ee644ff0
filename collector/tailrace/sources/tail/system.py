"""The calls to the operating system that following files makes, so that a simulation can answer
instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from tailrace.sources.tail import identity


class System(NamedTuple):
    """All that decides besides the bytes: sizes, times and inodes of files, and the processes."""

    stat: Callable[[str], os.stat_result] = os.stat
    fstat: Callable[[int], os.stat_result] = os.fstat
    birth: Callable[[int], int] = identity.birth
    """Return when an open file was made (Unix ns), 0 where the system does not say."""
    proc: str = "/proc"
    """The directory in which the system shows its processes."""


SYSTEM = System()
"""The calls of the real system."""
