"""Acknowledge durable data to clients, as long as the collector's paths on disk lead to the files that it has opened.

While the collector runs, another process may remove, rename or replace its locks, store or spool, or mount a file
system over them. The next start would not find data that was written afterwards. So `HeldNames` checks the paths before
every acknowledgement, around every commit, and at intervals. After a loss, the collector acknowledges nothing more,
commits the remaining rows if possible, and ends.

The ingest decodes only synced bytes, so its acknowledgements may be sent at once. A client that reads slowly gets its
acknowledgements when it reads again. A lost datagram with an acknowledgement is not sent again, because the client
repeats the packet that requests it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from tailrace.daemon.context import Health
from tailrace.daemon.loops.steps import GIVE_WAY, Steps, Wait, Work
from tailrace.errors import FullError, LostError, StoreError
from tailrace.figures import Condition
from tailrace.flags import Flag
from tailrace.ingest.machine import Ingest
from tailrace.sources.source import Source
from tailrace.spool.spool import Spool

LOOK_SECONDS = 1.0
"""Time (seconds) between two checks of the paths while nothing is acknowledged or committed."""


class HeldNames:
    """The paths on disk of one collector, and whether one of them no longer leads to the opened file (is lost).

    `spool` checks the paths of the spool, and `store` those of a local store. Both functions block. They raise
    LostError if a path is lost, StoreError if a lock file cannot be created again, and FullError if a path cannot be
    checked for now."""

    def __init__(
        self, spool: Callable[[], None], store: Callable[[], None], health: Health
    ) -> None:
        self.lost = Flag()
        """Flag that is set once a path of the spool or the store is lost."""
        self.loss: LostError | None = None
        """The error that explains why the spool or the store is lost; None if neither is lost."""
        self.store_is_lost = False
        self._spool = spool
        self._store = store
        self._health = health

    def watch(self) -> Steps[None]:
        """Check the paths of the spool and the store every second, until this generator is closed."""
        while True:
            # If only the spool is lost, the store may still accept the remaining rows.
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
        """Check the paths of the store; this blocks. Return an error about a lock file that cannot be created again, or
        None. Raise LostError if a path is lost, and FullError if a path cannot be checked for now."""
        try:
            self._store()
        except LostError:
            self.store_is_lost = True
            raise
        except StoreError as error:
            return error
        return None

    def lose(self, error: LostError) -> None:
        """Record and report that a path of the spool or the store is lost."""
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
"""Time (seconds) between two rounds of acknowledgements to all waiting clients."""

IN_A_ROUND = 250
"""Number of acknowledgements in a round for which the usual pause is enough. If a round has more, the pause after it
grows in proportion.

Each acknowledgement takes 15 to 70 µs, so many clients would otherwise leave no time for receiving and decoding."""

AT_ONCE = 32


class Acknowledging:
    """The loop that sends acknowledgements to clients."""

    def __init__(
        self, spool: Spool, ingest: Ingest, sources: Mapping[str, Source], names: HeldNames
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
        yield from before
        yield from self.once()

    def once(self) -> Steps[int]:
        """Send all pending acknowledgements that the clients can receive now. Return their number."""
        # Check the paths before taking acknowledgements from the ingest: if this loop took one and then broke off, the
        # ingest would not create it again.
        if not self._ingest.has_news or not (yield from self._names.lead_there()):
            return 0
        count = 0
        sources = self._sources.values()
        for answer in self._ingest.acknowledgements(lambda n: any(s.can_reply(n) for s in sources)):
            source = self._sources.get(self._ingest.source_of(answer.number))
            answer.taken = source is not None and source.reply(answer.number, answer.data)
            count += 1
            if count % AT_ONCE == 0:
                yield GIVE_WAY
        return count
