"""Durable to rows: what the spool has synced goes through the ingest, one entry at a time.

Decoding shares the event loop with the receivers and gives way after every entry: an entry is at
most `CHUNK_MAX` bytes, a few milliseconds of work. It stops while a full batch waits for its commit;
the spool absorbs what comes meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from tailrace.daemon.current import Current
from tailrace.daemon.health import Health
from tailrace.daemon.loops.steps import GIVE_WAY, Flag, Steps, wait
from tailrace.daemon.replay import READ_BYTES, repeat
from tailrace.errors import StoreError
from tailrace.figures import Condition
from tailrace.ingest.machine import Ingest, Rejected
from tailrace.spool.entry import Entry
from tailrace.spool.spool import Spool

LOOK_SECONDS = 0.02
"""How often the place reached is looked at."""


def readable(spool: Spool, ingest: Ingest, health: Health, committed: int) -> list[Entry]:
    """Return the next entries. What the disk did not keep although it was synced is passed over, and
    rows say so, at once or, of what the table has up to `committed`, later; then there may be none."""
    try:
        return spool.read(ingest.position, READ_BYTES)
    except StoreError as error:
        health.degrade(Condition.DAMAGE, str(error))
        position = spool.next_readable(ingest.position)
        ingest.pass_over(position, replayed=ingest.position < committed)
        return []


class Decoding:
    """The loop that decodes. `wake` is to be called when the spool has synced or a batch was taken;
    entries below `committed` have their rows in the table already. `replayed` is called once, when the
    ingest is there, before anything else is decoded."""

    def __init__(
        self,
        spool: Spool,
        ingest: Ingest,
        current: Current,
        health: Health,
        *,
        committed: int,
        replayed: Callable[[], None],
        ready: Callable[[], None],
        reject: Callable[[Rejected], None],
    ) -> None:
        self._spool = spool
        self._ingest = ingest
        self._current = current
        self._health = health
        self._committed = committed
        self._replayed: Callable[[], None] | None = replayed
        self._ready = ready
        self._reject = reject
        self._more = Flag()
        self._idle = Flag()

    @property
    def behind(self) -> int:
        """Durable bytes that are not decoded."""
        return self._spool.durable - self._ingest.position

    @property
    def full(self) -> bool:
        batch, store = self._ingest.batch, self._current.config.store
        return len(batch) >= store.commit_rows or batch.bytes >= store.commit_bytes

    def wake(self) -> None:
        """There may be more to do: the spool was synced, or a batch taken."""
        self._more.set()

    def caught_up(self) -> Steps[None]:
        """Return once all that is durable is decoded."""
        while self.behind:
            yield from wait(flag=self._idle)

    def reached(self, position: int) -> Steps[None]:
        """Return once all below a position is decoded."""
        while self._ingest.position < position:
            yield from wait(LOOK_SECONDS)  # there may be no idle moment to wait for

    def run(self) -> Steps[None]:
        """Decode until closed."""
        while True:
            self._look()
            yield from self._work()
            for entry in readable(self._spool, self._ingest, self._health, self._committed):
                if entry.end <= self._committed:
                    repeat(self._ingest, entry)
                    yield GIVE_WAY
                    continue
                self._look()
                yield from self._work()
                self._ingest.apply(entry)
                if len(self._ingest.batch):
                    self._ready()
                while self._ingest.rejected:
                    self._reject(self._ingest.rejected.pop())
                yield GIVE_WAY

    def _look(self) -> None:
        """Call `replayed`, once, when the ingest is where the table is."""
        if self._replayed and self._ingest.position >= self._committed:
            replayed, self._replayed = self._replayed, None
            replayed()

    def _work(self) -> Steps[None]:
        """Return when there is something durable to decode and room in the batch for it."""
        while self.full or not self.behind:
            if not self.behind:
                self._idle.pulse()
            self._more.clear()
            yield from wait(flag=self._more)
