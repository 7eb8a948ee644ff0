"""Distinguish the processes in one DFTracer file. Only a merged file has several.

A process is a PID on a host. A record without a host (`DFTRACER_INC_METADATA=0`) belongs to the latest process with its
PID. Beyond `PROCESSES_MAX` processes, or after an eviction, further processes count as one. Missing ids of such a
combined process prove no missing events, because several processes share it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection

import msgspec

from tailrace.decoding.formats.dftracer.run import TracedRun, TracedRunState
from tailrace.model.holding import Evicted
from tailrace.model.record import RunPiece

PROCESSES_MAX = 1024
"""Maximum number of processes of a file with a separate state. Further processes share one state."""

PROCESS_BYTES = 5 * 2**10
"""Upper bound on the memory (bytes) of a process and its run, without the ids of its run (`TracedRun.held`)."""

USUAL_MAX = 64
"""Maximum number of processes whose records may alternate in the input of one call of the compiled kernel."""

_HOST_MAX, _PID_MAX = 64, 20
"""Maximum number of characters of a host hash, and of a PID."""

_PID = re.compile(rb'"pid"\s*:\s*"?(-?[0-9]{1,20})"?\s*[,}]')


class ProcessState(msgspec.Struct):
    pid: str = ""  # PID; "" before the first record.
    host: str = ""  # Hash of the host's name, or "" while no record has one.
    run: TracedRunState = msgspec.field(default_factory=TracedRunState)


class ProcessesState(msgspec.Struct):
    """The state of all processes of a file, by number, ordered by their last records."""

    following: int = 1  # Number of the next new process.
    rest: int | None = None  # Number that stands for all processes without a state of their own.
    processes: dict[int, ProcessState] = msgspec.field(default_factory=lambda: {0: ProcessState()})


class Processes:
    """All processes of a file. `current` is the process that wrote the latest record."""

    what = Evicted.NUMBERS

    def __init__(self, state: ProcessesState) -> None:
        states = state.processes.items()
        self.runs = {n: TracedRun(each.run, each.pid, each.host) for n, each in states}
        self.number, self.current = list(self.runs.items())[-1]
        self._following, self._rest = state.following, state.rest
        self._drops = 0
        self._of: dict[tuple[str, str], int] = {}
        self._newest: dict[str, int] = {}  # number of the latest process, by PID
        for number, each in self.runs.items():
            self._note(number, each)
        self._due = {number for number, each in self.runs.items() if each.due}

    @property
    def state(self) -> ProcessesState:
        states = {n: ProcessState(run.pid, run.host, run.state) for n, run in self.runs.items()}
        return ProcessesState(self._following, self._rest, states)

    @property
    def held(self) -> int:
        """Memory (bytes) of the id ranges of all runs, and of the processes that can be evicted."""
        return PROCESS_BYTES * (len(self.runs) - 1) + sum(run.held for run in self.runs.values())

    def give_way(self, size: int) -> None:
        """Evict id ranges, then whole processes, until `size` bytes are free. The oldest processes come first."""
        for run in self.runs.values():
            if size <= 0:
                return
            size -= run.held
            run.give_up()
        for number in list(self.runs)[:-1]:
            if size <= 0:
                return
            self._drop(number)
            size -= PROCESS_BYTES

    @property
    def evicted(self) -> int:
        return self._drops + sum(run.evicted for run in self.runs.values())

    @evicted.setter
    def evicted(self, count: int) -> None:
        for run in self.runs.values():
            run.evicted = 0
        self._drops = count

    @property
    def numbers(self) -> list[int]:
        """Numbers of all processes. The current process comes first."""
        return self._in_turn(self.runs.keys())

    @property
    def usual(self) -> list[tuple[int, TracedRun]]:
        """Processes with their numbers: the current one, then others whose records the compiled kernel may read. Each
        of the others is the latest process with its PID."""
        found = [(self.number, self.current)]
        if self.number != self._rest:
            before = itertools.islice(reversed(self.runs.items()), 1, USUAL_MAX)
            found += (
                (number, run)
                for number, run in before
                if self._newest.get(run.pid) == number and run.usual
            )
        return found

    @property
    def pieces(self) -> dict[int, RunPiece | None]:
        """The part of each process's last run (program execution) that is in this file, by the process's number. The
        value is None if ids do not show the part and the end of the run is missing (`TracedRun.lacking`). If ids do not
        show the part and no end is missing, the process is left out."""
        found = {number: (run.piece, run.lacking) for number, run in self.runs.items()}
        return {number: piece for number, (piece, lacks) in found.items() if piece or lacks}

    def await_settling(self) -> None:
        """Remember the current process, because the gaps (missing events) of its run must be reported soon
        (`TracedRun.settle`)."""
        self._due.add(self.number)

    def take_due(self) -> list[int]:
        """Return the processes for which `await_settling` was called since the last call, the current process first."""
        due, self._due = self._due, set()
        return self._in_turn(due)

    def _in_turn(self, numbers: Collection[int]) -> list[int]:
        return sorted(numbers, key=lambda number: (number != self.number, number))

    def go(self, number: int) -> bool:
        """Make the process with this number the current process. Return False if it already was."""
        if number == self.number:
            return False
        self.number, self.current = number, self.runs.pop(number)
        self.runs[number] = self.current
        self._note(number, self.current)
        return True

    def find(self, data: bytes) -> bool:
        """Make the process whose PID stands in an unreadable record the current one. Return whether the current process
        changed."""
        found = _PID.search(data)
        number = self._newest.get(_plain(found[1].decode()), self._rest) if found else None
        return number is not None and self.go(number)

    def turn(self, pid: str, host: str) -> bool:
        """Make the process with this PID and host (or "") the current one. Return whether the current process
        changed."""
        now = self.current
        pid, host = _plain(pid), host if len(host) <= _HOST_MAX and host.isascii() else ""
        if pid == now.pid and host in ("", now.host):
            return False
        if not now.pid or (pid == now.pid and not now.host):
            self._name(self.number, pid, host)
            return False
        number = self._newest.get(pid) if not host else self._of.get((pid, host))
        if number is None and host and (nameless := self._of.get((pid, ""))) is not None:
            number = nameless
            self._name(number, pid, host)
        if number is None:
            number = self._begin(pid, host)
        return self.go(number)

    def _begin(self, pid: str, host: str) -> int:
        """Add a process and return its number; without room, the number `_rest`, which further processes share."""
        number = self._rest
        if number is None:
            number = self._following
            # From this process on, new processes share one number, because there are too many processes, or earlier
            # ones were evicted.
            if number >= PROCESSES_MAX or len(self.runs) < number:
                self._rest = number
            self.runs[number] = TracedRun(TracedRunState())
            self._following += 1
        run = self.runs[number]
        run.pid, run.host = pid, host
        if number == self._rest:
            # Several processes share the run, so missing ids do not show missing events.
            run.stored.counts = False
        return number

    def _name(self, number: int, pid: str, host: str) -> None:
        """Set the PID and the host of a process whose first records had no PID or host."""
        run = self.runs[number]
        self._of.pop((run.pid, run.host), None)
        run.pid, run.host = pid, host
        self._note(number, run)

    def _note(self, number: int, run: TracedRun) -> None:
        if number != self._rest:
            self._of[run.pid, run.host] = self._newest[run.pid] = number

    def _drop(self, number: int) -> None:
        """Evict a process. Its later records belong to the process `_rest`."""
        run = self.runs.pop(number)
        self._drops += 1 + run.evicted
        self._due.discard(number)
        if number == self._rest:
            self._rest = None
            return
        del self._of[run.pid, run.host]
        if self._newest[run.pid] == number:
            del self._newest[run.pid]


def _plain(pid: str) -> str:
    return str(int(pid[:_PID_MAX]))
