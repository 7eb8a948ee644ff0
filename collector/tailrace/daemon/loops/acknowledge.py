"""The loop that answers clients: it tells those that asked which of their events are on disk.

Decoded events are durable, so the ingest's answers may be sent at once, while the names on disk lead to them
(see `names`). The loop waits for no
client: it answers a slow one when that one reads again. A lost datagram is not repeated; the client
asks again with another announcement. While there is nothing to tell, the loop sleeps until an entry comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tailrace.daemon.loops.names import HeldNames
from tailrace.daemon.loops.steps import GIVE_WAY, Flag, Steps, Wait
from tailrace.ingest.machine import Ingest
from tailrace.spool.spool import Spool

EVERY = 0.1
"""Seconds between two rounds of answers."""

IN_A_ROUND = 250
"""Answers, of 15 to 70 µs each, after which the next round comes later: more clients are each answered
less often, so that receiving and decoding keep their time."""

AT_ONCE = 32
"""Answers between two points at which other tasks run."""


class Voice(Protocol):
    """A source that can hand packets to its sessions' peers (see `sources.source.Source`)."""

    def hears(self, number: int) -> bool: ...

    def reply(self, number: int, data: bytes) -> bool: ...


class Acknowledging:
    """The loop that answers. `came` is set when an entry was appended to the spool."""

    def __init__(
        self,
        spool: Spool,
        ingest: Ingest,
        sources: Mapping[str, Voice],
        names: HeldNames,
        came: Flag,
    ) -> None:
        self._spool = spool
        self._ingest = ingest
        self._sources = sources
        self._names = names
        self._came = came

    def run(self, before: Steps[None]) -> Steps[None]:
        """Take the steps `before`, then answer until closed."""
        yield from before
        while True:
            count = yield from self.once()
            if not self._ingest.has_news and self._ingest.position == self._spool.end:
                yield Wait(flag=self._came)
            yield Wait(EVERY * max(1.0, count / IN_A_ROUND))

    def last(self) -> Steps[None]:
        """Return once everything received until now is decoded and answered."""
        end = self._spool.end
        while self._ingest.position < end:
            yield Wait(EVERY / 10)  # there may be no idle moment to wait for
        yield from self.once()

    def once(self) -> Steps[int]:
        """Answer all peers that hear. Return the number of answers."""
        # News taken before this check would be lost if it failed, or if the daemon stopped meanwhile.
        if not self._ingest.has_news or not (yield from self._names.lead_there()):
            return 0
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
