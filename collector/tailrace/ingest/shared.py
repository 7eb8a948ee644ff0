"""Hold the state that the sessions of a source share."""

from __future__ import annotations

from functools import partial

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


class Shared:
    """Creates the shared state of each source at first use, as a part of the ingest's state."""

    def __init__(self, state: IngestState, batch: Batch) -> None:
        self._state = state
        self._batch = batch
        self.paces = Paces()
        self.budget = Budget()
        self._commons: dict[str, Commons] = {}
        self._announcements: dict[str, Announcements] = {}
        self._departures: dict[str, Departures] = {}
        self._pieces: dict[str, SplitRuns] = {}
        for source in state.announced:
            self.announced(source)

    def tally(self, source: str) -> Tally:
        return self._state.tallies.setdefault(source, Tally())

    def common(self, source: str) -> Commons:
        """Return the limits and counts that all sessions of a source share when they count events."""
        if source not in self._commons:
            state = self._state.commons.setdefault(source, CommonsState())
            self._commons[source] = Commons(state, partial(self._forget_first, source))
        return self._commons[source]

    def announced(self, source: str) -> Announcements:
        """Return the announced sessions of a source (those to which the client gave an id)."""
        if source not in self._announcements:
            states = self._state.announced.setdefault(source, {})
            self._announcements[source] = Announcements(states, self.attach, self.budget)
        return self._announcements[source]

    @property
    def all_announced(self) -> dict[str, Announcements]:
        return self._announcements

    def beginnings(self, source: str) -> Beginnings:
        """Return the limiter of the number of sessions that each host of a source begins per second."""
        return Beginnings(self._state.beginnings.setdefault(source, {}))

    def departed(self, source: str) -> Departures:
        """Return the ended sessions of a source that no client announced, so that new sessions can continue them."""
        if source not in self._departures:
            self._departures[source] = Departures(self._state.departures.setdefault(source, []))
        return self._departures[source]

    def pieces(self, source: str) -> SplitRuns:
        """Return the runs of a source whose records are spread over several files."""
        if source not in self._pieces:
            self._pieces[source] = SplitRuns(
                self._state.pieces.setdefault(source, SplitRunsState())
            )
        return self._pieces[source]

    def attach(self, info: OpenInfo) -> Attach:
        """Return the function that creates the incarnations (producer runs) of the session that `info` opened."""
        bits = FORMATS[info.format].counter_bits
        departures = None if info.file else self.departed(info.source)
        cut = info.file and FORMATS[info.format].files.pieces
        pieces = self.pieces(info.source) if cut else None
        return self.attach_with(
            info, bits=bits, paces=self.paces, departures=departures, pieces=pieces
        )

    def attach_with(
        self,
        info: OpenInfo,
        *,
        bits: int | None,
        paces: Paces,
        departures: Departures | None = None,
        pieces: SplitRuns | None = None,
    ) -> Attach:
        tally = self.tally(info.source)
        datagrams = info.transport == "udp"
        sender = Sender(host_of(info.peer), bits, datagrams, bool(info.file), info.ledger)
        share = SourceShare(info.source, tally, self.common(info.source), paces, departures, pieces)
        batch = self._batch
        emit = partial(batch.extend, info.source, info.format)
        sink = Sink(emit, batch.keep, self._wall, batch.at_last)
        return partial(Incarnation, sender=sender, share=share, sink=sink)

    def _wall(self, time: int) -> int:
        return time + self._state.ahead

    def _forget_first(self, source: str) -> bool:
        """Drop the session that has been away longest, to make room for a new stream. Return False if there is none."""
        return self.announced(source).forget_first(self._state.now, "too many streams")
