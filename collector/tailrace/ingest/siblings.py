"""What a run has to do with other connections of its producer, where no client announced a session.

A stream goes on where another connection left it. A connection that said the same epoch may still look
alive, and bring more: then each number is accounted for by the connection that brought it first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.departures import Departure, Departures
from tailrace.ingest.own_rows import OwnRows
from tailrace.ingest.state import RunState
from tailrace.ledger.counters import Counters


class Siblings:
    """The other sessions of a run's producer, as the run sees them, and the run as they see it (see
    `departures.Present`)."""

    def __init__(
        self,
        state: RunState,
        counters: Counters,
        departures: Departures,
        limits: LedgerConfig,
        *,
        host: str,
        bits: int,
        ordered: bool,
        own: OwnRows,
        report: Callable[[int], None],
    ) -> None:
        """`ordered` tells that the run's events come in order; `report(now)` is called when there are
        findings that no event of the run brought."""
        self._state = state
        self._counters = counters
        self._departures = departures
        self._limits = limits
        self._host, self._bits = host, bits
        self._ordered = ordered
        self._own = own
        self._report = report
        self.come()

    @property
    def name(self) -> str:
        return self._state.name

    # What others ask of the run

    def end_of(self, stream: str) -> tuple[int, int] | None:
        """See `departures.Present`."""
        return self._counters.end_of(stream)

    def begin_behind(self, stream: str, numbers: range, now: int) -> None:
        """See `departures.Present`."""
        self._counters.begin_behind(stream, numbers)
        self._report(now)

    # What the run asks of others, and tells them

    def come(self) -> None:
        """Let others find the run by its epoch, if it has one and its client announced no session."""
        state = self._state
        if self._ordered and state.epoch is not None and not state.id:
            self._departures.come(self, self._host, state.epoch)

    def go(self) -> None:
        """Let nobody find the run any more."""
        if self._state.epoch is not None:
            self._departures.go(self, self._host, self._state.epoch)

    def tell(self, streams: Iterable[str], now: int) -> None:
        """Tell others which numbers of some streams the run accounts for."""
        epoch = self._state.epoch
        if epoch is None:
            return
        for other in self._departures.beside(self, self._host, epoch):
            for stream in sorted({*streams}):
                other.begin_behind(stream, self._counters.accounts_for(stream), now)

    def earlier(self, stream: str, count: int, mark: int, now: int) -> int | None:
        """See `ledger.counters.Earlier`."""
        state = self._state
        if state.id:
            return None
        earlier = self._departures.find(
            stream, count, mark,
            bits=self._bits, host=self._host, epoch=state.epoch, limits=self._limits, now=now,
            asks=state.name,
        )  # fmt: skip
        if earlier is None:
            return None
        if earlier.next is None:
            state.elsewhere[stream] = earlier.session
        elif earlier.session not in state.continues:
            state.continues.append(earlier.session)
            self._own.session("continue", {"continues": earlier.session}, now)
        return earlier.next

    def depart(self, now: int) -> None:
        """Leave behind how far the run's streams went: its producer may come back without a word."""
        streams = {} if self._state.id else self._counters.ends()
        if streams:
            departure = Departure(self.name, self._host, now, self._state.epoch, streams)
            self._departures.add(departure, self._limits)
