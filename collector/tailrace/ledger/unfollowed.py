"""Remembers which streams of a session are not followed, because a limit leaves no place for them.

Their events are stored without a number, a gap of unknown size names the stream, and it is never followed
again. The first `UNFOLLOWED_MAX` such streams of a session are remembered. Further ones share one gap without a
stream; from then on a new stream is followed only from its number 0 on, since any other number may belong to a
stream that lost its place.
"""

from __future__ import annotations

from tailrace.ledger.commons import Commons
from tailrace.ledger.findings import Finding
from tailrace.ledger.stream import CountersState
from tailrace.model.gap import Reason
from tailrace.model.record import Kind

UNFOLLOWED_MAX = 64
"""Streams without room that a session remembers by name."""


class Unfollowed:
    """The streams of one session that are not followed."""

    def __init__(self, state: CountersState, commons: Commons, findings: list[Finding]) -> None:
        """Take the list `findings`, to which gaps are appended."""
        self._state = state
        self._commons = commons
        self._findings = findings

    def add(self, name: str, limit: str, *, followed: bool = False) -> None:
        """Note that a stream has no place because of a limit. A stream that was `followed`, or is
        remembered, gets a gap of its own."""
        state = self._state
        if not state.unfollowed:
            self._commons.state.uncounted_sessions += 1
        if len(state.unfollowed) < UNFOLLOWED_MAX:
            state.unfollowed[name] = 0
            followed = True
        elif not state.others:
            state.others = True
            self._say("", limit)
        if followed:
            self._say(name, limit)

    def observe(self, name: str) -> None:
        """Count an event of a stream that is not followed."""
        state = self._state
        state.uncounted += 1
        if name in state.unfollowed:
            state.unfollowed[name] += 1

    def release(self) -> None:
        """Take the session out of the source's figure, because the session is over."""
        self._commons.state.uncounted_sessions -= bool(self._state.unfollowed)

    def _say(self, name: str, limit: str) -> None:
        self._findings.append(Finding(Kind.GAP, name, None, 0, Reason.UNCOUNTED, detail=limit))
