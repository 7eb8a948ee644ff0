"""An incarnation and the other connections of its producer, where no client announced a session.

A stream continues where another connection left it. A connection that said the same epoch may still look
alive, and bring more. Then the connection that brought a number first accounts for that number.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.departures import Departure, Departures
from tailrace.ingest.own_rows import OwnRows
from tailrace.ingest.state import IncarnationState
from tailrace.ledger.counters import Counters, begin_behind


class Siblings:
    """The other sessions of an incarnation's producer, and the incarnation as they see it (see
    `departures.Present`)."""

    def __init__(
        self,
        state: IncarnationState,
        counters: Counters,
        departures: Departures,
        limits: LedgerConfig,
        *,
        host: str,
        bits: int,
        ordered: bool,
        own: OwnRows,
    ) -> None:
        """Let others find the incarnation. With `ordered`, events come in order."""
        self._state = state
        self._counters = counters
        self._departures = departures
        self._limits = limits
        self._host, self._bits = host, bits
        self._ordered = ordered
        self._own = own
        self.come()

    @property
    def name(self) -> str:
        return self._state.name

    # Asked by others

    def has(self, stream: str) -> bool:
        """Return whether a stream is known."""
        return stream in self._counters.state.streams

    def end_of(self, stream: str) -> tuple[int, int] | None:
        """Return a stream's next number and the mark of its last event, None if it has no event."""
        return self._counters.numbers.end_of(stream)

    def begin_behind(self, stream: str, numbers: range, now: int) -> None:
        """Take note that another session accounts for these numbers of a stream."""
        begin_behind(self._counters, stream, numbers)
        self._counters.report(now)

    # Asked of others, and told them

    def come(self) -> None:
        """Let others find the incarnation by its epoch, if it has an epoch and no client announced
        it."""
        state = self._state
        if self._ordered and state.epoch is not None and not state.id:
            self._departures.come(self, self._host, state.epoch)

    def go(self) -> None:
        """Let nobody find the incarnation any more."""
        if self._state.epoch is not None:
            self._departures.go(self, self._host, self._state.epoch)

    def tell(self, streams: Iterable[str], now: int) -> None:
        """Tell others which numbers of some streams the incarnation accounts for."""
        epoch = self._state.epoch
        if epoch is None:
            return
        for stream in sorted({*streams}):
            for other in self._departures.beside(self, self._host, epoch, stream):
                other.begin_behind(stream, self._counters.numbers.accounts_for(stream), now)

    def earlier(self, stream: str, count: int, mark: int, now: int) -> int | None:
        """Return the number at which an earlier session's stream continues here, None if nothing shows it
        (see `ledger.counters.Earlier`)."""
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
            return None
        if earlier.session not in state.continues:
            state.continues.append(earlier.session)
            self._own.session("continue", {"continues": earlier.session}, now)
        if self._departures.continued(earlier.session, stream, self._host):
            self._own.heal_cut(earlier.session)
        return earlier.next

    def go_on(self) -> bool:
        """Return whether other sessions continue all streams of this one; false if it has none."""
        return bool(self._counters.numbers.ends()) and not self._left()

    def _left(self) -> list[str]:
        """Return the streams that no other session continues."""
        ends = {name: following for name, (following, _) in self._counters.numbers.ends().items()}
        return self._departures.left(ends, self._host, self._state.epoch, self.name)

    def depart(self, now: int, *, cut: bool) -> None:
        """Remember how far the streams went: the producer may reconnect without an announcement. With `cut`, its
        connection may have brought more."""
        streams = {} if self._state.id else self._counters.numbers.ends()
        if streams:
            left = self._left() if cut else []
            departure = Departure(self.name, self._host, now, self._state.epoch, streams, left)
            self._departures.add(departure, self._limits)
