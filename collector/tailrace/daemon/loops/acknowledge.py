"""Acknowledge what is on disk, as long as the names on disk lead to it.

Constraints: somebody may remove, rename or replace locks, store and spool, or mount another file system over them, while
the collector goes on with open files. A later start finds nothing that is written from then on. So nothing is
acknowledged to which no name leads, and no client can delay the loop.

Operation: `HeldNames` checks the names before every acknowledgement, before and after every commit, and now and then;
the spool checks its own at each sync. Once a name is lost for good, the collector acknowledges nothing more,
commits what it still can, and ends.

`Acknowledging` is the loop that answers the clients that asked which of their events are on disk. Decoded events are
durable, so the ingest's answers may be sent at once. A client that reads slowly is answered when it reads again. A lost
datagram is not repeated; the client asks again with another announcement. While there is no answer to send,
the loop sleeps until an entry comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from tailrace.daemon.context import Health
from tailrace.daemon.loops.steps import GIVE_WAY, Flag, Steps, Wait, Work
from tailrace.errors import FullError, LostError, StoreError
from tailrace.figures import Condition
from tailrace.ingest.machine import Ingest
from tailrace.spool.spool import Spool

LOOK_SECONDS = 1.0
"""Seconds between two looks while nothing is acknowledged or committed."""


class HeldNames:
    """The names of one collector. `spool` checks those of the spool, `store` those of a local store and its locks. Both block.
    They raise LostError for a name that is lost for good, StoreError for a lock's file that cannot be made again for now,
    although the lock is still held, and FullError for a name that cannot be looked up for now."""

    def __init__(
        self, spool: Callable[[], None], store: Callable[[], None], health: Health
    ) -> None:
        self.lost = Flag()
        """Set once a name is lost for good."""
        self.loss: LostError | None = None
        """The first loss."""
        self.store_is_lost = False
        self._spool = spool
        self._store = store
        self._health = health

    def watch(self) -> Steps[None]:
        """Check the names every second until closed. Once a name is lost, check whether the store can still take what
        is left."""
        while True:
            if not (yield from self.lead_there()) and not self.store_is_lost:
                with suppress(LostError, FullError):
                    yield Work(self.check_store)
            yield Wait(LOOK_SECONDS, together=True)

    def lead_there(self) -> Steps[bool]:
        """Return whether all names are known to lead to what is held."""
        if self.loss is not None:
            return False
        try:
            problem: StoreError | None = yield Work(self._look)
        except LostError as error:
            self.lose(error)
            return False
        except FullError as error:
            self._health.degrade(Condition.NAMES, f"{error}; nothing is acknowledged meanwhile")
            return False
        self._health.follow(Condition.NAMES, str(problem) if problem else None)
        return True

    def check_store(self) -> StoreError | None:
        """Raise LostError if a name of the store is lost, FullError if a name cannot be looked up for now. Return why a
        lock's file cannot be made again. This blocks."""
        try:
            self._store()
        except LostError:
            self.store_is_lost = True
            raise
        except StoreError as error:
            return error
        return None

    def lose(self, error: LostError) -> None:
        """Note that a name is lost for good."""
        if self.loss is None:
            self.loss = error
            self._health.degrade(Condition.NAMES, f"{error}; nothing is acknowledged any more")
            self.lost.set()

    def _look(self) -> StoreError | None:
        problem = self.check_store()
        try:
            self._spool()
        except StoreError as error:
            return error
        return problem


EVERY = 0.1
"""Seconds between two rounds of answers."""

IN_A_ROUND = 250
"""Answers, of 15 to 70 µs each, after which the next round comes later: more clients are each answered
less often, so that receiving and decoding keep their time."""

AT_ONCE = 32
"""Answers between two points at which other tasks run."""


class Replier(Protocol):
    """A source that can hand packets to its sessions' peers (see `sources.source.Source`)."""

    def can_reply(self, number: int) -> bool: ...

    def reply(self, number: int, data: bytes) -> bool: ...


class Acknowledging:
    """The loop that answers. `came` is set when an entry was appended to the spool."""

    def __init__(
        self,
        spool: Spool,
        ingest: Ingest,
        sources: Mapping[str, Replier],
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
        """Answer all peers that can take an answer. Return the number of answers."""
        # News taken before this check would be lost if it failed, or if the daemon stopped meanwhile.
        if not self._ingest.has_news or not (yield from self._names.lead_there()):
            return 0
        count = 0
        for answer in self._ingest.acknowledgements(self._can_reply):
            source = self._sources.get(self._ingest.source_of(answer.number))
            answer.taken = source is not None and source.reply(answer.number, answer.data)
            count += 1
            if count % AT_ONCE == 0:
                yield GIVE_WAY
        return count

    def _can_reply(self, number: int) -> bool:
        return any(source.can_reply(number) for source in self._sources.values())
