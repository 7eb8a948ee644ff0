"""The daemon's own stream: its heartbeats go through the ledger as any producer's events do.

Each life of the daemon is a session, from its first heartbeat until it stops, or until the next life
starts. A number that is missing would be an entry that the spool has lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from tailrace.config.schema import OWN_SOURCE, LedgerConfig
from tailrace.ingest.run import Run
from tailrace.ingest.state import Heartbeat, IngestState, OpenInfo, RunState, Tally
from tailrace.ledger.findings import Account
from tailrace.model.record import Kind, Record

STREAM = "heartbeat"
COUNTER_BITS = 63

INFO = OpenInfo(
    source=OWN_SOURCE, format=OWN_SOURCE, session="", transport="", peer="", record_max=1,
    ledger=LedgerConfig(),
)  # fmt: skip

_CLOCK = {"clock": "unix_ns", "ticks_per_second": 1e9, "epoch": 0}


class Heartbeats:
    """What outlives the process is in the ingest's state; `attach` makes a run of a run's state."""

    def __init__(self, state: IngestState, tally: Tally, attach: Callable[[RunState], Run]) -> None:
        self._state = state
        self._tally = tally
        self._attach = attach
        self._run = attach(state.heartbeats) if state.heartbeats else None

    @property
    def waiting(self) -> bool:
        """Whether a window is open that time alone can close."""
        return self._run is not None and self._run.waiting

    @property
    def account(self) -> Account:
        """That of the life in being."""
        return self._run.account if self._run else Account()

    def beat(self, beat: Heartbeat, size: int, now: int) -> None:
        """Take the next one, of so many bytes."""
        run = self._run
        if run is None or run.state.name != beat.session:
            self.end("collector restart", now)
            run = self._begin(beat.session, now)
        self._tally.received += size
        self._tally.decoded += size
        about = json.dumps(beat.about, separators=(",", ":")) if beat.about else None
        record = Record(
            run.state.reached, size, Kind.INSTANT, STREAM,
            None, beat.number, STREAM, None, None, None, run.own.wall(now), None, about, None, None,
        )  # fmt: skip
        run.state.reached += size
        run.take([(value,) for value in record], now)

    def expire(self, now: int) -> None:
        """Close the windows whose time has passed."""
        if self._run:
            self._run.expire(now)

    def damaged(self, size: int) -> None:
        """Up to `size` bytes of the spool that may have been its cannot be read."""
        if self._run:
            self._run.own.damaged(size)

    def end(self, reason: str, now: int) -> None:
        """The life that it was of is over."""
        run, self._run, self._state.heartbeats = self._run, None, None
        if run:
            run.finish(reason, {}, now)
            self._tally.closed += 1

    def _begin(self, session: str, now: int) -> Run:
        state = RunState(session, epoch=0, clock="unix_ns", ticks_per_second=1e9)
        run = self._run = self._attach(state)
        self._state.heartbeats = state
        self._tally.opened += 1
        run.own.session("open", {"opened": run.own.wall(now)} | _CLOCK, now)
        return run
