"""Acknowledge durable data, while the paths on disk lead to the opened files.

Constraints: another process may remove, rename or replace locks, store and spool, or mount a file system over them,
while the collector uses open files. A later start would not find data written after that. So the collector
acknowledges only data in files that their paths lead to, and no client can delay the loop.

Operation: `HeldNames` checks the paths before every acknowledgement, before and after every commit, and at intervals.
The spool checks its own paths at each sync. After the permanent loss of a path, the collector acknowledges nothing
more, commits the remaining rows if possible, and ends.

`Acknowledging` is the loop that answers clients that ask which events are durable. Decoded events are durable, so the
ingest's answers may be sent at once. A slow client is answered when it reads again. A lost datagram is not repeated,
because the client asks again with its next announcement. Without a pending answer, the loop sleeps until the next
entry.
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
"""Seconds between two checks of the paths while nothing is acknowledged or committed."""


class HeldNames:
    """The paths of one collector. `spool` checks the spool's paths, and `store` the paths and locks of a local
    store.

    Both functions block. They raise LostError for a permanently lost path, StoreError for a held lock whose file
    cannot be created again for now, and FullError for a path that cannot be checked for now.
    """

    def __init__(
        self, spool: Callable[[], None], store: Callable[[], None], health: Health
    ) -> None:
        self.lost = Flag()
        """Set once a path is permanently lost."""
        self.loss: LostError | None = None
        """The first loss of a path."""
        self.store_is_lost = False
        self._spool = spool
        self._store = store
        self._health = health

    def watch(self) -> Steps[None]:
        """Check the paths every second until closed. After a loss, check whether the store still accepts the
        remaining rows."""
        while True:
            if not (yield from self.lead_there()) and not self.store_is_lost:
                with suppress(LostError, FullError):
                    yield Work(self.check_store)
            yield Wait(LOOK_SECONDS, together=True)

    def lead_there(self) -> Steps[bool]:
        """Return whether all paths lead to the opened files."""
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
        """Check the paths of the store, which blocks. Return an error if a lock file cannot be created again.

        Raise LostError for a lost path, and FullError for a path that cannot be checked for now.
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
        """Record that a path is permanently lost."""
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
"""Number of answers (15 to 70 µs each) in a round after which the next round is delayed.

With more clients, each client is answered less often, so that receiving and decoding keep their share of time.
"""

AT_ONCE = 32
"""Number of answers after which other tasks run."""


class Replier(Protocol):
    """A source that can send packets to the peers of its sessions (see `sources.source.Source`)."""

    def can_reply(self, number: int) -> bool: ...

    def reply(self, number: int, data: bytes) -> bool: ...


class Acknowledging:
    """The loop that answers clients. `came` is set when an entry is appended to the spool."""

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
        """Perform the steps `before`, then answer clients until closed."""
        yield from before
        while True:
            count = yield from self.once()
            if not self._ingest.has_news and self._ingest.position == self._spool.end:
                yield Wait(flag=self._came)
            yield Wait(EVERY * max(1.0, count / IN_A_ROUND))

    def last(self) -> Steps[None]:
        """Wait until everything received so far is decoded, then answer clients."""
        end = self._spool.end
        while self._ingest.position < end:
            yield Wait(EVERY / 10)  # the ingest may never be idle
        yield from self.once()

    def once(self) -> Steps[int]:
        """Answer all clients that can receive an answer. Return the number of answers."""
        # Check the paths first, because answers that were taken before a failed check or a stop would be lost.
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
