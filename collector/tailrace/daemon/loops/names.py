"""Check that the names on disk still lead to the locks, the store and the spool that the collector has open.

Somebody may remove, rename or replace them, or mount another file system over them, while the collector goes on with
open files. A later start finds nothing that is written from then on. So the names are checked before every
acknowledgement, before and after every commit, and now and then; the spool checks its own at each sync. Once a name
is lost for good, the collector acknowledges nothing more, commits what it still can, and ends.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from tailrace.daemon.context import Health
from tailrace.daemon.loops.steps import Flag, Steps, Wait, Work
from tailrace.errors import FullError, LostError, StoreError
from tailrace.figures import Condition

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
