"""Distinguish the processes in one DFTracer file: one process in an original file, several in merged files.

A process is a PID on a host, and has a number in the file. A record without a host (`DFTRACER_INC_METADATA=0`) belongs to the
latest process with the record's PID. Beyond `PROCESSES_MAX` processes, or after an eviction for lack of memory, all further
processes count as one process, called the rest. Missing event ids of the rest prove no missing events.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection

import msgspec

from tailrace.decoding.formats.dftracer.run import TracedRun, TracedRunState
from tailrace.model.holding import Evicted
from tailrace.model.record import RunPiece

PROCESSES_MAX = 1024
"""Maximum number of processes of a file that are distinguished."""

PROCESS_BYTES = 5 * 2**10
"""Upper bound on the memory (bytes) of a process with its incarnation, without the ids of its run
(`TracedRun.held`)."""

USUAL_MAX = 64
"""Maximum number of processes whose interleaved records the kernel reads."""

_HOST_MAX, _PID_MAX = 64, 20
"""Maximum number of characters of a host hash, and of a PID."""

_PID = re.compile(rb'"pid"\s*:\s*"?(-?[0-9]{1,20})"?\s*[,}]')


class ProcessState(msgspec.Struct):
    """The state of a process.

    `pid`: the PID, or "" before the first record.
    `host`: the hash of the host, or "" while no record has a host.
    `run`: the current run."""

    pid: str = ""
    host: str = ""
    run: TracedRunState = msgspec.field(default_factory=TracedRunState)


class ProcessesState(msgspec.Struct):
    """All processes of a file by number, ordered by their last records.

    `following`: the number of the next new process.
    `rest`: the number of the rest, or None if there is no rest."""

    following: int = 1
    rest: int | None = None
    processes: dict[int, ProcessState] = msgspec.field(default_factory=lambda: {0: ProcessState()})


class TracedProcess:
    """One process of a file."""

    def __init__(self, state: ProcessState) -> None:
        self.run = TracedRun(state.run)
        self.name(state.pid, state.host)

    def name(self, pid: str, host: str) -> None:
        self.pid, self.host = self.run.pid, self.run.host = pid, host

    @property
    def state(self) -> ProcessState:
        return ProcessState(self.pid, self.host, self.run.state)


class Processes:
    """All processes of a file. `current` is the process that wrote the latest record."""

    what = Evicted.NUMBERS

    def __init__(self, state: ProcessesState) -> None:
        self._all = {number: TracedProcess(each) for number, each in state.processes.items()}
        self.number, self.current = list(self._all.items())[-1]
        self._following, self._rest = state.following, state.rest
        self._drops = 0
        self._of: dict[tuple[str, str], int] = {}
        self._newest: dict[str, int] = {}
        """By PID, the number of the latest process with the PID."""
        for number, each in self._all.items():
            self._note(number, each)
        self._due = {number for number, each in self._all.items() if each.run.due}

    @property
    def state(self) -> ProcessesState:
        states = {number: each.state for number, each in self._all.items()}
        return ProcessesState(self._following, self._rest, states)

    @property
    def runs(self) -> list[TracedRun]:
        return [each.run for each in self._all.values()]

    @property
    def held(self) -> int:
        """Memory (bytes) of all ids, and of all processes but the first one."""
        return PROCESS_BYTES * (len(self._all) - 1) + sum(run.held for run in self.runs)

    def give_way(self, size: int) -> None:
        """Evict ids, then whole processes, the least recent first, until `size` bytes are free."""
        for run in self.runs:
            if size <= 0:
                return
            size -= run.held
            run.give_way(run.held)
        for number in list(self._all)[:-1]:
            if size <= 0:
                return
            self._drop(number)
            size -= PROCESS_BYTES

    @property
    def evicted(self) -> int:
        return self._drops + sum(run.evicted for run in self.runs)

    @evicted.setter
    def evicted(self, count: int) -> None:
        for run in self.runs:
            run.evicted = 0
        self._drops = count

    @property
    def numbers(self) -> list[int]:
        """The numbers of all processes, the current process first."""
        return self._in_turn(self._all.keys())

    @property
    def usual(self) -> list[tuple[int, TracedProcess]]:
        """The current process and the most recent other processes, with their numbers.

        No two of them have the same PID. The PID of a record therefore shows which of them wrote the record."""
        found = [(self.number, self.current)]
        if self.number != self._rest:
            before = itertools.islice(reversed(self._all.items()), 1, USUAL_MAX)
            found += (each for each in before if self._may_follow(*each))
        return found

    def _may_follow(self, number: int, process: TracedProcess) -> bool:
        return self._newest.get(process.pid) == number and process.run.usual

    def only(self, pid: str) -> bool:
        """Return whether all processes have this PID."""
        return all(each.pid == pid for each in self._all.values())

    def run(self, number: int) -> TracedRun:
        return self._all[number].run

    @property
    def pieces(self) -> dict[int, RunPiece | None]:
        """Map from a process number to the part of the process's last run in this file, if other files may have more of
        the run."""
        found = {number: (each.run.piece, each.run.lacking) for number, each in self._all.items()}
        return {number: piece for number, (piece, lacks) in found.items() if piece or lacks}

    def await_settling(self) -> None:
        """Mark the run of the current process as due for `TracedRun.settle`."""
        self._due.add(self.number)

    def take_due(self) -> list[int]:
        """Return and clear the numbers of the processes that are due for `TracedRun.settle`, the current process first."""
        due, self._due = self._due, set()
        return self._in_turn(due)

    def _in_turn(self, numbers: Collection[int]) -> list[int]:
        return sorted(numbers, key=lambda number: (number != self.number, number))

    def go(self, number: int) -> bool:
        """Make a process the current process. Return whether the current process changed."""
        if number == self.number:
            return False
        self.number, self.current = number, self._all.pop(number)
        self._all[number] = self.current
        self._note(number, self.current)
        return True

    def find(self, data: bytes) -> bool:
        """Make the process of an unreadable record the current process. Return whether the current process changed.

        The process does not change if the bytes show no PID. An unknown PID belongs to the rest, if there is a rest."""
        found = _PID.search(data)
        number = self._newest.get(_plain(found[1].decode()), self._rest) if found else None
        return number is not None and self.go(number)

    def turn(self, pid: str, host: str) -> bool:
        """Make the process with this PID and host the current process. `host` is "" for a record without a host.

        Return whether the current process changed."""
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
        """Return the number of a new process, or the number of the rest."""
        number = self._rest
        if number is None:
            number = self._following
            if number >= PROCESSES_MAX or len(self._all) < number:  # too many, or some were evicted
                self._rest = number
            self._all[number] = TracedProcess(ProcessState())
            self._following += 1
        process = self._all[number]
        process.name(pid, host)
        if number == self._rest:
            process.run.distrust()
        return number

    def _name(self, number: int, pid: str, host: str) -> None:
        """Set the PID and the host of a process whose first records had no PID or host."""
        process = self._all[number]
        self._of.pop((process.pid, process.host), None)
        process.name(pid, host)
        self._note(number, process)

    def _note(self, number: int, process: TracedProcess) -> None:
        """Register a process as the latest process with its PID. The rest has no PID of its own."""
        if number != self._rest:
            self._of[process.pid, process.host] = self._newest[process.pid] = number

    def _drop(self, number: int) -> None:
        """Remove a process. Further records of the process belong to the rest."""
        process = self._all.pop(number)
        self._drops += 1 + process.run.evicted
        self._due.discard(number)
        if number == self._rest:
            self._rest = None
            return
        del self._of[process.pid, process.host]
        if self._newest[process.pid] == number:
            del self._newest[process.pid]


def _plain(pid: str) -> str:
    """Return a PID as a decimal number without leading zeros. Only the first `_PID_MAX` characters count."""
    return str(int(pid[:_PID_MAX]))
