"""One announced session (clients/PROTOCOL.md): one incarnation, over any number of connections.

It has what its client was told, and what the client is still to be told (`answers`).
"""

from __future__ import annotations

from collections.abc import Collection, Container
from itertools import islice

from tailrace.config.schema import LedgerConfig
from tailrace.ingest.incarnation import Incarnation
from tailrace.ingest.state import AnnouncedState
from tailrace.model.holding import Holding
from tailrace.model.record import Announcement


class Announced:
    """One announced session."""

    def __init__(self, state: AnnouncedState, incarnation: Incarnation) -> None:
        self.state = state
        self.incarnation = incarnation
        self.asked = True
        """Whether the next answer names all streams."""
        self.owed: dict[str, None] = {}
        """Streams that the client asked about and was not told of since, in the order of its turns."""
        self.cut: dict[str, None] = {}
        """Streams whose number stops at a hole that the last answer about them had no room to name."""

    @property
    def name(self) -> str:
        return f"{self.source}/{self.incarnation.state.id}"

    @property
    def source(self) -> str:
        return self.state.info.source

    @property
    def limits(self) -> LedgerConfig:
        return self.state.info.ledger

    @property
    def holdings(self) -> list[Holding]:
        """Return the state that the client makes the session hold."""
        return self.incarnation.holdings

    def gave_up(self, what: dict[str, int], now: int) -> None:
        """Write a row (see `ingest.budget.StateHolder`)."""
        self.incarnation.gave_up(what, now)

    def hear(self, said: Announcement, number: int | None) -> None:
        """Take an announcement. Send answers over this connection from now on, if a number is given."""
        state = self.state
        self.asked |= said.turn > state.turn
        state.turn = max(state.turn, said.turn)
        state.acknowledge = said.acknowledge
        state.voice = state.voice if number is None else number

    def unhear(self, number: int) -> None:
        """Send no more answers over this connection."""
        if self.state.voice == number:
            self.state.voice = None

    def carry(self, number: int) -> None:
        """Continue over one more connection."""
        self.state.carriers.append(number)
        self.state.ended = False
        self.asked = True

    @property
    def more(self) -> bool:
        """Return whether there is something to tell the client."""
        counters = self.incarnation.counters
        return self.asked or bool(self.owed) or (counters is not None and bool(counters.news))

    def next_told(self, most: int) -> list[str]:
        """Return at most so many streams that the client is told of next, and take them for told. Those of which
        something came are first: the client waits for them, while a question is about all streams. Streams in `cut`
        follow, as the client's word on other holes makes room for theirs."""
        counters = self.incarnation.counters
        if counters is None:
            return []
        if self.asked:
            self.owed |= dict.fromkeys((*counters.state.streams, *counters.state.unfollowed))
            self.asked = False
        due = counters.news | self.owed
        streams = list(islice(due | self.cut if due else due, most))
        for stream in streams:
            counters.news.pop(stream, None)
            self.owed.pop(stream, None)
            self.cut.pop(stream, None)
        return streams

    def untell(self, streams: Collection[str], news: Container[str]) -> None:
        """Take note that answers with these streams were not sent, some of which have `news`."""
        counters = self.incarnation.counters
        if counters is not None:
            counters.news = dict.fromkeys(s for s in streams if s in news) | counters.news
        self.owed = dict.fromkeys(s for s in streams if s not in news) | self.owed
        self.asked |= not streams

    @property
    def waiting(self) -> bool:
        """Return whether time alone may change the session."""
        return self.incarnation.waiting or not (self.state.ended or self._goes_on)

    @property
    def _goes_on(self) -> bool:
        return bool(self.state.carriers) and not self.incarnation.state.goodbye_at

    def over(self, now: int) -> bool:
        """Return whether the goodbye has come, and all events that were under way."""
        state, said = self.state, self.incarnation.state.goodbye_at
        if not said or state.ended:
            return False
        if state.info.transport == "udp":
            return said + state.info.ledger.reorder_time.ns <= now
        return not state.carriers

    def forgotten(self, now: int) -> bool:
        """Return whether no connection has carried the session for too long."""
        state = self.state
        return not state.carriers and state.left + state.info.ledger.resume_time.ns <= now
