"""Whether the process that writes a file still runs, as far as this host can tell.

A file's path may name its writer by host and PID. A PID alone proves little: the system reuses PIDs,
and the PID may be of another host or of another PID namespace. A process therefore counts as the
writer only once it was seen to be the writer. From then on its start time identifies it, too. Only a
process that was seen can be said to have ended.

A process is seen to be the writer when it has the file open. Another user's descriptors cannot be
read. A process of another user must have this host in the file's path, own the file, be older than
the file, and be in our PID namespace.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tailrace.clock import Clock
from tailrace.decoding.contract import Writer

KEPT_SECONDS = 1.0
"""Seconds for which what was seen of a process counts, because one process may write many files."""

_TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
_DEAD = {"Z", "X", "x"}


class Process(NamedTuple):
    """A process of this host. `started` is in clock ticks since the boot. No two processes have the
    same PID and start."""

    pid: int
    started: int


class _Seen(NamedTuple):
    at: float
    process: Process | None
    nodes: frozenset[tuple[int, int]] | None
    """Device and inode of the files it has open; None where they cannot be read."""


class Writers:
    """The processes that files' paths name. `proc` is the directory in which the system shows its
    processes."""

    def __init__(
        self,
        clock: Clock,
        *,
        proc: str = "/proc",
        host: str | None = None,
        stat: Callable[[str], os.stat_result] = os.stat,
    ) -> None:
        self._stat = stat
        self._clock = clock
        self._proc = proc
        self._host = (socket.gethostname() if host is None else host).partition(".")[0]
        self._seen: dict[int, _Seen] = {}

    def find(self, writer: Writer, file: os.stat_result, birth: int) -> Process | None:
        """Return the process that writes a file, made at `birth` (Unix ns, or 0), if it is seen."""
        seen = self._look(writer.pid)
        if seen.process is None:
            return None
        if seen.nodes is not None:
            return seen.process if (file.st_dev, file.st_ino) in seen.nodes else None
        if writer.host != self._host or not self._is_ours(seen.process, file, birth):
            return None
        return seen.process

    def runs(self, process: Process) -> bool:
        """Return whether a process that was seen still runs."""
        return self._look(process.pid).process == process

    def _look(self, pid: int) -> _Seen:
        now = self._clock.monotonic()
        seen = self._seen.get(pid)
        if seen is None or not 0 <= now - seen.at < KEPT_SECONDS:
            if len(self._seen) > 4096:
                self._seen.clear()
            process = self._process(pid)
            nodes = self._open_files(pid) if process else None
            seen = self._seen[pid] = _Seen(now, process, nodes)
        return seen

    def _process(self, pid: int) -> Process | None:
        """Return the process with this PID, None if there is none or it has ended."""
        try:
            with open(f"{self._proc}/{pid}/stat", encoding="utf-8", errors="replace") as stat:  # noqa: PTH123 - as fast as it can be
                state, *fields = stat.read().rpartition(")")[2].split()
        except (OSError, ValueError):
            return None
        return None if state in _DEAD else Process(pid, int(fields[18]))

    def _open_files(self, pid: int) -> frozenset[tuple[int, int]] | None:
        directory = f"{self._proc}/{pid}/fd"
        nodes = set()
        try:
            for name in os.listdir(directory):  # noqa: PTH208 - as fast as it can be
                try:
                    found = self._stat(f"{directory}/{name}")
                except FileNotFoundError:
                    continue
                nodes.add((found.st_dev, found.st_ino))
        except OSError:
            return None
        return frozenset(nodes)

    def _is_ours(self, process: Process, file: os.stat_result, birth: int) -> bool:
        """Return whether a process whose descriptors cannot be read may have made a file."""
        about = Path(self._proc, str(process.pid))
        try:
            owner = int(_after(about / "status", "Uid:")[1])
            numbers = _after(about / "status", "NSpid:")
            booted = int(_after(Path(self._proc, "stat"), "btime")[0])
        except (OSError, ValueError, IndexError):
            return False
        # The boot time is in whole seconds.
        started = (booted - 1) * 10**9 + process.started * _TICK_NS
        return (
            owner == file.st_uid
            and numbers == [str(process.pid)]
            and started <= (birth or file.st_mtime_ns)
        )


def _after(path: Path, word: str) -> list[str]:
    """Return the words that follow `word` on the line that begins with it."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.split()[1:] for line in lines if line.startswith(word)), [])
