"""Commit rows to the table, and decide when a checkpoint is saved.

A commit begins with the batch of rows that the ingest has produced, taken while no entry is half decoded. So the table
has all rows of the entries below the commit's position, and none of later entries. The rows are prepared, and then
landed in the table. Two tasks run commits: one may prepare a commit while the other one lands the previous commit. A
failed call is repeated with the same rows until the result is known.

While a commit is in progress, the next batch is taken only if it is full or the spool needs space. So a slow table gets
few large commits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, IntEnum, auto
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tailrace.daemon.context import Context
from tailrace.daemon.loops.acknowledge import LOOK_SECONDS, HeldNames
from tailrace.daemon.loops.steps import Between, Steps, Wait, Work
from tailrace.errors import DescriptorsError, FullError, LostError, StoreError
from tailrace.figures import Condition
from tailrace.flags import Flag
from tailrace.ingest.machine import Ingest
from tailrace.ingest.unfinished import NAMED_WITHIN, UnfinishedSnapshot
from tailrace.rows.batch import Batch
from tailrace.spool.checkpoint import Checkpoints
from tailrace.spool.spool import Spool

if TYPE_CHECKING:
    from tailrace.store.quarantine import Quarantine
    from tailrace.store.table import Table

PER_STATE = 16
"""Minimum number of bytes decoded between two checkpoints, as a multiple of the size of the sessions' state. Without
this limit, sessions with many streams would write more state than events (docs/decisions/speed.md, D143)."""
LITTLE_STATE = 2**20
"""Size (bytes) of the sessions' state up to which `PER_STATE` (minimum distance of checkpoints) is ignored."""


class Opened(NamedTuple):
    """The open files of a collector. `committed` is the spool position below which the table has all rows."""

    spool: Spool
    ingest: Ingest
    table: Table
    quarantine: Quarantine
    checkpoints: Checkpoints
    committed: int
    check_store: Callable[[], None]
    """Function that raises LostError if a path of the store leads to another file or directory, or StoreError if a lost
    lock file cannot be created again."""


class Saving:
    """Saves checkpoints of an ingest, one at a time, because a snapshot may take as much memory as the whole state."""

    def __init__(self, opened: Opened, names: HeldNames, context: Context) -> None:
        self.under_way = False
        """Whether a snapshot of the ingest's state was taken and has not been saved yet."""
        self._spool = opened.spool
        self._ingest = opened.ingest
        self._checkpoints = opened.checkpoints
        self._names = names
        self._context = context
        self._saved_at = context.clock.monotonic()
        self._saved_position = opened.ingest.position

    @property
    def is_due(self) -> bool:
        """Return whether enough time has passed, or enough bytes were decoded, for the next checkpoint."""
        spool = self._context.config.spool
        state = self._ingest.budget.total
        worth = min(PER_STATE * state, spool.max_size // 8) if state > LITTLE_STATE else 0
        return not self.under_way and (
            self._context.clock.monotonic() - self._saved_at >= spool.checkpoint_interval
            or self._ingest.position - self._saved_position >= max(spool.checkpoint_bytes, worth)
        )

    def snapshot(self) -> UnfinishedSnapshot:
        """Return a snapshot of the ingest's state. Pass it to `save` once the table has all rows of the spool entries
        decoded so far."""
        self.under_way = True
        # Omit bytes of unfinished records from this position on: the spool keeps them until the second checkpoint after
        # this one.
        within = min(NAMED_WITHIN, self._context.config.spool.max_size // 8)
        return self._ingest.checkpoint(self._ingest.position - within)

    def save(self, position: int, snapshot: UnfinishedSnapshot) -> Steps[None]:
        """Save a snapshot as the checkpoint for a spool position. Then release the segments that no later start needs."""
        health, saved = self._context.health, False
        save = partial(self._checkpoints.save, position, snapshot.state, since=snapshot.since)
        try:
            try:
                yield Work(save)
                saved = True
                self._saved_at, self._saved_position = self._context.clock.monotonic(), position
                # Later starts need the spool's entries from this position on, or all entries if the position is None.
                needed: int | None = yield Work(lambda: self._checkpoints.needed_from)
            finally:
                self.under_way = False
            if needed is not None:
                yield Work(partial(self._spool.release, needed))
        except FullError as error:
            lacks = "the decoder state is saved, but no segment of the log is released"
            what = lacks if saved else "cannot save decoder state"
            health.degrade(Condition.CHECKPOINT, f"{what}: {error}")
        except LostError as error:
            self._names.lose(error)
        else:
            health.clear(Condition.CHECKPOINT)


RETRY_FIRST, RETRY_MOST = 0.1, 10.0

T = TypeVar("T")


class Demand(IntEnum):
    """The reason why a commit is requested, in ascending order of urgency."""

    NOTHING = 0
    ROWS = 1
    """The batch has rows. The commit may wait for more rows."""
    FULL = 2
    """The batch of rows is full."""
    RELIEF = 3
    """The spool needs a checkpoint to release space, even without rows."""


class CommitPhase(Enum):
    """The phases of a commit. At most one commit is in each."""

    PREPARING = auto()
    LANDING = auto()


class Stage(Enum):
    """The state of one phase of a commit (`CommitPhase`)."""

    IDLE = auto()
    BUSY = auto()
    REFUSED = auto()
    """The disk or the table refuses the commit, which is tried again."""


class Move(Enum):
    """An event that changes the stage of a phase."""

    BEGIN = auto()
    REFUSE = auto()
    ACCEPT = auto()
    END = auto()


STAGES = {
    (Stage.IDLE, Move.BEGIN): Stage.BUSY,
    (Stage.BUSY, Move.REFUSE): Stage.REFUSED,
    (Stage.BUSY, Move.ACCEPT): Stage.BUSY,
    (Stage.BUSY, Move.END): Stage.IDLE,
    (Stage.REFUSED, Move.REFUSE): Stage.REFUSED,
    (Stage.REFUSED, Move.ACCEPT): Stage.BUSY,
}
"""The stage that follows each stage and move. Any other move would mix two commits."""


class Pipeline:
    """The most urgent requested commit, and the stage of each of the two phases: preparing a commit, and writing it to
    the table (`LANDING`). All flags except `turn` are computed from these values."""

    def __init__(self) -> None:
        self.demand = Demand.NOTHING
        self.stages = dict.fromkeys(CommitPhase, Stage.IDLE)
        self.turn = Flag()
        """Flag that is set while no task waits for the next batch or prepares it."""
        self.turn.set()
        self.some = Flag()
        """Flag that is set while a commit of rows is requested."""
        self.enough = Flag()
        """Flag that is set while a commit is requested at once, without waiting for more rows."""
        self.due = Flag()
        """Flag that is set while a batch may be taken: no commit is in progress, or one is requested at once."""
        self.idle = Flag()
        """Flag that is set while no commit is in either phase."""
        self.free = Flag()
        """Flag that is set while no commit is being written to the table."""
        self.relieved = Flag()
        """Flag that is cleared while the spool needs a checkpoint to release space."""
        self._follow()

    def ask(self, demand: Demand) -> None:
        self.demand = max(self.demand, demand)
        self._follow()

    def take(self) -> Demand:
        taken, self.demand = self.demand, Demand.NOTHING
        self._follow()
        return taken

    def move(self, moves: dict[CommitPhase, Move]) -> None:
        """Make the move of one phase, or of both at the same moment. Raise AssertionError for a move that is not in
        `STAGES`. This ends the daemon, and the next start replays the rows that are not committed."""
        stages = {}
        for phase, move in moves.items():
            before = self.stages[phase]
            if (before, move) not in STAGES:
                raise AssertionError(f"{phase.name}: {move.name} while {before.name}")
            stages[phase] = STAGES[before, move]
        self.stages |= stages
        self._follow()

    def hand_over(self) -> None:
        """Let the prepared commit land in the table, and let the other task take the next batch."""
        self.move({CommitPhase.PREPARING: Move.END, CommitPhase.LANDING: Move.BEGIN})
        self.turn.set()

    def _follow(self) -> None:
        landing = self.stages[CommitPhase.LANDING]
        idle = all(stage is Stage.IDLE for stage in self.stages.values())
        self.some.put(self.demand > Demand.NOTHING)
        self.enough.put(self.demand > Demand.ROWS)
        self.idle.put(idle)
        self.due.put(idle or self.demand > Demand.ROWS)
        self.free.put(landing is Stage.IDLE)
        self.relieved.put(self.demand is not Demand.RELIEF)


logger = logging.getLogger(__name__)


class TakenBatch(NamedTuple):
    """A batch, and the state of the ingest at the monotonic time `begun` (seconds), when the batch was taken.
    `snapshot` is None unless a checkpoint is due."""

    batch: Batch
    position: int
    snapshot: UnfinishedSnapshot | None
    said_missing: dict[str, int]
    begun: float


class Committing:
    """Commits rows to the table. Two tasks execute `run` at the same time. They call `taken` after each batch, and
    `done` after each commit, with its duration (seconds) and number of rows."""

    def __init__(
        self,
        opened: Opened,
        context: Context,
        saving: Saving,
        names: HeldNames,
        *,
        taken: Callable[[], None],
        done: Callable[[float, int], None],
    ) -> None:
        self.commits = 0
        self.pipeline = Pipeline()
        self.between = Between()
        self.said_missing: dict[str, int] = {}
        """For each source, the number of missing events in the gap rows that are committed."""
        self._committed = opened.committed
        self._ingest = opened.ingest
        self._table = opened.table
        self._quarantine = opened.quarantine
        self._context = context
        self._saving = saving
        self._names = names
        self._taken = taken
        self._done = done
        self._ending = False
        self._may_begin = Flag()

    def begin(self) -> None:
        """Let commits begin, because all spool entries whose rows were in the table at the start are decoded."""
        self.said_missing = _said_missing(self._ingest)
        self._may_begin.set()

    @property
    def committed(self) -> int:
        """Return the spool position below which all rows are in the table. It also advances over entries without
        rows."""
        if self.pipeline.idle.is_set and not self._ingest.batch.some:
            self._committed = max(self._committed, self._ingest.position)
        return self._committed

    def run(self) -> Steps[None]:
        """Wait for `begin`, then take batches and commit them until this generator is closed.

        Raise SyncError if the quarantine or the table cannot be synced, and FencedError after a commit of another
        collector with the same name."""
        yield Wait(flag=self._may_begin)
        pipeline = self.pipeline
        prepare = partial(self._insist, CommitPhase.PREPARING)
        land = partial(self._insist, CommitPhase.LANDING)
        while True:
            while not pipeline.turn.is_set:
                yield Wait(flag=pipeline.turn)
            pipeline.turn.clear()
            taken: TakenBatch | None = None
            while taken is None:
                yield Wait(flag=pipeline.some)
                yield Wait(self._patience(), pipeline.enough)
                yield Wait(flag=pipeline.due)
                while self._must_wait():
                    yield Wait(flag=pipeline.idle)
                taken = yield from self.between.do(self._take)
            batch, position, snapshot, said_missing, begun = taken
            if batch.quarantined:
                # Rows refer to the quarantined bytes, so write these bytes before the rows.
                yield from prepare(partial(self._quarantine.keep, batch.quarantined))
            rows = yield from prepare(partial(self._table.prepare, batch))
            del taken, batch  # free the memory of the batch before waiting for the previous commit
            yield Wait(flag=pipeline.free)
            pipeline.hand_over()
            yield from land(self._names.check_store)
            yield from land(partial(self._table.land, rows, position))
            yield from land(self._names.check_store)
            if pipeline.stages[CommitPhase.PREPARING] is not Stage.REFUSED:
                self._context.health.clear(Condition.STORE)
            self._committed = position
            self.said_missing = said_missing
            self.commits += 1
            self._done(self._context.clock.monotonic() - begun, len(rows))
            # Free the memory of the rows, and then of the snapshot, before the next commit.
            del rows
            if snapshot is not None:
                yield from self._saving.save(position, snapshot)
                del snapshot
            if self.commits % self._table.checkpoint_every == 0:
                yield Work(self._table.checkpoint)
            pipeline.move({CommitPhase.LANDING: Move.END})

    def settled(self, *, last: bool) -> Steps[None]:
        """Commit all rows of the decoded spool entries, and save a checkpoint, unless the store is lost (its path leads
        elsewhere). With `last`, later calls of `relieve` request no further commit."""
        self.relieve()
        self._ending = last
        pipeline = self.pipeline
        while not self._names.store_is_lost:
            wanted = pipeline.idle if pipeline.relieved.is_set else pipeline.relieved
            if wanted.is_set:
                return
            yield Wait(LOOK_SECONDS, wanted)

    def _patience(self) -> float:
        """Return how long (seconds) a batch may wait for more rows: `commit_interval` minus the time for which its rows
        have already waited for the spool's sync, but at least half of `commit_interval`. The watchdog shortens the
        wait."""
        config, watchdog_seconds = self._context.config, self._context.watchdog_seconds
        interval: float = config.store.commit_interval
        patience = max(interval - config.spool.sync_interval, interval / 2)
        return min(patience, watchdog_seconds / 4) if watchdog_seconds else patience

    def _must_wait(self) -> bool:
        """Return whether the next batch must wait for the end of the current commit: while this commit is refused, or
        while the spool needs a checkpoint and the last snapshot is not saved yet."""
        pipeline = self.pipeline
        relief = pipeline.demand is Demand.RELIEF
        refused = pipeline.stages[CommitPhase.LANDING] is Stage.REFUSED
        return refused or (relief and self._saving.under_way)

    def relieve(self) -> None:
        """Request a commit and a checkpoint even without rows. Only a checkpoint lets the spool release segments."""
        if not self._ending:
            self.pipeline.ask(Demand.RELIEF)

    def _take(self) -> TakenBatch | None:
        """Take the batch of rows that the ingest has produced. Return None if there are no rows, unless the spool needs
        a checkpoint."""
        relief = self.pipeline.take() is Demand.RELIEF
        batch = self._ingest.batch.take()
        if not len(batch) and not relief:
            return None
        snapshot = self._saving.snapshot() if relief or self._saving.is_due else None
        self.pipeline.move({CommitPhase.PREPARING: Move.BEGIN})
        self._taken()
        position, missing = self._ingest.position, _said_missing(self._ingest)
        return TakenBatch(batch, position, snapshot, missing, self._context.clock.monotonic())

    def _insist(self, phase: CommitPhase, call: Callable[[], T]) -> Steps[T]:
        """Make a blocking call until neither disk nor table refuses it. If the store is lost, wait for ever."""
        delay = RETRY_FIRST
        while True:
            try:
                result: T = yield Work(call)
            except LostError as error:
                self._names.lose(error)
                yield Wait()
            except (FullError, StoreError) as error:
                self.pipeline.move({phase: Move.REFUSE})
                self._context.figures.store_descriptors += isinstance(error, DescriptorsError)
                self._context.health.refuse(Condition.STORE, f"{error}; the spool keeps what comes")
                yield Wait(delay * (1 + self._context.chance.share()) / 2)
                delay = min(delay * 2, RETRY_MOST)
            else:
                self.pipeline.move({phase: Move.ACCEPT})
                return result


def _said_missing(ingest: Ingest) -> dict[str, int]:
    return {source: tally.said_missing for source, tally in ingest.state.tallies.items()}
