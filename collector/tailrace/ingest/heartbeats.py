"""Process the daemon's heartbeats as numbered events, so that a missing number shows that the spool has lost an
entry.

Each run of the daemon is a session, from its first heartbeat until the daemon stops or the next run starts.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from tailrace.config.schema import MAIN, OWN_SOURCE, LedgerConfig
from tailrace.ingest.incarnation import Attach
from tailrace.ingest.state import IncarnationState, IngestState, Tally
from tailrace.model.gap import Account
from tailrace.model.record import Kind, Record
from tailrace.rows.records import listed
from tailrace.spool.payloads import Heartbeat, OpenInfo

STREAM = "heartbeat"
COUNTER_BITS = 63

INFO = OpenInfo(
    source=OWN_SOURCE, format=OWN_SOURCE, session="", transport="", peer="", record_max=1,
    ledger=LedgerConfig(),
)  # fmt: skip

_CLOCK = {"clock": "unix_ns", "ticks_per_second": 1e9, "epoch": 0}


class HeartbeatSession:
    """Manages the session of the daemon's heartbeats."""

    def __init__(self, state: IngestState, tally: Tally, attach: Callable[[], Attach]) -> None:
        self._state = state
        self._tally = tally
        self._attach = attach
        self._incarnation = attach()(state.heartbeats) if state.heartbeats else None

    @property
    def waiting(self) -> bool:
        return self._incarnation is not None and self._incarnation.waiting

    @property
    def account(self) -> Account:
        return self._incarnation.account if self._incarnation else Account()

    def beat(self, beat: Heartbeat, size: int, now: int) -> None:
        incarnation = self._incarnation
        if incarnation is None or incarnation.state.name != beat.session:
            self.end("collector restart", now)
            state = IncarnationState(beat.session, epoch=0, clock="unix_ns", ticks_per_second=1e9)
            incarnation = self._incarnation = self._attach()(state)
            self._state.heartbeats = state
            self._tally.opened += 1
            opened = {"opened": incarnation.own.wall(now)} | _CLOCK
            if (name := beat.about.get("collector", MAIN)) != MAIN:
                opened["collector"] = name
            incarnation.own.session("open", opened, now)
        self._tally.received += size
        self._tally.decoded += size
        about = json.dumps(beat.about, separators=(",", ":")) if beat.about else None
        record = Record(
            incarnation.state.reached, size, Kind.INSTANT, STREAM,
            None, beat.number, STREAM, None, None, None, incarnation.own.wall(now), None, about, None, None,
        )  # fmt: skip
        incarnation.state.reached += size
        incarnation.take(listed([record]), now)

    def expire(self, now: int) -> None:
        if self._incarnation:
            self._incarnation.expire(now)

    def damaged(self, size: int) -> bool:
        """Write a gap row about up to `size` lost bytes of the spool, which may have contained heartbeats. Return False
        if no heartbeat session is open."""
        if self._incarnation:
            self._incarnation.own.damaged(size)
        return self._incarnation is not None

    def end(self, reason: str, now: int) -> None:
        incarnation, self._incarnation, self._state.heartbeats = self._incarnation, None, None
        if incarnation:
            incarnation.finish(reason, {}, now)
            self._tally.closed += 1
