"""Finds how much memory this process may use, and how much it uses.

Limits: of each control group on the way up (version 2, or version 1), of the process (RLIMIT_AS, which
counts addresses), else the machine's memory.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_NONE = 2**62
"""Version 1 of control groups says so many bytes, or more, for no limit."""


class Limit(NamedTuple):
    """Bytes, the line of /proc/self/status that counts towards them, and what to raise."""

    size: int
    used: str
    name: str


class ProcessMemory(NamedTuple):
    """The limits of this process. `root` is where /proc and /sys are looked for."""

    limits: list[Limit]
    root: Path = Path("/")

    @property
    def tightest(self) -> Limit:
        """Return the limit with the least room."""
        return max(self.limits, key=self._share)

    def share(self, more: int = 0) -> float:
        """Return the used share of the tightest limit, with so many more bytes."""
        return max(self._share(limit, more) for limit in self.limits)

    def _share(self, limit: Limit, more: int = 0) -> float:
        return (_status(self.root, limit.used) + more) / limit.size


def memory(root: Path = Path("/")) -> ProcessMemory:
    """Return the limits of this process."""
    limits = [Limit(size, "VmRSS", name) for size, name in _of_groups(root)]
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY:
        limits.append(Limit(addresses, "VmSize", "RLIMIT_AS (ulimit -v, LimitAS=)"))
    limits.append(Limit(_machine(root), "VmRSS", "the machine's memory"))
    return ProcessMemory(limits, root)


def _of_groups(root: Path) -> Iterator[tuple[int, str]]:
    """Yield the limits of this process's control groups. Inside a container the top is its own group."""
    mounted = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            tops, file = [mounted, mounted / "unified"], "memory.max"
        elif "memory" in controllers.split(","):
            tops, file = [mounted / "memory"], "memory.limit_in_bytes"
        else:
            continue
        within = PurePosixPath(path.lstrip("/"))
        for top in tops:
            for group in (within, *within.parents):
                text = _text(top / group / file).strip()
                if text.isdecimal() and 0 < int(text) < _NONE:
                    yield int(text), f"{file} of the control group /{group} (MemoryMax=)"


def _machine(root: Path) -> int:
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return _NONE


def _status(root: Path, name: str) -> int:
    """Return a figure of /proc/self/status in bytes."""
    for line in _text(root / "proc/self/status").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
