"""The loop that commits rows to the table, one commit at a time, and saves checkpoints of the ingest.

The loop takes a batch between two entries. A commit's position is therefore a place in the spool: the table has all
rows of entries below it and none of entries behind it. A failed commit is repeated with the same rows until
it is known whether it landed. The spool keeps new bytes meanwhile.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from tailrace.clock import Clock
from tailrace.daemon.current import Current
from tailrace.daemon.health import Health
from tailrace.daemon.loops.steps import Flag, Steps, Wait, Work
from tailrace.errors import DescriptorsError, FullError, StoreError
from tailrace.figures import Condition
from tailrace.ingest.machine import Ingest
from tailrace.ingest.unfinished import NAMED_WITHIN, UnfinishedSnapshot
from tailrace.ingest.yielded import QuarantinedBytes
from tailrace.model.columns import Batch
from tailrace.spool.checkpoint import Checkpoints
from tailrace.spool.spool import Spool

CHECKPOINT_EVERY = 100
"""Commits between checkpoints of the table's log: keeps a commit's cost flat."""

PER_STATE = 16
"""A checkpoint is not due before so many times the bytes are decoded that the sessions hold as state: those who have
many streams would else write more state than events (ARCHITECTURE, D143)."""
LITTLE_STATE = 2**20
"""Bytes. A smaller state is saved as often as `checkpoint_bytes` says, since it costs little."""

RETRY_FIRST, RETRY_MOST = 0.1, 10.0

logger = logging.getLogger(__name__)


class Rows(Protocol):
    """The table, as the loop needs it (see `store.table.Table`). Both calls block."""

    def commit(self, batch: Batch, position: int) -> object: ...

    def checkpoint(self) -> bool: ...


class Frames(Protocol):
    """The quarantine, as the loop needs it (see `store.quarantine.Quarantine`). Both calls block."""

    def write(self, session: str, at: int, data: bytes) -> bool: ...

    def sync(self) -> None: ...


class TakenBatch(NamedTuple):
    """The content of one commit; `snapshot` is the ingest's state at `position` if a checkpoint is due."""

    batch: Batch
    quarantined: list[QuarantinedBytes]
    position: int
    snapshot: UnfinishedSnapshot | None
    said_missing: dict[str, int]


class Committing:
    """The loop that commits, from the ingest's position `committed` on, where the table stands.

    The loop calls `done` with the seconds and rows of each commit, `taken` when it took a batch, and `starved` when no
    file descriptor was free. A watchdog waits `watchdog_seconds` for the next commit, for ever if None."""

    def __init__(
        self,
        spool: Spool,
        ingest: Ingest,
        table: Rows,
        quarantine: Frames,
        checkpoints: Checkpoints,
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
        self.idle = Flag()
        """Set while no batch is being written."""
        self.idle.set()
        self.said_missing: dict[str, int] = {}
        """Events that the rows in the table call missing, by source; empty until `begin`."""
        self._watchdog_seconds = watchdog_seconds
        self._committed = committed
        self._spool = spool
        self._ingest = ingest
        self._table = table
        self._quarantine = quarantine
        self._checkpoints = checkpoints
        self._current = current
        self._health = health
        self._taken = taken
        self._done = done
        self._starved = starved
        self._chance = chance
        self._clock = clock
        self._some = Flag()
        self._enough = Flag()
        self._saved_at = clock.monotonic()
        self._saved_position = ingest.position
        self._relief = False

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

    def run(self, may_begin: Flag) -> Steps[None]:
        """Wait for `may_begin`, then commit until closed. Raise SyncError or FencedError."""
        yield Wait(flag=may_begin)
        while True:
            yield Wait(flag=self._some)
            yield Wait(self._patience(), self._enough)
            yield from self.once()

    def _patience(self) -> float:
        """Return how many seconds the loop waits for more rows: less than the interval, since rows waited for the spool's sync."""
        config = self._current.config
        interval: float = config.store.commit_interval
        patience = max(interval - config.spool.sync_interval, interval / 2)
        return min(patience, self._watchdog_seconds / 4) if self._watchdog_seconds else patience

    def relieve(self) -> None:
        """Make a checkpoint due, because the spool is full and can be released only below one."""
        self._relief = True
        self._some.set()
        self._enough.set()

    def once(self, *, final: bool = False) -> Steps[None]:
        """Commit the batch. If `final`, commit also a position without rows, and save a checkpoint."""
        final, self._relief = final or self._relief, False
        self._some.clear()
        self._enough.clear()
        batch, quarantined = self._ingest.yielded.take()
        due = final or self._checkpoint_due()
        snapshot = self._ingest.checkpoint(self._named_from()) if due else None
        taken = TakenBatch(
            batch, quarantined, self._ingest.position, snapshot, _said_missing(self._ingest)
        )
        self._taken()
        if not len(batch) and not final:
            return
        self.idle.clear()
        try:
            yield from self._write(taken)
        finally:
            self.idle.set()

    def _write(self, taken: TakenBatch) -> Steps[None]:
        delay = RETRY_FIRST
        begun = self._clock.monotonic()
        while True:
            try:
                yield Work(partial(self._attempt, taken))
            except (FullError, StoreError) as error:
                if isinstance(error, DescriptorsError):
                    self._starved()
                self._health.refuse(Condition.STORE, f"{error}; the spool keeps what comes")
                yield Wait(delay * (1 + self._chance()) / 2)
                delay = min(delay * 2, RETRY_MOST)
                continue
            break
        self._health.clear(Condition.STORE)
        self._committed = taken.position
        self.said_missing = taken.said_missing
        self.commits += 1
        self._done(self._clock.monotonic() - begun, len(taken.batch))
        if taken.snapshot is not None:
            yield from self._checkpoint(taken.position, taken.snapshot)
        if self.commits % CHECKPOINT_EVERY == 0:
            yield Work(self._table.checkpoint)

    def _attempt(self, taken: TakenBatch) -> None:
        """Write quarantine and rows, in a worker thread. The quarantine comes first, so that no row names bytes that are not there."""
        for session, at, frame in taken.quarantined:
            self._quarantine.write(session, at, frame)
        if taken.quarantined:
            self._quarantine.sync()
        self._table.commit(taken.batch, taken.position)

    def _checkpoint_due(self) -> bool:
        spool = self._current.config.spool
        state = self._ingest.budget.total
        worth = min(PER_STATE * state, spool.max_size // 8) if state > LITTLE_STATE else 0
        return (
            self._clock.monotonic() - self._saved_at >= spool.checkpoint_interval
            or self._ingest.position - self._saved_position >= max(spool.checkpoint_bytes, worth)
        )

    def _named_from(self) -> int:
        """Return the position from which on a checkpoint may leave unfinished records in the spool.

        The spool keeps their segments until the second checkpoint after it, so they may be an eighth of the spool at most."""
        within = min(NAMED_WITHIN, self._current.config.spool.max_size // 8)
        return self._ingest.position - within

    def _checkpoint(self, position: int, snapshot: UnfinishedSnapshot) -> Steps[None]:
        """Save the ingest's state, and release the segments that no restart needs any more."""
        save = partial(self._checkpoints.save, position, snapshot.state, since=snapshot.since)
        try:
            yield Work(save)
        except FullError as error:
            self._health.degrade(Condition.CHECKPOINT, f"cannot save decoder state: {error}")
            return
        self._health.clear(Condition.CHECKPOINT)
        self._saved_at, self._saved_position = self._clock.monotonic(), position
        needed = self._checkpoints.needed_from
        if needed is not None:
            yield Work(partial(self._spool.release, needed))


def _said_missing(ingest: Ingest) -> dict[str, int]:
    """Return the events that all gap rows made so far call missing, by source."""
    return {source: tally.said_missing for source, tally in ingest.state.tallies.items()}
