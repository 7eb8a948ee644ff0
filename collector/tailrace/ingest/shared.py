"""Hold the state that the sessions of a source share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tailrace.decoding.formats import FORMATS
from tailrace.ingest.announced import Announcements
from tailrace.ingest.clocks import Paces
from tailrace.ingest.incarnation import Attach, Incarnation, SourceShare
from tailrace.ingest.incarnation_rows import Sink
from tailrace.ingest.limits import Beginnings, Budget, host_of
from tailrace.ingest.returning import Departures, Sender
from tailrace.ingest.state import IngestState, Tally
from tailrace.ledger.bounds import Commons, CommonsState
from tailrace.ledger.run_pieces import SplitRunsState
from tailrace.ledger.split_runs import SplitRuns
from tailrace.rows.batch import Batch
from tailrace.spool.payloads import OpenInfo

V = TypeVar("V")


class BySource(dict[str, V]):
    """Values by source. `make` creates the value of a source at its first use."""

    def __init__(self, make: Callable[[str], V]) -> None:
        self._make = make

    def __missing__(self, source: str) -> V:
        value = self[source] = self._make(source)
        return value


class Shared:
    """The state that the sessions of each source share, as a part of the ingest's state `state`."""

    def __init__(self, state: IngestState, batch: Batch) -> None:
        self._state = state
        self._batch = batch
        self.paces = Paces()
        self.budget = Budget()
        self.common = BySource(self._common)
        """Limits and counts that all sessions of a source share when they count events."""
        self.announced = BySource(self._announced)
        """Announced sessions of each source (those to which the client gave an id)."""
        self.beginnings = BySource(lambda s: Beginnings(state.beginnings.setdefault(s, {})))
        """Limiters of the number of sessions that each host of a source begins per second."""
        self.departed = BySource(lambda s: Departures(state.departures.setdefault(s, [])))
        """Ended sessions of each source, so that new sessions can continue them. Sessions to which clients gave ids are
        left out."""
        self.pieces = BySource(lambda s: SplitRuns(state.pieces.setdefault(s, SplitRunsState())))
        """Runs of each source whose records are spread over several files."""
        for source in state.announced:
            self.announced[source]

    def tally(self, source: str) -> Tally:
        return self._state.tallies.setdefault(source, Tally())

    def _common(self, source: str) -> Commons:
        def forget_first() -> bool:
            """Drop the client's session that has been without a connection for the longest time, to make room for a new
            stream. Only sessions to which clients gave ids are considered."""
            return self.announced[source].forget_first(self._state.now, "too many streams")

        return Commons(self._state.commons.setdefault(source, CommonsState()), forget_first)

    def _announced(self, source: str) -> Announcements:
        states = self._state.announced.setdefault(source, {})
        return Announcements(states, self.attach, self.budget)

    def attach(self, info: OpenInfo) -> Attach:
        """Return the function that creates the incarnations (producer runs) of the session that `info` describes."""
        format_ = FORMATS[info.format]
        departures = None if info.file else self.departed[info.source]
        pieces = self.pieces[info.source] if info.file and format_.files.pieces else None
        return self.attach_with(info, format_.counter_bits, self.paces, departures, pieces)

    def attach_with(
        self,
        info: OpenInfo,
        bits: int | None,
        paces: Paces,
        departures: Departures | None = None,
        pieces: SplitRuns | None = None,
    ) -> Attach:
        source, batch = info.source, self._batch
        datagrams = info.transport == "udp"
        sender = Sender(host_of(info.peer), bits, datagrams, bool(info.file), info.ledger)
        tally, common = self.tally(source), self.common[source]
        share = SourceShare(source, tally, common, paces, departures, pieces)
        emit = partial(batch.extend, source, info.format)
        sink = Sink(emit, batch.keep, lambda time: time + self._state.ahead, batch.at_last)
        return partial(Incarnation, sender=sender, share=share, sink=sink)
