"""Checkpoints of the ingest: when one is due, and how it is saved once the table has all rows below it."""

from __future__ import annotations

from functools import partial

from tailrace.daemon.context import Context
from tailrace.daemon.loops.names import HeldNames
from tailrace.daemon.loops.steps import Steps, Work
from tailrace.errors import FullError, LostError
from tailrace.figures import Condition
from tailrace.ingest.machine import Ingest
from tailrace.ingest.unfinished import NAMED_WITHIN, UnfinishedSnapshot
from tailrace.spool.checkpoint import Checkpoints
from tailrace.spool.spool import Spool

PER_STATE = 16
"""A checkpoint is due only after the decoding of this many times the bytes of the sessions' state. Sessions with many
streams would otherwise write more state than events (docs/decisions/speed.md, D143)."""
LITTLE_STATE = 2**20
"""Bytes. A smaller state is saved as often as `checkpoint_bytes` says, since it costs little."""


class Saving:
    """Saves checkpoints of an ingest. There is one snapshot at a time, since each may take as much memory as all state."""

    def __init__(
        self,
        spool: Spool,
        ingest: Ingest,
        checkpoints: Checkpoints,
        names: HeldNames,
        context: Context,
    ) -> None:
        self.under_way = False
        """Whether a snapshot was taken and is not saved."""
        self._spool = spool
        self._ingest = ingest
        self._checkpoints = checkpoints
        self._names = names
        self._context = context
        self._saved_at = context.clock.monotonic()
        self._saved_position = ingest.position

    @property
    def is_due(self) -> bool:
        """Return whether time or bytes since the last checkpoint call for another one."""
        spool = self._context.config.spool
        state = self._ingest.budget.total
        worth = min(PER_STATE * state, spool.max_size // 8) if state > LITTLE_STATE else 0
        return not self.under_way and (
            self._context.clock.monotonic() - self._saved_at >= spool.checkpoint_interval
            or self._ingest.position - self._saved_position >= max(spool.checkpoint_bytes, worth)
        )

    def snapshot(self) -> UnfinishedSnapshot:
        """Return the ingest's state, to be saved once the table has all rows up to its position."""
        self.under_way = True
        return self._ingest.checkpoint(self._named_from())

    def save(self, position: int, snapshot: UnfinishedSnapshot) -> Steps[None]:
        """Save a snapshot of a position, and release the segments that no restart needs any more."""
        try:
            needed: int | FullError | None = yield Work(partial(self._save, position, snapshot))
        except FullError as error:
            self._context.health.degrade(
                Condition.CHECKPOINT, f"cannot save decoder state: {error}"
            )
            return
        except LostError as error:
            self._names.lose(error)
            return
        finally:
            self.under_way = False
        self._saved_at, self._saved_position = self._context.clock.monotonic(), position
        try:
            if isinstance(needed, FullError):
                raise needed
            if needed is not None:
                yield Work(partial(self._spool.release, needed))
        except FullError as error:
            keeps = f"the decoder state is saved, but no segment of the log is released: {error}"
            self._context.health.degrade(Condition.CHECKPOINT, keeps)
        except LostError as error:
            self._names.lose(error)
        else:
            self._context.health.clear(Condition.CHECKPOINT)

    def _save(self, position: int, snapshot: UnfinishedSnapshot) -> int | FullError | None:
        """Save a snapshot, and return the position below which no start needs the log, or why it is unknown for now. This
        blocks."""
        self._checkpoints.save(position, snapshot.state, since=snapshot.since)
        try:
            return self._checkpoints.needed_from
        except FullError as error:
            return error

    def _named_from(self) -> int:
        """Return the position from which on a checkpoint may leave unfinished records in the spool.

        The spool keeps their segments until the second checkpoint after it, so they may be an eighth of the spool at most."""
        within = min(NAMED_WITHIN, self._context.config.spool.max_size // 8)
        return self._ingest.position - within
