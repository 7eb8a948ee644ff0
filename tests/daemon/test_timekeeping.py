"""A real daemon whose wall clock is set: by ten years, to and fro, under way and between two lives."""

from __future__ import annotations

import contextlib
import re
import socket
from datetime import date, timedelta

import pytest
import trio
from deltalake import DeltaTable

from tailrace.clock import SystemClock
from tailrace.config.load import load
from tailrace.configuration import transports
from tailrace.daemon.daemon import collecting
from tests import toml
from tests.ingest.log import heph_event
from tests.sources.recorder import until

CONFIG = (
    toml.section("store", retention_age="30 d")
    + toml.section("ledger", reorder_time="500 ms")
    + toml.source("udp", "udp")
    + toml.source("tcp", "tcp", record_timeout="1 s")
)

TEN_YEARS = timedelta(days=3652)


class SetClock(SystemClock):
    """The system's clock, but for what it was set by."""

    def __init__(self):
        self.by = timedelta()

    def wall_ns(self):
        return super().wall_ns() + round(self.by.total_seconds()) * 10**9

    @property
    def today(self):
        return date(1970, 1, 1) + timedelta(days=self.wall_ns() // (86_400 * 10**9))


class Life:
    """A daemon that runs, and a datagram peer which lives longer."""

    def __init__(self, daemon, peer):
        self.daemon, self.peer = daemon, peer

    def address(self, source):
        host, _, port = self.daemon.sources[source].address.rpartition(":")
        return host, int(port)

    async def send(self, *numbers):
        """Events of one stream; return once they are decoded."""
        before = self.daemon.ingest.account("udp").seen
        for number in numbers:
            self.peer.sendto(heph_event(1, number), self.address("udp"))
        await until(lambda: self.daemon.ingest.account("udp").seen == before + len(numbers))

    async def timers_go_on(self, first):
        """A hole closes, and a peer that is slow is cut off."""
        gaps = self.daemon.ingest.tally("udp").gaps
        before = gaps.get("network", 0)
        figures = self.daemon.sources["tcp"].figures
        cut = figures().refused.get("slow", 0)
        with socket.create_connection(self.address("tcp")) as slow:
            slow.sendall(heph_event(1, 0)[:20])
            await self.send(first, first + 2)
            await until(lambda: gaps.get("network", 0) == before + 1)
            await until(lambda: figures().refused.get("slow", 0) == cut + 1)

    async def is_behind(self):
        [seconds] = re.findall(r"([\d,]+) s later than the clock", self.conditions["clock"])
        assert 0 <= TEN_YEARS.total_seconds() - int(seconds.replace(",", "")) < 600

    async def is_well(self):
        assert "clock" not in self.conditions

    @property
    def conditions(self):
        return self.daemon.health.conditions


@pytest.fixture
def live(tmp_path):
    """A function that runs a daemon on one store, meanwhile a test's coroutine."""
    (tmp_path / "tailrace.toml").write_text(CONFIG)
    store = str(tmp_path / "store")
    loaded = load(
        tmp_path / "tailrace.toml", environ={}, flags={"store": store}, formats=transports
    )
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as peer:
        peer.bind(("127.0.0.1", 0))

        def live(clock, course):
            with collecting(loaded, clock) as daemon:

                async def main():
                    stop, started = trio.Event(), trio.Event()
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(lambda: daemon.run(stop, started=started.set))
                        await started.wait()
                        await course(Life(daemon, peer))
                        stop.set()

                trio.run(main)
            table = DeltaTable(str(tmp_path / "store/events")).to_pyarrow_table()
            spans = [row for row in table.to_pylist() if row["kind"] == "span"]
            return {row["seq"]: row["day"] for row in spans}

        yield live


@pytest.mark.parametrize("by", [TEN_YEARS, -TEN_YEARS], ids=["forward", "back"])
def test_a_clock_that_is_set_is_followed_and_said_and_no_timer_stands_still(live, by):
    clock = SetClock()
    today = clock.today

    async def course(life):
        await life.send(0)
        for number, setting in enumerate((by, timedelta())):
            clock.by = setting
            steps = life.daemon.figures.clock_steps
            await until(lambda: life.daemon.figures.clock_steps == steps + 1)  # noqa: B023
            assert "the clock was set by" in life.conditions["clock"]
            await life.timers_go_on(3 * number + 1)

    days = live(clock, course)
    assert days[0] == today
    assert {days[1], days[3]} == {today + by}
    assert {days[4], days[6]} == {today}


def test_a_start_after_the_clock_was_set_back_does_not_stay_in_the_future(live):
    clock = SetClock()
    today = clock.today
    clock.by = TEN_YEARS

    async def wrong(life):
        await life.timers_go_on(0)

    days = live(clock, wrong)
    assert {*days.values()} == {today + TEN_YEARS}

    async def right(life):
        await life.is_behind()
        await life.timers_go_on(3)

    clock.by = timedelta()
    days = live(clock, right)
    assert {days[3], days[5]} == {today}

    async def again(life):
        assert "clock" not in life.conditions
        await life.timers_go_on(6)

    days = live(clock, again)
    assert {days[6], days[8]} == {today}
    for clock.by, course in ((TEN_YEARS, Life.is_well), (timedelta(), Life.is_behind)):
        live(clock, course)


def test_a_start_with_a_clock_that_is_far_ahead_deletes_nothing_and_says_why(live):
    clock = SetClock()
    today = clock.today

    async def right(life):
        await life.send(0, 1)

    live(clock, right)
    clock.by = timedelta(days=400)

    async def wrong(life):
        await until(lambda: "retention" in life.conditions)
        assert f"no rows between {today} and {clock.today}" in life.conditions["retention"]
        await life.send(2)

    days = live(clock, wrong)
    assert days == {0: today, 1: today, 2: clock.today}
