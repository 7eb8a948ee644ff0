"""Received to durable: the spool is synced every `sync_interval` while anything was received."""

from __future__ import annotations

import math
from collections.abc import Callable

import trio

from tailrace.errors import FullError
from tailrace.figures import Condition
from tailrace.pipeline.current import Current
from tailrace.pipeline.health import Health
from tailrace.pipeline.intake import Gate
from tailrace.spool.spool import Spool

RETRY_AFTER = 0.5
"""Seconds between tries while the disk has no room."""


async def run(
    spool: Spool, gate: Gate, current: Current, health: Health, done: Callable[[float], None]
) -> None:
    """Sync until cancelled; `done` is told the seconds each sync took. Raise SyncError."""
    while True:
        # A full spool may have room again without anything new: look from time to time.
        with trio.move_on_after(RETRY_AFTER if gate.full else math.inf):
            await gate.dirty.wait()
        with trio.move_on_after(current.config.spool.sync_interval):
            await gate.urgent.wait()
        gate.dirty, gate.urgent = trio.Event(), trio.Event()
        await once(spool, gate, current, health, done)


async def once(
    spool: Spool, gate: Gate, current: Current, health: Health, done: Callable[[float], None]
) -> None:
    """Sync what is buffered, however long it takes until there is room for it."""
    while True:
        begun = trio.current_time()
        try:
            await trio.to_thread.run_sync(spool.sync)
        except FullError as error:
            gate.full = True
            health.refuse(Condition.SPOOL, f"{error}; receiving waits until there is room")
            await trio.sleep(RETRY_AFTER)
            continue
        done(trio.current_time() - begun)
        admit(spool, gate, current, health)
        return


def admit(spool: Spool, gate: Gate, current: Current, health: Health) -> None:
    """Open or close the gate by the spool's size."""
    gate.full = spool.full
    if spool.full:
        health.degrade(
            Condition.SPOOL,
            spool.shortage
            or f"the spool holds {spool.size} bytes, its limit is {current.config.spool.max_size}"
            " (spool.max_size); receiving waits until the table has taken them",
        )
    else:
        health.clear(Condition.SPOOL)
    gate.changed()
