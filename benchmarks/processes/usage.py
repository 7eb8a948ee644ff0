"""Measure what a process uses: CPU time and memory, as the kernel counts them."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple, Self

_SCHEDULED = 2
"""Clock of Linux that counts the time for which a process was scheduled.

Every process has it, and it is not rounded to ticks.
"""
_SAMPLE_SECONDS = 0.2
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)
_PRIVATE = re.compile(r"^Private_(?:Clean|Dirty|Hugetlb):\s+(\d+) kB", re.MULTILINE)


class Usage(NamedTuple):
    """CPU seconds of all threads, and the maximum memory in bytes.

    `resident` includes pages that are shared with other processes, such as those of libraries; `private` does not.
    """

    cpu: float
    resident: int
    private: int


def cpu_seconds(pid: int) -> float:
    """Return the CPU time (seconds) of a process since it began, including that of threads that have ended."""
    return time.clock_gettime(~pid << 3 | _SCHEDULED)


def resident_peak(pid: int) -> int:
    """Return the maximum memory (bytes) that was resident since the peak was reset."""
    found = _PEAK.search(Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0


def private(pid: int) -> int:
    """Return the memory (bytes) that a process does not share with others."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(kib) for kib in _PRIVATE.findall(rollup)) * 1024


class Watch:
    """Measures a process within a `with` block. Afterwards `usage` is set."""

    def __init__(self, pid: int) -> None:
        self.usage = Usage(0.0, 0, 0)
        self._pid = pid
        self._private = 0
        self._begun = 0.0
        self._ended = Event()
        self._sampler = Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        with suppress(OSError):
            # Reset the peak of the resident memory
            Path(f"/proc/{self._pid}/clear_refs").write_text("5")
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
