"""The loop that makes received bytes durable: it syncs the spool every `sync_interval` while bytes arrive."""

from __future__ import annotations

import math
from collections.abc import Callable

from tailrace.daemon.context import Context
from tailrace.daemon.intake import Gate
from tailrace.daemon.loops.names import HeldNames
from tailrace.daemon.loops.steps import Flag, Steps, Wait, Work
from tailrace.errors import FullError, LostError
from tailrace.figures import Condition
from tailrace.spool.spool import Spool

RETRY_AFTER = 0.5
"""Seconds between tries while the disk has no room."""


class Syncing:
    """The loop that syncs. After each sync it sets `synced`, and calls `done` with the seconds that the sync took."""

    def __init__(
        self,
        spool: Spool,
        gate: Gate,
        names: HeldNames,
        context: Context,
        synced: Flag,
        done: Callable[[float], None],
    ) -> None:
        self._spool = spool
        self._gate = gate
        self._names = names
        self._context = context
        self._synced = synced
        self._done = done

    def run(self) -> Steps[None]:
        """Sync until closed. Raise SyncError."""
        gate = self._gate
        while True:
            # A full spool may have room again without anything new: look from time to time.
            yield Wait(RETRY_AFTER if gate.full else math.inf, gate.dirty)
            yield Wait(self._context.config.spool.sync_interval, gate.urgent)
            gate.dirty.clear()
            gate.urgent.clear()
            yield from self.once()

    def once(self) -> Steps[None]:
        """Sync what is buffered. Wait until the disk has room, however long that takes. Once a name of the spool is lost,
        nothing becomes durable."""
        while True:
            begun = self._context.clock.monotonic()
            try:
                yield Work(self._spool.sync)
            except FullError as error:
                self._gate.full = True
                self._context.health.refuse(
                    Condition.SPOOL, f"{error}; receiving waits until it can be written"
                )
                yield Wait(RETRY_AFTER)
                continue
            except LostError as error:
                self._names.lose(error)
                self._synced.set()  # a part may be durable
                return
            self._done(self._context.clock.monotonic() - begun)
            self._synced.set()
            self.admit()
            return

    def admit(self) -> None:
        """Open or close the gate by the spool's size."""
        spool = self._spool
        self._gate.full = spool.full
        if spool.full or self._gate.crowded:
            self._context.health.degrade(
                Condition.SPOOL,
                spool.shortage
                or f"the spool takes {spool.size} bytes, its limit is"
                f" {self._context.config.spool.max_size} (spool.max_size);"
                " receiving waits until the table has taken them",
            )
        else:
            self._context.health.clear(Condition.SPOOL)
        self._gate.opened.pulse()
