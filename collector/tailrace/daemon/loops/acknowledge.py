"""Acknowledge durable data to clients, as long as the collector's paths on disk lead to the files that it has opened.

While the collector runs, another process may remove, rename or replace the collector's locks, store or spool, or mount
a file system over them. The next start would not find data that was written afterwards. So the collector acknowledges
data only if all paths still lead to the opened files. No client can delay the check or the answers.

`HeldNames` checks the paths before every acknowledgement, before and after every commit, and at intervals. The spool
checks its own paths at each sync. If a path no longer leads to the opened file, it is lost. The collector then
acknowledges nothing more, commits the remaining rows if possible, and ends.

`Acknowledging` is the loop that answers clients which ask for the durable events. The ingest decodes only bytes that
are synced to disk, so its answers may be sent at once. A client that reads slowly is answered when it reads again. A
lost datagram with an answer is not repeated, because the client asks again in its next announcement. If there is
nothing to answer, the loop sleeps until the spool gets another entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from tailrace.daemon.context import Health
from tailrace.daemon.loops.steps import GIVE_WAY, Steps, Wait, Work
from tailrace.errors import FullError, LostError, StoreError
from tailrace.figures import Condition
from tailrace.flags import Flag
from tailrace.ingest.machine import Ingest
from tailrace.spool.spool import Spool

LOOK_SECONDS = 1.0
"""Time (seconds) between two checks of the paths of the spool and the store, while nothing is acknowledged or
committed.
"""


class HeldNames:
    """The paths on disk of one collector, and whether one of them is lost: it no longer leads to the opened file.

    `spool` checks the paths of the spool, and `store` the paths and locks of a local store. Both functions block. They
    raise LostError if a path is lost, StoreError if the removed file of a held lock cannot be created again for now,
    and FullError if a path cannot be checked for now.
    """

    def __init__(
        self, spool: Callable[[], None], store: Callable[[], None], health: Health
    ) -> None:
        self.lost = Flag()
        """Flag that is set once the spool or the store is lost: its path no longer leads to the opened file."""
        self.loss: LostError | None = None
        """The error that explains why the spool or the store is lost; None if neither is lost."""
        self.store_is_lost = False
        self._spool = spool
        self._store = store
        self._health = health

    def watch(self) -> Steps[None]:
        """Until this generator is closed, check every second whether the paths of the spool and the store lead to the
        opened files.

        If not, also check the store's paths alone, because the store may still accept the remaining rows.
        """
        while True:
            if not (yield from self.lead_there()) and not self.store_is_lost:
                with suppress(LostError, FullError):
                    yield Work(self.check_store)
            yield Wait(LOOK_SECONDS, together=True)

    def lead_there(self) -> Steps[bool]:
        """Return whether the paths of the spool and the store lead to the files that the collector has opened."""
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
        """Check the paths of the store; this blocks. Return the error if a removed lock file cannot be created again,
        else None.

        Raise LostError if a path is lost, and FullError if a path cannot be checked for now.
        """
        try:
            self._store()
        except LostError:
            self.store_is_lost = True
            raise
        except StoreError as error:
            return error
        return None

    def lose(self, error: LostError) -> None:
        """Record and report that a path of the spool or the store no longer leads to the opened file."""
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
"""Time (seconds) between two rounds of acknowledgements. In a round, all waiting clients are answered."""

IN_A_ROUND = 250
"""Number of answers in a round above which the pause after the round grows, in proportion to the number of answers. An
answer takes 15 to 70 µs. If there are many clients, each client is therefore answered less often, and receiving and
decoding keep their share of the time.
"""

AT_ONCE = 32
"""Number of acknowledgements that are sent before other tasks of the daemon may run."""


class Replier(Protocol):
    """A source that can send packets to the peer of a session (see `sources.source.Source`)."""

    def can_reply(self, number: int) -> bool: ...

    def reply(self, number: int, data: bytes) -> bool: ...


class Acknowledging:
    """The loop that sends acknowledgements to clients."""

    def __init__(
        self,
        spool: Spool,
        ingest: Ingest,
        sources: Mapping[str, Replier],
        names: HeldNames,
    ) -> None:
        self._spool = spool
        self._ingest = ingest
        self._sources = sources
        self._names = names

    def run(self, before: Steps[None]) -> Steps[None]:
        """Perform the steps `before`, then send acknowledgements until the loop is closed."""
        yield from before
        while True:
            count = yield from self.once()
            if not self._ingest.has_news and self._ingest.position == self._spool.end:
                yield Wait(flag=self._spool.dirty)
            yield Wait(EVERY * max(1.0, count / IN_A_ROUND))

    def last(self, before: Steps[None]) -> Steps[None]:
        """Perform the steps `before`, then send all pending acknowledgements once."""
        yield from before
        yield from self.once()

    def once(self) -> Steps[int]:
        """Send all pending acknowledgements that the clients can receive now. Return their number."""
        # Check the paths of spool and store before acknowledgements are taken from the ingest, because those that are
        # taken and not sent are lost.
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
