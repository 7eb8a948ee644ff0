"""The heartbeat: once an interval an event of our own goes through spool, sync, ingest and commit into the table.

A stall anywhere on this way is therefore visible while nobody sends: in the age of the newest heartbeat in
the table, and to the service manager's watchdog, which commits feed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from tailrace.clock import Clock
from tailrace.daemon.intake import Gate
from tailrace.daemon.loops.steps import Steps, Wait
from tailrace.figures import Durations, HeartbeatStatus
from tailrace.ingest.state import encode
from tailrace.spool.entry import EntryKind
from tailrace.spool.payloads import Heartbeat
from tailrace.spool.spool import Spool

_UNDER_WAY_MAX = 1024
"""Heartbeats that are tracked on their way; older ones are dropped from the figures."""


class _UnderWay(msgspec.Struct):
    end: int
    made: float
    sync_seconds: float = 0.0


class Heartbeats:
    """The heartbeats of one life of the daemon, one every `interval` seconds. `describe` says what each of them has in
    its row."""

    def __init__(
        self,
        spool: Spool,
        gate: Gate,
        clock: Clock,
        interval: float,
        session: str,
        describe: Callable[[], dict[str, int | float | str]],
    ) -> None:
        self.interval = interval
        self._describe = describe
        self._spool = spool
        self._gate = gate
        self._clock = clock
        self._session = session
        self._made = self._committed = 0
        self._newest = clock.monotonic()
        """When the newest heartbeat in the table was made."""
        self._way: dict[str, float] = {}
        self._seconds = Durations()
        self._under_way: deque[_UnderWay] = deque(maxlen=_UNDER_WAY_MAX)

    @property
    def status(self) -> HeartbeatStatus:
        return HeartbeatStatus(
            interval_seconds=self.interval,
            made=self._made,
            committed=self._committed,
            age_seconds=self._clock.monotonic() - self._newest,
            commit_seconds=self._seconds,
        )

    def run(self) -> Steps[None]:
        """Emit heartbeats until closed, the first after one interval."""
        while True:
            yield Wait(self.interval)
            self._beat()

    def synced(self, durable: int) -> None:
        """Note that the spool is on disk below a position."""
        for beat in self._under_way:
            if beat.end <= durable and not beat.sync_seconds:
                beat.sync_seconds = self._clock.monotonic() - beat.made

    def committed(self, position: int) -> None:
        """Note that the table has the spool's rows below a position."""
        while self._under_way and self._under_way[0].end <= position:
            beat = self._under_way.popleft()
            seconds = self._clock.monotonic() - beat.made
            self._seconds.add(seconds)
            self._committed += 1
            self._newest = beat.made
            self._way = {"sync_seconds": beat.sync_seconds, "commit_seconds": seconds}

    def _beat(self) -> None:
        about = {**self._way, "interval_seconds": self.interval, **self._describe()}
        beat = Heartbeat(session=self._session, number=self._made, about=about)
        self._gate.append(EntryKind.HEARTBEAT, 0, encode(beat))
        self._made += 1
        self._under_way.append(_UnderWay(self._spool.end, self._clock.monotonic()))
