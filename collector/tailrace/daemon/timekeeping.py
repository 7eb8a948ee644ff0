"""Follows the wall clock, while the log's time goes on steadily: an entry of the log says when the clock was set."""

from __future__ import annotations

import logging

from tailrace.clock import Clock
from tailrace.daemon.context import Health
from tailrace.daemon.gate import Gate
from tailrace.figures import Condition, Figures
from tailrace.ingest.ahead import Ahead
from tailrace.ingest.state import encode
from tailrace.spool.entry import EntryKind
from tailrace.spool.spool import Spool

LARGE_NS = 60 * 10**9
"""A clock step of this size becomes a condition."""

TOLD_SECONDS = 3600.0
"""Seconds for which the condition lasts."""

logger = logging.getLogger(__name__)


class Timekeeping:
    """Follows the wall clock, from the log's last entry on."""

    def __init__(
        self, spool: Spool, gate: Gate, clock: Clock, health: Health, figures: Figures
    ) -> None:
        self._spool = spool
        self._gate = gate
        self._clock = clock
        self._health = health
        self._figures = figures
        self._told_at = 0.0

    def begin(self, ahead: Ahead) -> None:
        """Go on where the end of the log is, and say how far the wall clock is ahead, if the log says
        something else."""
        timeline = self._spool.timeline
        timeline.go_on(ahead.clock)
        now = timeline.ahead
        if now != ahead.clock:
            self._say(now)
        if now - ahead.clock <= -LARGE_NS:
            later = (ahead.clock - now) / 1e9
            self._tell(f"the log's last entry is {later:,.0f} s later than the clock")

    def look(self) -> None:
        """Append an entry if the clock was set, and report a large step."""
        step = self._spool.timeline.look()
        if step:
            self._figures.clock_steps += 1
            self._say(self._spool.timeline.ahead)
        if abs(step) >= LARGE_NS:
            self._tell(f"the clock was set by {step / 1e9:+,.0f} s, or the machine slept")
        elif self._clock.monotonic() - self._told_at >= TOLD_SECONDS:
            self._health.clear(Condition.CLOCK)

    def _say(self, ahead: int) -> None:
        self._gate.append(EntryKind.CLOCK, 0, encode(ahead))

    def _tell(self, what: str) -> None:
        message = (
            f"{what}: rows have the new time and day, waiting times count on as before;"
            " check the clock and what sets it"
        )
        if Condition.CLOCK in self._health.conditions:
            logger.warning(message, extra={"condition": Condition.CLOCK})
        self._health.degrade(Condition.CLOCK, message)
        self._told_at = self._clock.monotonic()
