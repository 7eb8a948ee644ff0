"""The processes whose records one DFTracer file holds: one as the tracer writes it, several where files were merged.

A process is a PID on a host, and has a number in the file. A record may lack the host (`DFTRACER_INC_METADATA=0`):
then it is of the process that had the PID last. Beyond `PROCESSES_MAX` processes, all further ones are taken for one,
whose ids prove nothing.
"""

from __future__ import annotations

import re

import msgspec

from tailrace.decoding.formats.dftracer.run import TracedRun, TracedRunState
from tailrace.model.holding import Evicted

PROCESSES_MAX = 1024
"""How many processes of a file are told apart. Each takes about 1 KiB, besides its ids."""

_HOST_MAX, _PID_MAX = 64, 20
"""Longer words are no host, and no whole PID."""

_PID = re.compile(rb'"pid"\s*:\s*"?(-?[0-9]{1,20})"?\s*[,}]')


class ProcessState(msgspec.Struct):
    """A process: its PID, "" before its first record; the hash of its host, "" while no record has stated it; its run."""

    pid: str = ""
    host: str = ""
    run: TracedRunState = msgspec.field(default_factory=TracedRunState)


class ProcessesState(msgspec.Struct):
    """All processes, and the number of the one that has the last record."""

    number: int = 0
    processes: list[ProcessState] = msgspec.field(default_factory=lambda: [ProcessState()])


class TracedProcess:
    """One process of a file."""

    def __init__(self, state: ProcessState) -> None:
        self.pid, self.host = state.pid, state.host
        self.run = TracedRun(state.run)

    @property
    def state(self) -> ProcessState:
        return ProcessState(self.pid, self.host, self.run.state)


class Processes:
    """All processes of a file; `current` is the one that has the last record."""

    what = Evicted.NUMBERS

    def __init__(self, state: ProcessesState) -> None:
        self._all = [TracedProcess(each) for each in state.processes]
        self.number = state.number
        self.current = self._all[self.number]
        self._of = {(each.pid, each.host): number for number, each in enumerate(self._all)}
        self._newest = {each.pid: number for number, each in enumerate(self._all)}
        """By PID, the number of the process that had it last."""

    @property
    def state(self) -> ProcessesState:
        return ProcessesState(self.number, [each.state for each in self._all])

    @property
    def runs(self) -> list[TracedRun]:
        return [each.run for each in self._all]

    @property
    def held(self) -> int:
        return sum(each.run.held for each in self._all)

    def give_way(self, size: int) -> None:
        """Evict the ids of processes, the first ones first, until so many bytes are free."""
        goal = self.held - size
        for each in self._all:
            each.run.give_way(self.held - goal)

    @property
    def evicted(self) -> int:
        return sum(each.run.evicted for each in self._all)

    @evicted.setter
    def evicted(self, count: int) -> None:
        for each in self._all:
            each.run.evicted = 0
        self.current.run.evicted = count

    def numbers(self) -> list[int]:
        """Return the numbers of all processes, that of the current one first."""
        return [self.number, *(n for n in range(len(self._all)) if n != self.number)]

    def go(self, number: int) -> bool:
        """Make a process the current one. Return whether it was another one."""
        before, self.number = self.number, number
        self.current = self._all[number]
        return number != before

    def find(self, data: bytes) -> bool:
        """Go to the process of a record that cannot be read, if it shows a known PID. Return whether that is another one."""
        found = _PID.search(data)
        number = self._newest.get(found[1].decode()) if found else None
        return number is not None and self.go(number)

    def turn(self, pid: str, host: str) -> bool:
        """Go to the process with a PID on a host, "" where a record does not state it. Return whether it is another one."""
        now = self.current
        pid, host = pid[:_PID_MAX], host if len(host) <= _HOST_MAX and host.isascii() else ""
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
        self._newest[pid] = number
        return self.go(number)

    def _begin(self, pid: str, host: str) -> int:
        """Return the number of a process that is new."""
        number = len(self._all)
        if number > PROCESSES_MAX:
            number = PROCESSES_MAX
            self._all[number].pid, self._all[number].host = pid, host
            self._all[number].run.distrust()
            return number
        self._all.append(TracedProcess(ProcessState(pid, host)))
        self._of[pid, host] = number
        return number

    def _name(self, number: int, pid: str, host: str) -> None:
        """Note the PID and the host of a process whose first records stated none."""
        process = self._all[number]
        self._of.pop((process.pid, process.host), None)
        process.pid, process.host = pid, host
        self._of[pid, host] = self._newest[pid] = number
