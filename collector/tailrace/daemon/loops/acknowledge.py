"""Durable to known: clients that asked are told which of their events are on disk.

What is decoded is durable, so what the ingest has to say may be said at once. Nothing here waits
for a client: what one does not take is told when it does. A datagram that gets lost is not said again
by itself: the client asks, with another announcement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tailrace.daemon.loops.steps import GIVE_WAY, Steps, wait
from tailrace.ingest.machine import Ingest
from tailrace.spool.spool import Spool

EVERY = 0.1
"""Seconds between two rounds of answers."""

IN_A_ROUND = 250
"""Answers, of 15 to 70 us each, after which the next round comes later: with more clients each is told
more seldom, and receiving and decoding have their time."""

AT_ONCE = 32
"""Answers without letting others run."""


class Voice(Protocol):
    """What can hand packets to its sessions' peers (see `sources.source.Source`)."""

    def hears(self, number: int) -> bool: ...

    def reply(self, number: int, data: bytes) -> bool: ...


class Acknowledging:
    def __init__(self, spool: Spool, ingest: Ingest, sources: Mapping[str, Voice]) -> None:
        self._spool = spool
        self._ingest = ingest
        self._sources = sources

    def run(self) -> Steps[None]:
        """Go on until closed."""
        while True:
            count = yield from self.once()
            yield from wait(EVERY * max(1.0, count / IN_A_ROUND))

    def last(self) -> Steps[None]:
        """Return when all that has come in until now is decoded, and what there is to say is said."""
        end = self._spool.end
        while self._ingest.position < end:
            yield from wait(EVERY / 10)  # there may be no idle moment to wait for
        yield from self.once()

    def once(self) -> Steps[int]:
        """Answer all who hear; return how many answers there were."""
        count = 0
        for answer in self._ingest.acknowledgements(self._hears):
            source = self._sources.get(self._ingest.source_of(answer.number))
            answer.taken = source is not None and source.reply(answer.number, answer.data)
            count += 1
            if count % AT_ONCE == 0:
                yield GIVE_WAY
        return count

    def _hears(self, number: int) -> bool:
        return any(source.hears(number) for source in self._sources.values())
