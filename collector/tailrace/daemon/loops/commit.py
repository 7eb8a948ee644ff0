"""The two loops that commit rows to the table, one commit after the other, and let checkpoints be saved (`save`).

One loop takes a batch between two entries, and prepares its rows. A commit's position is therefore a place in the
spool: the table has all rows of entries below it and none of entries behind it. The other loop lets the rows land in
the table. A failed commit is repeated with the same rows until it is known whether it landed. The spool keeps new
bytes meanwhile.

A batch is taken while the one before lands only if it is full, or to make room in the spool: so a table that answers
slowly gets few large commits. No batch is taken while table or disk refuse the one before.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sized
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from tailrace.clock import Clock
from tailrace.daemon.current import Current
from tailrace.daemon.health import Health
from tailrace.daemon.loops.names import LOOK_SECONDS, HeldNames
from tailrace.daemon.loops.save import Saving
from tailrace.daemon.loops.steps import Between, Flag, Steps, Wait, Work
from tailrace.errors import DescriptorsError, FullError, LostError, StoreError
from tailrace.figures import Condition
from tailrace.ingest.machine import Ingest
from tailrace.ingest.unfinished import UnfinishedSnapshot
from tailrace.ingest.yielded import QuarantinedBytes
from tailrace.model.columns import Batch

RETRY_FIRST, RETRY_MOST = 0.1, 10.0

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Rows(Protocol):
    """The table, as the loops need it (see `store.table.Table`). All calls block. One thread calls `prepare`,
    another one `land`, with what `prepare` returned, and `checkpoint` after every `checkpoint_every` commits."""

    @property
    def checkpoint_every(self) -> int: ...

    def prepare(self, batch: Batch) -> Sized: ...

    def land(self, rows: Any, position: int) -> object: ...  # noqa: ANN401 - what `prepare` returned

    def checkpoint(self) -> bool: ...


class Frames(Protocol):
    """The quarantine, as the loop needs it (see `store.quarantine.Quarantine`). Both calls block."""

    def write(self, session: str, at: int, data: bytes) -> bool: ...

    def sync(self) -> None: ...


class TakenBatch(NamedTuple):
    """The content of one commit, taken at `begun`; `snapshot` is the ingest's state at `position` if a checkpoint is due."""

    batch: Batch
    quarantined: list[QuarantinedBytes]
    position: int
    snapshot: UnfinishedSnapshot | None
    said_missing: dict[str, int]
    begun: float


class PreparedCommit(NamedTuple):
    """A commit whose `rows` are ready to land; the other fields are those of its `TakenBatch`."""

    rows: Sized
    position: int
    snapshot: UnfinishedSnapshot | None
    said_missing: dict[str, int]
    begun: float


class Committing:
    """The loops `run` and `land`, which commit from the ingest's position `committed` on, where the table stands.

    They call `done` with the seconds and rows of each commit, `taken` when a batch was taken, and `starved` when no
    file descriptor was free. A watchdog waits `watchdog_seconds` for the next commit, for ever if None."""

    def __init__(
        self,
        ingest: Ingest,
        table: Rows,
        quarantine: Frames,
        saving: Saving,
        names: HeldNames,
        between: Between,
        current: Current,
        health: Health,
        clock: Clock,
        *,
        committed: int,
        watchdog_seconds: float | None,
        taken: Callable[[], None],
        done: Callable[[float, int], None],
        starved: Callable[[], None],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.commits = 0
        self.idle = Flag(is_set=True)
        """Set while no batch is on its way to the table."""
        self.said_missing: dict[str, int] = {}
        """Events that the rows in the table call missing, by source; empty until `begin`."""
        self._watchdog_seconds = watchdog_seconds
        self._committed = committed
        self._ingest = ingest
        self._table = table
        self._quarantine = quarantine
        self._saving = saving
        self._names = names
        self._between = between
        self._current = current
        self._health = health
        self._taken = taken
        self._done = done
        self._starved = starved
        self._chance = chance
        self._clock = clock
        self._some = Flag()
        self._enough = Flag()
        self._due = Flag(is_set=True)
        """Set while the table waits for rows, or the batch is full."""
        self._free = Flag(is_set=True)
        """Set while no prepared commit waits or lands."""
        self._prepared: list[PreparedCommit] = []
        self._some_prepared = Flag()
        self._under_way = 0
        """Batches that were taken and have not landed."""
        self._refused = 0
        """How many of these the disk or the table refuses."""
        self._relief = False
        self._relieved = Flag()
        """Set while no relief is wanted, once one was."""
        self._ending = False

    def begin(self) -> None:
        """Note that the ingest has reached the table's position."""
        self.said_missing = _said_missing(self._ingest)

    @property
    def committed(self) -> int:
        """Return the position in the spool below which the table has every row. It never falls.

        Entries without rows move it, too, as long as no row waits."""
        if self.idle.is_set and not self._ingest.yielded.some:
            self._committed = max(self._committed, self._ingest.position)
        return self._committed

    def ready(self) -> None:
        """Note that the batch has rows."""
        batch = self._ingest.yielded.batch
        store = self._current.config.store
        self._some.set()
        if len(batch) >= store.commit_rows or batch.bytes >= store.commit_bytes:
            self._enough.set()
            self._due.set()

    def run(self, may_begin: Flag) -> Steps[None]:
        """Wait for `may_begin`, then take and prepare batches until closed. Raise SyncError."""
        yield Wait(flag=may_begin)
        while True:
            yield Wait(flag=self._some)
            yield Wait(self._patience(), self._enough)
            yield Wait(flag=self._due)
            while self._refused or (self._relief and self._saving.under_way):
                yield Wait(flag=self.idle)
            prepared = yield from self._next()
            if prepared is None:
                continue
            yield Wait(flag=self._free)
            self._free.clear()
            self._prepared.append(prepared)
            self._some_prepared.set()
            del prepared  # a snapshot takes much memory

    def land(self) -> Steps[None]:
        """Let prepared commits land until closed. Raise SyncError or FencedError."""
        while True:
            yield Wait(flag=self._some_prepared)
            self._some_prepared.clear()
            yield from self._land(self._prepared.pop())
            self._free.set()

    def settled(self, *, last: bool = False) -> Steps[None]:
        """Return once `run` and `land`, which must be running, have committed what is left, or the position alone, and saved
        a checkpoint, or once the store is lost. After the `last` call, no relief is taken."""
        self.relieve()
        self._ending = last
        while (self._relief or not self.idle.is_set) and not self._names.store_is_lost:
            yield Wait(LOOK_SECONDS, self._relieved if self._relief else self.idle)

    def _patience(self) -> float:
        """Return how many seconds the loop waits for more rows: less than the interval, since rows waited for the spool's sync."""
        config = self._current.config
        interval: float = config.store.commit_interval
        patience = max(interval - config.spool.sync_interval, interval / 2)
        return min(patience, self._watchdog_seconds / 4) if self._watchdog_seconds else patience

    def relieve(self) -> None:
        """Make a commit and a checkpoint due, even without rows: a full spool can be released only below a checkpoint."""
        if self._ending:
            return
        self._relief = True
        self._relieved.clear()
        self._some.set()
        self._enough.set()
        self._due.set()

    def _next(self) -> Steps[PreparedCommit | None]:
        """Take the batch, and return it ready to land; None if there is nothing to commit."""
        taken = yield from self._between.do(self._take)
        if taken is None:
            return None
        rows = yield from self._insist(partial(self._prepare, taken))
        return PreparedCommit(rows, *taken[2:])

    def _take(self) -> TakenBatch | None:
        """Return the batch, or None if it has no rows. For relief, return also a position without rows, with a snapshot."""
        relief, self._relief = self._relief, False
        self._relieved.set()
        self._some.clear()
        self._enough.clear()
        batch, quarantined = self._ingest.yielded.take()
        if not len(batch) and not relief:
            return None
        snapshot = self._saving.snapshot() if relief or self._saving.is_due else None
        position, missing = self._ingest.position, _said_missing(self._ingest)
        self._under_way += 1
        self.idle.clear()
        self._due.clear()
        self._taken()
        return TakenBatch(batch, quarantined, position, snapshot, missing, self._clock.monotonic())

    def _prepare(self, taken: TakenBatch) -> Sized:
        """Write quarantined bytes, then prepare the rows that name them. This blocks."""
        for session, at, frame in taken.quarantined:
            self._quarantine.write(session, at, frame)
        if taken.quarantined:
            self._quarantine.sync()
        return self._table.prepare(taken.batch)

    def _land(self, prepared: PreparedCommit) -> Steps[None]:
        # The table that the store's names lead to, before and after.
        yield from self._insist(self._names.check_store)
        yield from self._insist(partial(self._table.land, prepared.rows, prepared.position))
        yield from self._insist(self._names.check_store)
        if not self._refused:
            self._health.clear(Condition.STORE)
        self._committed = prepared.position
        self.said_missing = prepared.said_missing
        self.commits += 1
        self._done(self._clock.monotonic() - prepared.begun, len(prepared.rows))
        if prepared.snapshot is not None:
            yield from self._saving.save(prepared.position, prepared.snapshot)
        if self.commits % self._table.checkpoint_every == 0:
            yield Work(self._table.checkpoint)
        self._under_way -= 1
        if not self._under_way:
            self.idle.set()
            self._due.set()

    def _insist(self, call: Callable[[], T]) -> Steps[T]:
        """Repeat a call until disk and table accept it, and return its result. Once the store is lost, wait for the end."""
        delay, refused = RETRY_FIRST, False
        while True:
            try:
                result: T = yield Work(call)
            except LostError as error:
                self._names.lose(error)
                yield Wait()
                continue
            except (FullError, StoreError) as error:
                self._refused += not refused
                refused = True
                if isinstance(error, DescriptorsError):
                    self._starved()
                self._health.refuse(Condition.STORE, f"{error}; the spool keeps what comes")
                yield Wait(delay * (1 + self._chance()) / 2)
                delay = min(delay * 2, RETRY_MOST)
                continue
            self._refused -= refused
            return result


def _said_missing(ingest: Ingest) -> dict[str, int]:
    """Return the events that all gap rows made so far call missing, by source."""
    return {source: tally.said_missing for source, tally in ingest.state.tallies.items()}
