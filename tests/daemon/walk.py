"""Follow one thing through the real collector: list the functions that run until it has arrived.

    python -m tests.daemon.walk

prints how many functions and files a datagram passes, and how often a package calls another one. The datagram is the
second one of its peer, so that no peer or stream is created for it. Heartbeats are off.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple, Self

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import tailrace
from tailrace.decoding.formats.heph import decoder
from tailrace.kernels import active
from tailrace.rows.block import ROWS_MIN
from tests import toml
from tests.daemon.virtual import CONFIG, Calls, configuration, opened, running
from tests.ingest.log import Log, applied, heph_event
from tests.rows.columns import column

BASE = f"{Path(tailrace.__file__).parent}/"
QUIET = (
    CONFIG
    + toml.section("heartbeat", interval="none")
    + toml.section("store", commit_interval="100 ms")
)
"""With this interval, the commit comes before the first tick, which would do much other work."""
FILES = """
[admin]
listen = "127.0.0.1:0"

[heartbeat]
interval = "none"

[sources.files]
type = "tail"
format = "heph"
paths = ["{directory}/*"]
"""


class Call(NamedTuple):
    """A call of a function of the collector, and the file of the nearest caller in the collector; empty if there is
    none.
    """

    file: str
    function: CodeType
    caller: str


class Walk:
    """The calls during the `with` block."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __enter__(self) -> Self:
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (file := _file(frame)):
            caller = frame.f_back
            while caller and not _file(caller):
                caller = caller.f_back
            self.calls.append(Call(file, frame.f_code, _file(caller) if caller else ""))

    def passes(self, stops: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Yield those stops (pairs of file and function) that are passed in this order."""
        calls = ((call.file, call.function.co_qualname) for call in self.calls)
        for stop in stops:
            if stop in calls:  # This consumes the calls up to this one.
                yield stop

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
        """Return how often a package is entered from another one, or from outside of the collector."""
        return sum(_package(call.file) != _package(call.caller) for call in self.calls)


async def follow(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Walk:
    """Send two datagrams, and follow the second one to its commit. Run this in virtual time."""
    Calls(monkeypatch)
    _pack_no_single_events(monkeypatch)
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


async def follow_file(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Walk:
    """Create a file with one event, and follow it until its bytes are in the spool. Run this in virtual time."""
    Calls(monkeypatch)
    _pack_no_single_events(monkeypatch)
    walk = Walk()
    traces = directory / "traces"
    traces.mkdir()
    with opened(configuration(directory, FILES.format(directory=traces))) as life:
        async with running(life):
            await trio.sleep(1)
            event = heph_event(1, 0)
            before = life.daemon.ingest.tally("files").received
            with walk:
                (traces / "trace").write_bytes(event)
                while life.daemon.ingest.tally("files").received == before:  # noqa: ASYNC110 - as below
                    await trio.sleep(0.01)
    return walk


def follow_gap(monkeypatch: pytest.MonkeyPatch) -> Walk:
    """Follow missing numbers from the event that shows the hole until the gap has its row."""
    _pack_no_single_events(monkeypatch)
    log = Log()
    session = log.open(transport="udp")
    log.datagrams(session, [heph_event(1, 0)])
    known = len(log.entries)
    log.datagrams(session, [heph_event(1, 5)])
    log.tick(60)
    ingest = applied(log.entries[:known])
    with Walk() as walk:
        for entry in log.entries[known:]:
            ingest.apply(entry)
    batch = ingest.batch.take()
    assert column(batch, "kind").count("gap") == 1
    return walk


def _pack_no_single_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the number of events from which kernels pack them to its real value, because other tests' modules lower it."""
    if active():
        monkeypatch.setattr(decoder, "ROWS_MIN", ROWS_MIN)


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
