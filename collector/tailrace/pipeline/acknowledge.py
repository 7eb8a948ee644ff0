"""Durable to known: clients that asked are told which of their events are on disk.

What is decoded is durable, so what the ingest has to say may be said at once. Nothing here waits
for a client: to one that does not read, nothing more is said until it does. A datagram that gets lost
is not said again by itself: the client asks, with another announcement.
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from tailrace.ingest.machine import Ingest
from tailrace.sources.source import Source
from tailrace.spool.spool import Spool

EVERY = 0.1
"""Seconds between two answers to a client."""


class Acknowledging:
    def __init__(self, spool: Spool, ingest: Ingest, sources: Mapping[str, Source]) -> None:
        self._spool = spool
        self._ingest = ingest
        self._sources = sources

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            await trio.sleep(EVERY)
            self.once()

    async def last(self) -> None:
        """Return when all that has come in until now is decoded, and what there is to say is said."""
        end = self._spool.end
        while self._ingest.position < end:  # noqa: ASYNC110 - there may be no idle moment to wait for
            await trio.sleep(EVERY / 10)
        self.once()

    def once(self) -> None:
        answers = list(self._ingest.acknowledgements(self._hears))
        sessions = self._ingest.open_sessions() if answers else {}
        for number, data in answers:
            if (info := sessions.get(number)) and (source := self._sources.get(info.source)):
                source.reply(number, data)

    def _hears(self, number: int) -> bool:
        return any(source.hears(number) for source in self._sources.values())
