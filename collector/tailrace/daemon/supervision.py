"""Tells the service manager how the daemon does: watchdog signals, requests for more time, a status line.

The daemon signals for work done, not for being alive: for each commit (heartbeats cause commits while
nothing else comes), and for each refusal of a disk or store, since a restart would not help then. A hanging
loop, a disk that does not answer and decoding that stands still give no signal, so the manager restarts the daemon.
"""

from __future__ import annotations

from tailrace.clock import Clock
from tailrace.daemon.daemon import Daemon, DaemonProgress
from tailrace.figures import State
from tailrace.rhythm import pause
from tailrace.service_manager.notify import Notifier

LOOK_SECONDS = 1.0
STATUS_SECONDS = 5.0
EXTEND_SECONDS = 30.0
"""Seconds that a start or stop may take for its next step."""


class Supervision:
    """The link between a service manager and the daemon."""

    def __init__(self, notifier: Notifier, clock: Clock) -> None:
        self._notifier = notifier
        self._clock = clock
        self._extended = float("-inf")
        self._seen: DaemonProgress | None = None
        self._told = ""
        self._told_at = float("-inf")
        self._rows = 0

    def working(self) -> None:
        """Ask the manager for more time, because a start or stop goes on."""
        now = self._clock.monotonic()
        if now - self._extended >= LOOK_SECONDS:
            self._extended = now
            self._notifier.extend(EXTEND_SECONDS)

    async def run(self, daemon: Daemon) -> None:
        """Watch until cancelled."""
        seconds = min(LOOK_SECONDS, (self._notifier.watchdog_seconds or LOOK_SECONDS) / 4)
        while self._notifier.present:
            self._look(daemon)
            await pause(seconds)

    def _look(self, daemon: Daemon) -> None:
        state, progress = daemon.health.state, daemon.progress
        before, self._seen = self._seen, progress
        if state in {State.STARTING, State.STOPPING}:
            if before != progress:
                self.working()
        elif before and progress.lives_on(before):
            self._notifier.alive()
        if (now := self._clock.monotonic()) - self._told_at >= STATUS_SECONDS:
            line = self._line(daemon, now - self._told_at)
            self._told_at, self._rows = now, daemon.figures.rows_committed
            if line != self._told:
                self._notifier.status(line)
                self._told = line

    def _line(self, daemon: Daemon, seconds: float) -> str:
        health = daemon.health
        if wrong := health.failure or "; ".join(health.conditions.values()):
            return f"{health.state}: {wrong}"
        behind = daemon.spool.durable - daemon.ingest.position
        rate = round((daemon.figures.rows_committed - self._rows) / seconds)
        line = f"{health.state}: {rate} rows/s into {daemon.disk.store}"
        return f"{line}, {behind / 2**20:.1f} MiB to decode" if behind else line
