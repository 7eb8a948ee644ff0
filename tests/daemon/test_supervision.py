"""Signs of life: given for work that was done or refused, and for nothing else."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio

from tailrace.daemon.service import EXTEND_SECONDS, LOOK_SECONDS, STATUS_SECONDS, Supervision
from tailrace.errors import StoreError
from tests import toml
from tests.daemon.virtual import CONFIG, Failing, configuration, opened, running
from tests.ingest.log import heph_event

WATCHDOG = 12.0


class Manager:
    """The messages to a service manager, each with its time."""

    present = True

    def __init__(self, watchdog_seconds=WATCHDOG):
        self.watchdog_seconds = watchdog_seconds
        self.lives, self.extended, self.lines = [], [], []

    def alive(self):
        self.lives.append(trio.current_time())

    def extend(self, seconds):
        assert seconds == EXTEND_SECONDS
        self.extended.append(trio.current_time())

    def status(self, line):
        self.lines.append((trio.current_time(), line))

    @property
    def longest(self):
        """The longest time between two signs of life."""
        return max(b - a for a, b in zip(self.lives, self.lives[1:], strict=False))


@asynccontextmanager
async def watched(life, manager):
    supervision = Supervision(manager, life.daemon.clock)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervision.run, life.daemon)
        async with running(life):
            yield
        nursery.cancel_scope.cancel()


async def test_a_daemon_that_nobody_sends_to_gives_signs_in_time_for_what_it_commits(
    autojump_clock, calls, tmp_path
):
    manager = Manager()
    seldom = configuration(tmp_path, CONFIG + toml.section("store", commit_interval="10 min"))
    with opened(seldom, watchdog_seconds=WATCHDOG) as life:
        async with watched(life, manager):
            await trio.sleep(20 * WATCHDOG)
            commits = life.daemon.figures.commits.count
    assert commits - 2 <= len(manager.lives) <= commits + 1
    assert manager.longest < WATCHDOG * 2 / 3


@pytest.mark.parametrize("step", ["prepare", "land"])
async def test_a_commit_that_hangs_gives_none_though_events_come_in(
    autojump_clock, calls, tmp_path, step
):
    manager = Manager()
    with opened(configuration(tmp_path), watchdog_seconds=WATCHDOG) as life:
        async with watched(life, manager):
            await trio.sleep(3 * WATCHDOG)
            hangs = getattr(life.daemon.disk.table, step)
            calls.hanging = lambda call: getattr(call, "func", None) == hangs
            await trio.sleep(WATCHDOG)
            given = len(manager.lives)
            for number in range(10):
                await life.send(heph_event(1, number))
                await trio.sleep(WATCHDOG / 2)
            assert life.daemon.ingest.account("udp").seen == 10
            assert len(manager.lives) == given
            # The stop is not in time either; what hangs is left.


async def test_a_sync_that_hangs_gives_none(autojump_clock, calls, tmp_path):
    manager = Manager()
    with opened(configuration(tmp_path), watchdog_seconds=WATCHDOG) as life:
        async with trio.open_nursery() as nursery, watched(life, manager):
            await trio.sleep(3 * WATCHDOG)
            calls.hanging = lambda call: call == life.daemon.spool.sync
            await trio.sleep(WATCHDOG)
            given = len(manager.lives)
            await trio.sleep(5 * WATCHDOG)
            assert len(manager.lives) == given
            calls.hanging = lambda call: False
            nursery.cancel_scope.cancel()


async def test_a_table_that_refuses_is_no_reason_to_start_anew(
    autojump_clock, calls, tmp_path, monkeypatch
):
    manager = Manager()
    with opened(configuration(tmp_path), watchdog_seconds=WATCHDOG) as life:
        table = Failing(monkeypatch, life.daemon.disk.table, "land")
        async with watched(life, manager):
            await trio.sleep(3 * WATCHDOG)
            table.error = StoreError("the table is away")
            await trio.sleep(20 * WATCHDOG)
            assert any("degraded: the table is away" in line for _, line in manager.lines)
            table.error = None
            await life.committed()
            await trio.sleep(2 * STATUS_SECONDS)
        assert manager.longest < WATCHDOG
    assert manager.lines[-1][1].startswith("stopping: ") or " rows/s into " in manager.lines[-1][1]


async def test_a_start_that_goes_on_asks_for_patience_once_a_second(autojump_clock):
    manager = Manager()
    supervision = Supervision(manager, TrioClock())
    for _ in range(50):
        supervision.working()
        await trio.sleep(LOOK_SECONDS / 10)
    assert len(manager.extended) == 5


class TrioClock:
    def wall_ns(self):
        return 0

    def monotonic(self):
        return trio.current_time()
