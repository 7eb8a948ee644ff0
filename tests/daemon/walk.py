"""Follow one datagram through a real daemon: which functions run until its event is committed.

    python -m tests.daemon.walk

prints how many functions and files are on the way, and how often a package calls into another one. The
datagram is the second one of its peer, so that nothing is made anew. The daemon beats no heart meanwhile.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import tailrace
from tests.daemon.virtual import CONFIG, Calls, configuration, opened, running
from tests.ingest.log import heph_event

BASE = f"{Path(tailrace.__file__).parent}/"
QUIET = CONFIG + '[heartbeat]\ninterval = "none"\n[store]\ncommit_interval = "100 ms"\n'
"""The commit comes before the first tick, which would look after much else."""


class Call(NamedTuple):
    """A call of a function of the collector, and the nearest caller in the collector: its file, "" for none."""

    file: str
    function: CodeType
    caller: str


class Walk:
    """The calls while it is entered."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __enter__(self) -> None:
        sys.setprofile(self._note)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (file := _file(frame)):
            caller = frame.f_back
            while caller and not _file(caller):
                caller = caller.f_back
            self.calls.append(Call(file, frame.f_code, _file(caller) if caller else ""))

    @property
    def functions(self) -> int:
        return len({call.function for call in self.calls})

    @property
    def files(self) -> set[str]:
        return {call.file for call in self.calls}

    @property
    def packages(self) -> set[str]:
        return {_package(file) for file in self.files}

    @property
    def entries(self) -> int:
        """How often a package is entered from another one, or from outside."""
        return sum(_package(call.file) != _package(call.caller) for call in self.calls)


async def follow(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Walk:
    """Send two datagrams, and follow the second one to its commit. To be run in virtual time."""
    Calls(monkeypatch)
    walk = Walk()
    with opened(configuration(directory, QUIET)) as life:
        commits = life.daemon.figures.commits
        async with running(life):
            with trio.socket.socket(trio.socket.AF_INET, trio.socket.SOCK_DGRAM) as sock:
                await sock.sendto(heph_event(1, 0), life.address("udp"))
                await _until_commit(commits)
                await wait_all_tasks_blocked()
                with walk:
                    await sock.sendto(heph_event(1, 1), life.address("udp"))
                    await _until_commit(commits)
            assert life.daemon.ingest.account("udp").seen == 2
    return walk


async def _until_commit(commits):
    before = commits.count
    while commits.count == before:  # noqa: ASYNC110 - it calls no function of the collector
        await trio.sleep(0.001)


def _file(frame: FrameType) -> str:
    name = frame.f_code.co_filename
    return name.removeprefix(BASE) if name.startswith(BASE) else ""


def _package(file: str) -> str:
    return file.partition("/")[0]


def main() -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory:
        clock = MockClock(autojump_threshold=0)
        walk = trio.run(follow, Path(directory), patch, clock=clock)
    print(  # noqa: T201 - its purpose
        f"{walk.functions} functions in {len(walk.files)} files;"
        f" {len(walk.packages)} packages are entered {walk.entries} times"
    )


if __name__ == "__main__":
    main()
