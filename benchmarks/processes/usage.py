"""The usage of a process: CPU time and memory, as the kernel counts them."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple, Self

_SCHEDULED = 2
"""The clock of scheduled time, one of those that Linux has for each process; it has no coarse ticks."""
_SAMPLE_SECONDS = 0.2
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)
_PRIVATE = re.compile(r"^Private_(?:Clean|Dirty|Hugetlb):\s+(\d+) kB", re.MULTILINE)


class Usage(NamedTuple):
    """CPU seconds of all threads, and the most memory at any time, in bytes.

    `resident` counts pages that others share, such as those of libraries; `private` does not."""

    cpu: float
    resident: int
    private: int


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process since it began, its ended threads included."""
    return time.clock_gettime(~pid << 3 | _SCHEDULED)


def resident_peak(pid: int) -> int:
    """Return the most memory that was resident since the peak was reset."""
    found = _PEAK.search(Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0


def private(pid: int) -> int:
    """Return the memory that a process shares with nobody."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(kib) for kib in _PRIVATE.findall(rollup)) * 1024


class Watch:
    """Watches a process within a `with` block; `usage` is set behind it."""

    def __init__(self, pid: int) -> None:
        self.usage = Usage(0.0, 0, 0)
        self._pid = pid
        self._private = 0
        self._begun = 0.0
        self._ended = Event()
        self._sampler = Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        with suppress(OSError):
            Path(f"/proc/{self._pid}/clear_refs").write_text("5")  # forget the peak so far
        self._begun = cpu_seconds(self._pid)
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._sampler.join()
        cpu = cpu_seconds(self._pid) - self._begun
        self._look()
        self.usage = Usage(cpu, resident_peak(self._pid), self._private)

    def _sample(self) -> None:
        while not self._ended.wait(_SAMPLE_SECONDS):
            self._look()

    def _look(self) -> None:
        with suppress(OSError):
            self._private = max(self._private, private(self._pid))
